"""Sums of the paper's three channels and of the older hops over neighbour lists: the second half of the observations.

Features of r_ij depend on one entry of a list alone, so one loop computes them for all entries of a batch. Then each
agent sums its entries in the order of its list: these features in float32, v_ij in float64, and the older hops of the
senders in float32. A sum depends on its list alone, so neither agents out of reach nor the number of threads change a
bit of it.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numba import config
from numba.core.compiler_lock import global_compiler_lock

from equiflock._runtime.jit import Array, Function, Index, inline_kernel, kernel
from equiflock.features import PAPER_FEATURES
from equiflock.observations.feature_weights import MIN_DISTANCE
from equiflock.observations.neighbour_lists import NeighbourLists, Records, RuleResult

# Kernels compiled with LLVM's SLP vectoriser.
#
# LLVM has two vectorisers: one turns loops into vector instructions, the other (SLP) adjacent statements, such as sums
# of p0, p1, p2 .. over records in which these are adjacent in memory. Numba enables the second only with the setting
# NUMBA_SLP_VECTORIZE. Neither changes the order of a sum, so results are bit-identical with and without it.

SLP_SETTING = "SLP_VECTORIZE"
"""The name in `numba.config`; in versions of Numba without it, kernels are merely slower."""


def slp_kernel(function: Function) -> Function:
    """Compile `function` at its first call like any kernel, with both vectorisers."""
    compiled: Any = kernel(function)
    if not hasattr(compiled, "compile"):  # under NUMBA_DISABLE_JIT=1
        return cast(Function, compiled)
    compile_plainly = compiled.compile

    def compile_wide(signature: Any) -> Any:
        # Under this lock Numba compiles one function at a time, so no other function is compiled with the setting.
        with global_compiler_lock:
            before = getattr(config, SLP_SETTING, 0)
            setattr(config, SLP_SETTING, 1)
            try:
                return compile_plainly(signature)
            finally:
                setattr(config, SLP_SETTING, before)

    compiled.compile = compile_wide
    return cast(Function, compiled)


PAPER_CHANNELS = len(PAPER_FEATURES)
COLUMNS_PER_PASS = 12
"""Columns of the older hops summed in one pass over a list: both older hops of K = 3 in the plane."""
MIN_SQUARED_DISTANCE = np.float32(MIN_DISTANCE * MIN_DISTANCE)
ZERO, UNIT = np.float32(0.0), np.float32(1.0)
# Columns are unsigned: a signed one that is not constant is tested for its sign at every use.
_, U1, U2, U3, U4, U5, U6, U7, U8, U9, U10, U11 = map(np.uintp, range(COLUMNS_PER_PASS))


@inline_kernel
def weigh_offsets(D: Index, offsets: Array, entries: Index) -> None:
    """Replace r_ij in rows 0 .. D - 1 of all entries by r_ij / |r_ij|^2; write r_ij / |r_ij|^4 to rows D .. 2 D - 1."""
    for e in range(entries):
        x, y, z = offsets[0, e], offsets[1, e], offsets[2, e] if D == 3 else ZERO
        # Below MIN_DISTANCE the weights stay finite, and r_ij = 0 gives exactly zero.
        per_square = UNIT / max(x * x + y * y + z * z, MIN_SQUARED_DISTANCE)
        # Multiply twice by 1 / |r_ij|^2: |r_ij|^4 would leave the range of float32 much sooner.
        x, y, z = x * per_square, y * per_square, z * per_square
        offsets[0, e], offsets[1, e] = x, y
        offsets[D, e], offsets[D + 1, e] = x * per_square, y * per_square
        if D == 3:
            offsets[2, e], offsets[5, e] = z, z * per_square


@inline_kernel
def _store_means(p: tuple[Any, ...], scale: Any, line: Array, observations: Array, i: Index, at: Index) -> None:
    """Write twelve sums times `scale` into observations[i, at :], as many as fit; `line` is memory for twelve."""
    # Through a line of memory, so that the sums are always adjacent.
    line[0], line[1], line[2], line[3] = p[0] * scale, p[1] * scale, p[2] * scale, p[3] * scale
    line[4], line[5], line[6], line[7] = p[4] * scale, p[5] * scale, p[6] * scale, p[7] * scale
    line[8], line[9], line[10], line[11] = p[8] * scale, p[9] * scale, p[10] * scale, p[11] * scale
    for n in range(min(COLUMNS_PER_PASS, observations.shape[1] - at)):
        observations[i, at + n] = line[n]


@inline_kernel
def _aggregate_paper_nd(
    D: Index,
    is_measured: bool,
    first: Index,
    agents: Index,
    order: Array,
    records: Records,
    lists: NeighbourLists,
    rule_result: RuleResult,
    is_mean: bool,
    C: Index,
    observations: Array,
    vectors: Array,
) -> None:
    """Write the paper's channels of hop 1, and the first twelve columns of the older hops, of a batch of agents.

    The offsets must be weighed by `weigh_offsets`. v_ij is from rows D .. 2 D - 1 of `vectors` if `is_measured`, else
    from the records, with the virtual velocity of obstacle agents; `vectors` is then unused.
    """
    record_velocities, older_hops = records.velocities, records.older_hops
    senders, offsets, ends = lists
    virtual_velocities, obstacle_counts = rule_result.virtual_velocities, rule_result.obstacle_counts
    older_size, line = observations.shape[1] - C * D, np.empty(COLUMNS_PER_PASS, np.float32)
    begin = np.uintp(0)
    for a in range(agents):
        s, end = first + a, ends[a]
        # Sums of v_ij (v), of r_ij / |r_ij|^4 (a) and r_ij / |r_ij|^2 (b), and of twelve columns of the older hops (p).
        u, v, w = record_velocities[s, 0], record_velocities[s, 1], record_velocities[s, 2] if D == 3 else 0.0
        v0, v1, v2 = 0.0, 0.0, 0.0
        # The loop sums v_ij = v_i for obstacle agents; start with the difference to the virtual velocity.
        if not is_measured:
            v0 = virtual_velocities[a, 0] - obstacle_counts[a] * u
            v1 = virtual_velocities[a, 1] - obstacle_counts[a] * v
        a0 = a1 = a2 = b0 = b1 = b2 = ZERO
        p0 = p1 = p2 = p3 = p4 = p5 = p6 = p7 = p8 = p9 = p10 = p11 = ZERO
        for e in range(begin, end):
            j = np.uintp(senders[e])
            if is_measured:
                v0, v1 = v0 + vectors[D, e], v1 + vectors[D + 1, e]
            else:
                v0, v1 = v0 + (u - record_velocities[j, 0]), v1 + (v - record_velocities[j, 1])
            b0, b1 = b0 + offsets[0, e], b1 + offsets[1, e]
            a0, a1 = a0 + offsets[D, e], a1 + offsets[D + 1, e]
            if D == 3:
                v2 += vectors[5, e] if is_measured else w - record_velocities[j, 2]
                b2, a2 = b2 + offsets[2, e], a2 + offsets[5, e]
            if older_size > 0:
                p0, p1, p2, p3 = (
                    p0 + older_hops[j, 0],
                    p1 + older_hops[j, 1],
                    p2 + older_hops[j, 2],
                    p3 + older_hops[j, 3],
                )
                p4, p5, p6, p7 = (
                    p4 + older_hops[j, 4],
                    p5 + older_hops[j, 5],
                    p6 + older_hops[j, 6],
                    p7 + older_hops[j, 7],
                )
                p8, p9, p10, p11 = (
                    p8 + older_hops[j, 8],
                    p9 + older_hops[j, 9],
                    p10 + older_hops[j, 10],
                    p11 + older_hops[j, 11],
                )
        # Hop 1 is the sum or the mean, hops 2 .. K are means.
        per_degree = 1.0 / float(max(end - begin, np.uintp(1)))
        scale = per_degree if is_mean else 1.0
        i, single = order[s], np.float32(scale)
        observations[i, 0], observations[i, 1] = v0 * scale, v1 * scale
        observations[i, D], observations[i, D + 1] = a0 * single, a1 * single
        observations[i, 2 * D], observations[i, 2 * D + 1] = b0 * single, b1 * single
        if D == 3:
            observations[i, 2], observations[i, 5], observations[i, 8] = v2 * scale, a2 * single, b2 * single
        if older_size > 0:
            sums = p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11
            _store_means(sums, np.float32(per_degree), line, observations, i, C * D)
        begin = end


@slp_kernel
def average_older_hops(
    at: Index,
    column: Index,
    first: Index,
    agents: Index,
    order: Array,
    older_hops: Array,
    lists: NeighbourLists,
    observations: Array,
) -> None:
    """Write the means of twelve columns of the senders' older hops, from `column` on, into observations[:, at :].

    Only the rows of a batch of agents, whose records begin with `first`, are written; without neighbours the mean is 0.
    """
    senders, ends = lists.senders, lists.ends
    line = np.empty(COLUMNS_PER_PASS, np.float32)
    begin = np.uintp(0)
    for a in range(agents):
        end = ends[a]
        p0 = p1 = p2 = p3 = p4 = p5 = p6 = p7 = p8 = p9 = p10 = p11 = ZERO
        for e in range(begin, end):
            j, c = np.uintp(senders[e]), np.uintp(column)
            p0, p1, p2 = p0 + older_hops[j, c], p1 + older_hops[j, c + U1], p2 + older_hops[j, c + U2]
            p3, p4, p5 = p3 + older_hops[j, c + U3], p4 + older_hops[j, c + U4], p5 + older_hops[j, c + U5]
            p6, p7, p8 = p6 + older_hops[j, c + U6], p7 + older_hops[j, c + U7], p8 + older_hops[j, c + U8]
            p9, p10, p11 = p9 + older_hops[j, c + U9], p10 + older_hops[j, c + U10], p11 + older_hops[j, c + U11]
        sums = p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11
        per_degree = np.float32(1.0 / float(max(end - begin, np.uintp(1))))
        _store_means(sums, per_degree, line, observations, order[first + a], at)
        begin = end


@slp_kernel
def aggregate_paper_channels(
    first: Index,
    agents: Index,
    order: Array,
    records: Records,
    lists: NeighbourLists,
    rule_result: RuleResult,
    is_mean: bool,
    C: Index,
    observations: Array,
    axes: tuple[Index, ...],
) -> None:
    """Write the paper's three channels of hop 1, and the older hops of all C channels, of a batch of agents.

    Further channels of hop 1 are left as they are.

    Args:
        first: the record of the first agent of the batch.
        agents: the size of the batch.
        order: record s is agent order[s], whose row of `observations` is written.
        records: of all agents.
        lists: the neighbours of the batch, with r_ij; the offsets are overwritten.
        rule_result: the result of the obstacle rule for the batch.
        is_mean: whether hop 1 is the mean rather than the sum.
        C: the number of channels, of which the paper's come first.
        observations: (N, K * C * D).
        axes: one number for each dimension.
    """
    # The constants let the compiler omit the third coordinate in the plane, and the measured vectors.
    entries, offsets, velocities = lists.ends[agents - np.uintp(1)], lists.offsets, records.velocities
    if len(axes) == 2:
        weigh_offsets(2, offsets, entries)
        _aggregate_paper_nd(
            2, False, first, agents, order, records, lists, rule_result, is_mean, C, observations, velocities
        )
    else:
        weigh_offsets(3, offsets, entries)
        _aggregate_paper_nd(
            3, False, first, agents, order, records, lists, rule_result, is_mean, C, observations, velocities
        )
    _average_further_hops(first, agents, order, records, lists, C, observations)


@slp_kernel
def aggregate_measured_channels(
    first: Index,
    agents: Index,
    order: Array,
    records: Records,
    lists: NeighbourLists,
    rule_result: RuleResult,
    is_mean: bool,
    observations: Array,
    vectors: Array,
    axes: tuple[Index, ...],
) -> None:
    """Do what `aggregate_paper_channels` does for C = 3, with v_ij in rows D .. 2 D - 1 of vectors (2 D, entries)."""
    entries, offsets = lists.ends[agents - np.uintp(1)], lists.offsets
    if len(axes) == 2:
        weigh_offsets(2, offsets, entries)
        _aggregate_paper_nd(
            2, True, first, agents, order, records, lists, rule_result, is_mean, PAPER_CHANNELS, observations, vectors
        )
    else:
        weigh_offsets(3, offsets, entries)
        _aggregate_paper_nd(
            3, True, first, agents, order, records, lists, rule_result, is_mean, PAPER_CHANNELS, observations, vectors
        )
    _average_further_hops(first, agents, order, records, lists, PAPER_CHANNELS, observations)


@inline_kernel
def _average_further_hops(
    first: Index,
    agents: Index,
    order: Array,
    records: Records,
    lists: NeighbourLists,
    C: Index,
    observations: Array,
) -> None:
    """Average the columns of the older hops after the first pass: more than three hops or channels, or D = 3."""
    one_hop = C * records.velocities.shape[1]
    for column in range(COLUMNS_PER_PASS, observations.shape[1] - one_hop, COLUMNS_PER_PASS):
        average_older_hops(one_hop + column, column, first, agents, order, records.older_hops, lists, observations)
