"""Sums of channels and of the older hops over neighbour lists: the second half of computing observations.

A feature depends on one entry of a list alone, so features, or their weights, are computed for all entries of a batch
at once. Then each agent sums its entries in the order of its list: the paper's features of r_ij and the older hops of
the senders in float32, v_ij and declared features in float64. A sum depends on its list alone, so neither agents out of
reach nor the number of threads change a bit of it.

The paper's three channels have a faster kernel than declared ones. Both are compiled for D = 2 or 3 as a constant, so
that the compiler omits the third coordinate in the plane; `axes` has one number for each dimension.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numba import config
from numba.core.compiler_lock import global_compiler_lock

from equiflock._runtime.jit import Array, Function, Index, inline_kernel, kernel
from equiflock.features import PAPER_FEATURES
from equiflock.flock import NO_GROUP, OBSTACLE
from equiflock.observations.feature_weights import (
    AMONG_ALL,
    AMONG_COLUMN,
    AMONG_OBSTACLES,
    AMONG_SAME,
    IS_MEAN,
    IS_VELOCITY,
    LOOP_ADDRESS,
    MIN_DISTANCE,
    OPTIONS_ADDRESS,
    call_loop,
)
from equiflock.observations.neighbour_lists import COLUMNS_PER_PASS, Batch, FeatureBuffers, Records

PAPER_CHANNELS = len(PAPER_FEATURES)
LARGEST_SUM = 1e30
"""The largest sum of features: beyond it a sum of sums could overflow float32."""
MIN_SQUARED_DISTANCE = np.float32(MIN_DISTANCE * MIN_DISTANCE)
ZERO, UNIT = np.float32(0.0), np.float32(1.0)
# Columns are unsigned: a signed one that is not constant is tested for its sign at every use.
U0, U1, U2, U3, U4, U5, U6, U7, U8, U9, U10, U11, U12, U13, U14, U15 = map(np.uintp, range(COLUMNS_PER_PASS))
U16 = np.uintp(COLUMNS_PER_PASS)
NO_SUMS = (ZERO,) * COLUMNS_PER_PASS
"""Sums of columns over an empty list."""
SLP_SETTING = "SLP_VECTORIZE"
"""The name in `numba.config`; in versions of Numba without it, kernels are merely slower."""


def slp_kernel(function: Function) -> Function:
    """Compile `function` at its first call like any kernel, with both of LLVM's vectorisers.

    One turns loops into vector instructions, the other (SLP) adjacent statements, such as sums of p0, p1, p2 .. over
    records in which these are adjacent in memory. Numba enables the second only with a setting. Neither changes the
    order of a sum, so results are bit-identical with and without it.
    """
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


@slp_kernel
def aggregate_paper_channels(
    batch: Batch, records: Records, is_mean: bool, C: Index, observations: Array, axes: tuple[Index, ...]
) -> None:
    """Write the paper's three channels of hop 1, and the older hops of all C channels, of a batch of agents.

    Rows of `observations` (N, K * C * D) are agents. Further channels of hop 1 are left as they are; the offsets of the
    lists are overwritten.
    """
    if len(axes) == 2:
        _aggregate_paper_nd(2, False, batch, records, is_mean, C, observations)
    else:
        _aggregate_paper_nd(3, False, batch, records, is_mean, C, observations)


@slp_kernel
def aggregate_measured_channels(
    batch: Batch, records: Records, is_mean: bool, observations: Array, axes: tuple[Index, ...]
) -> None:
    """Do what `aggregate_paper_channels` does for C = 3, with v_ij from `batch.features`."""
    if len(axes) == 2:
        _aggregate_paper_nd(2, True, batch, records, is_mean, PAPER_CHANNELS, observations)
    else:
        _aggregate_paper_nd(3, True, batch, records, is_mean, PAPER_CHANNELS, observations)


@inline_kernel
def _aggregate_paper_nd(
    D: Index, is_measured: bool, batch: Batch, records: Records, is_mean: bool, C: Index, observations: Array
) -> None:
    """Write the paper's channels of hop 1, and the older hops, of a batch of agents.

    v_ij is from `batch.features` if `is_measured`, else from the records, with the virtual velocity of obstacle agents.
    """
    record_velocities, older_hops, order = records.velocities, records.older_hops, records.order
    senders, offsets, ends = batch.lists
    vectors = batch.features.vectors
    virtual_velocities, _, obstacle_counts = batch.rule_result
    _weigh_offsets(D, offsets, ends[batch.agents - np.uintp(1)])
    older_size, line = observations.shape[1] - C * D, np.empty(COLUMNS_PER_PASS, np.float32)
    begin = np.uintp(0)
    for a in range(batch.agents):
        s, end = batch.first + a, ends[a]
        # Sums of v_ij (v), of r_ij / |r_ij|^4 (a) and r_ij / |r_ij|^2 (b), and of the older hops (p, q).
        u, v, w = record_velocities[s, 0], record_velocities[s, 1], record_velocities[s, 2] if D == 3 else 0.0
        v0, v1, v2 = 0.0, 0.0, 0.0
        # The loop sums v_ij = v_i for obstacle agents; start with the difference to the virtual velocity.
        if not is_measured:
            v0 = virtual_velocities[a, 0] - obstacle_counts[a] * u
            v1 = virtual_velocities[a, 1] - obstacle_counts[a] * v
        a0 = a1 = a2 = b0 = b1 = b2 = ZERO
        p, q = NO_SUMS, NO_SUMS
        for e in range(begin, end):
            j = np.uintp(senders[e])
            if is_measured:
                v0, v1 = v0 + vectors[e, D], v1 + vectors[e, D + 1]
            else:
                v0, v1 = v0 + (u - record_velocities[j, 0]), v1 + (v - record_velocities[j, 1])
            b0, b1 = b0 + offsets[0, e], b1 + offsets[1, e]
            a0, a1 = a0 + offsets[D, e], a1 + offsets[D + 1, e]
            if D == 3:
                v2 += vectors[e, 5] if is_measured else w - record_velocities[j, 2]
                b2, a2 = b2 + offsets[2, e], a2 + offsets[5, e]
            if older_size > 0:
                p = _add_columns(p, older_hops, j, U0)
            if older_size > COLUMNS_PER_PASS:
                q = _add_columns(q, older_hops, j, U16)
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
            _store_means(p, np.float32(per_degree), line, observations, i, C * D)
        if older_size > COLUMNS_PER_PASS:
            _store_means(q, np.float32(per_degree), line, observations, i, C * D + COLUMNS_PER_PASS)
        begin = end
    # The columns of the older hops after the first two passes.
    for column in range(2 * COLUMNS_PER_PASS, older_size, COLUMNS_PER_PASS):
        average_older_hops(C * D + column, column, batch, records, observations)


@inline_kernel
def _weigh_offsets(D: Index, offsets: Array, entries: Index) -> None:
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
def _add_columns(p: tuple[Any, ...], older_hops: Array, j: Index, c: Index) -> tuple[Any, ...]:
    """Return the sixteen sums p plus the columns c .. c + 15 of record j."""
    return (
        p[0] + older_hops[j, c],
        p[1] + older_hops[j, c + U1],
        p[2] + older_hops[j, c + U2],
        p[3] + older_hops[j, c + U3],
        p[4] + older_hops[j, c + U4],
        p[5] + older_hops[j, c + U5],
        p[6] + older_hops[j, c + U6],
        p[7] + older_hops[j, c + U7],
        p[8] + older_hops[j, c + U8],
        p[9] + older_hops[j, c + U9],
        p[10] + older_hops[j, c + U10],
        p[11] + older_hops[j, c + U11],
        p[12] + older_hops[j, c + U12],
        p[13] + older_hops[j, c + U13],
        p[14] + older_hops[j, c + U14],
        p[15] + older_hops[j, c + U15],
    )


@inline_kernel
def _store_means(p: tuple[Any, ...], scale: Any, line: Array, observations: Array, i: Index, at: Index) -> None:
    """Write sixteen sums times `scale` into observations[i, at :], as many as fit; `line` is memory for sixteen."""
    # Through a line of memory, so that the sums are always adjacent.
    line[0], line[1], line[2], line[3] = p[0] * scale, p[1] * scale, p[2] * scale, p[3] * scale
    line[4], line[5], line[6], line[7] = p[4] * scale, p[5] * scale, p[6] * scale, p[7] * scale
    line[8], line[9], line[10], line[11] = p[8] * scale, p[9] * scale, p[10] * scale, p[11] * scale
    line[12], line[13], line[14], line[15] = p[12] * scale, p[13] * scale, p[14] * scale, p[15] * scale
    for n in range(min(COLUMNS_PER_PASS, observations.shape[1] - at)):
        observations[i, at + n] = line[n]


@slp_kernel
def average_older_hops(at: Index, column: Index, batch: Batch, records: Records, observations: Array) -> None:
    """Write the means of sixteen columns of the senders' older hops, from `column` on, into observations[:, at :].

    Only the rows of the batch are written; without neighbours the mean is 0.
    """
    # Local arrays: Numba counts references whenever an array is taken out of a tuple.
    older_hops, order, senders, ends = records.older_hops, records.order, batch.lists.senders, batch.lists.ends
    line = np.empty(COLUMNS_PER_PASS, np.float32)
    begin = np.uintp(0)
    for a in range(batch.agents):
        end = ends[a]
        p = NO_SUMS
        for e in range(begin, end):
            p = _add_columns(p, older_hops, np.uintp(senders[e]), np.uintp(column))
        per_degree = np.float32(1.0 / float(max(end - begin, np.uintp(1))))
        _store_means(p, per_degree, line, observations, order[batch.first + a], at)
        begin = end


@kernel
def aggregate_declared_channels(
    batch: Batch,
    records: Records,
    table: Array,
    paper_channel_count: Index,
    is_measured: bool,
    observations: Array,
    axes: tuple[Index, ...],
) -> bool:
    """Write the channels of a `ChannelTable`, and the older hops, of a batch of agents.

    The first `paper_channel_count` channels, and if there are any the older hops, are left as they are:
    `aggregate_paper_channels` has written them. The vectors of `batch.features` are those of the radio if
    `is_measured`. Return False if a sum is not finite or too large.
    """
    D = len(axes)
    fine, has_products = True, False
    for c in range(paper_channel_count, len(table)):
        # The mean and the sum of the same feature share one sum.
        b = _find_twin_channel(table, c)
        if b < c:
            fine &= _convert_aggregation(D, b, c, table[c, IS_MEAN] > 0, batch, records.order, observations)
        elif table[c, AMONG_COLUMN] == AMONG_OBSTACLES and not records.has_obstacles:
            _clear_channel(D, c, batch, records.order, observations)
        else:
            # Compute r_ij and v_ij, unless they are measured, and the arguments of weights for all entries, once.
            if not (is_measured or has_products):
                _compute_vectors(batch, records, axes)
                if records.has_obstacles:
                    _replace_obstacle_velocities(batch, records)
            if not has_products:
                _compute_products(batch.lists.ends[batch.agents - U1], batch.features, axes)
                has_products = True
            fine &= _sum_channel(c, batch, records, table[c], observations, axes)
    # Hops 2 .. K: means over all neighbours of their z^(k-1) of the step before.
    if paper_channel_count == 0:
        one_hop = len(table) * D
        for column in range(0, observations.shape[1] - one_hop, COLUMNS_PER_PASS):
            average_older_hops(one_hop + column, column, batch, records, observations)
    return fine


@slp_kernel
def _compute_vectors(batch: Batch, records: Records, axes: tuple[Index, ...]) -> None:
    """Write r_ij and v_ij = v_i - v_j of all entries of a batch into its features."""
    record_positions, record_velocities = records.positions, records.velocities
    senders, ends, vectors = batch.lists.senders, batch.lists.ends, batch.features.vectors
    D, begin = np.uintp(len(axes)), np.uintp(0)
    for a in range(batch.agents):
        s, end = batch.first + a, ends[a]
        x, y, u, v = record_positions[0, s], record_positions[1, s], record_velocities[s, 0], record_velocities[s, 1]
        for e in range(begin, end):
            j = np.uintp(senders[e])
            vectors[e, 0], vectors[e, 1] = x - record_positions[0, j], y - record_positions[1, j]
            vectors[e, D], vectors[e, D + U1] = u - record_velocities[j, 0], v - record_velocities[j, 1]
            if len(axes) == 3:
                vectors[e, 2] = record_positions[2, s] - record_positions[2, j]
                vectors[e, 5] = record_velocities[s, 2] - record_velocities[j, 2]
        begin = end


@kernel
def _replace_obstacle_velocities(batch: Batch, records: Records) -> None:
    """Replace v_ij in the features by the orbit technique.

    That of the nearest obstacle agent becomes the virtual one, and that of other obstacle agents 0.
    """
    order, roles = records.order, records.roles
    senders, ends, vectors = batch.lists.senders, batch.lists.ends, batch.features.vectors
    virtual_velocities, nearest, obstacle_counts = batch.rule_result
    D, begin = np.uintp(records.velocities.shape[1]), np.uintp(0)
    for a in range(batch.agents):
        for e in range(begin, ends[a] if obstacle_counts[a] > 0 else begin):
            j = np.uintp(senders[e])
            if roles[order[j]] == OBSTACLE:
                vectors[e, D] = virtual_velocities[a, 0] if j == nearest[a] else 0.0
                vectors[e, D + U1] = virtual_velocities[a, 1] if j == nearest[a] else 0.0
        begin = ends[a]


@kernel
def _compute_products(entries: Index, features: FeatureBuffers, axes: tuple[Index, ...]) -> None:
    """Write |r_ij|^2, at least MIN_DISTANCE^2, and <r_ij, v_ij> of the first `entries` entries."""
    vectors, squares, inners = features.vectors, features.squares, features.inners
    D = len(axes)
    for e in range(entries):
        square, inner = 0.0, 0.0
        for d in range(D):
            square += vectors[e, d] * vectors[e, d]
            inner += vectors[e, d] * vectors[e, D + d]
        squares[e], inners[e] = max(square, MIN_DISTANCE * MIN_DISTANCE), inner


@slp_kernel
def _sum_channel(
    c: Index, batch: Batch, records: Records, row: Array, observations: Array, axes: tuple[Index, ...]
) -> bool:
    """Write channel c of hop 1, described by a row of the channel table, for a batch of agents.

    Neighbours that the `among` of the channel excludes count neither in the sum nor in the mean. Return False if a sum
    is not finite or above LARGEST_SUM.
    """
    order, groups, agents = records.order, records.groups, batch.agents
    senders, ends = batch.lists.senders, batch.lists.ends
    vectors, squares, inners, weights = batch.features
    D = len(axes)
    # The weights of all entries, and the first column k of the vectors that they multiply.
    entries = np.intp(ends[agents - np.uintp(1)])
    squares_address, inners_address, weights_address = squares.ctypes.data, inners.ctypes.data, weights.ctypes.data
    call_loop(  # type: ignore[call-arg]
        row[LOOP_ADDRESS], row[OPTIONS_ADDRESS], squares_address, inners_address, weights_address, entries
    )
    k, among, is_mean = (D if row[IS_VELOCITY] else 0), row[AMONG_COLUMN], row[IS_MEAN]
    fine, begin = True, np.uintp(0)
    for a in range(agents):
        i, end = order[batch.first + a], ends[a]
        x, y, z, counted = 0.0, 0.0, 0.0, np.uintp(0)
        for e in range(begin, end):
            # A channel among obstacle agents, which are in no group, the same group or other groups skips the rest.
            if among != AMONG_ALL:
                group = groups[order[senders[e]]]
                if (group == NO_GROUP) != (among == AMONG_OBSTACLES):
                    continue
                if among != AMONG_OBSTACLES and (group == groups[i]) != (among == AMONG_SAME):
                    continue
            x, y = x + weights[e] * vectors[e, k], y + weights[e] * vectors[e, k + 1]
            if D == 3:
                z += weights[e] * vectors[e, k + 2]
            counted += np.uintp(1)
        # A mean is over the agents counted; over none it is zero.
        scale = 1.0 / float(max(counted, np.uintp(1))) if is_mean else 1.0
        observations[i, c * D], observations[i, c * D + 1] = x * scale, y * scale
        if D == 3:
            observations[i, c * D + 2] = z * scale
        fine &= (abs(x) <= LARGEST_SUM) & (abs(y) <= LARGEST_SUM) & (abs(z) <= LARGEST_SUM)
        begin = end
    return fine


@inline_kernel
def _find_twin_channel(table: Array, c: Index) -> Index:
    """Return the channel before c with the other aggregation of the same feature over all neighbours, or c if none."""
    row = table[c]
    for b in range(c):
        earlier = table[b]
        same = earlier[LOOP_ADDRESS] == row[LOOP_ADDRESS] and earlier[OPTIONS_ADDRESS] == row[OPTIONS_ADDRESS]
        same = same and earlier[IS_VELOCITY] == row[IS_VELOCITY]
        same = same and earlier[AMONG_COLUMN] == row[AMONG_COLUMN] == AMONG_ALL
        if same and earlier[IS_MEAN] != row[IS_MEAN]:
            return b
    return c


@kernel
def _clear_channel(D: Index, c: Index, batch: Batch, order: Array, observations: Array) -> None:
    """Set channel c of a batch of agents to zero."""
    for a in range(batch.agents):
        for d in range(D):
            observations[order[batch.first + a], c * D + d] = 0.0


@kernel
def _convert_aggregation(
    D: Index, b: Index, c: Index, to_mean: bool, batch: Batch, order: Array, observations: Array
) -> bool:
    """Compute channel c, a mean if `to_mean`, from channel b of the same feature: the sum is the mean times |N_i|.

    Return False if a result is not finite or above LARGEST_SUM.
    """
    begin, fine, ends = np.uintp(0), True, batch.lists.ends
    for a in range(batch.agents):
        i, degree = order[batch.first + a], float(max(ends[a] - begin, np.uintp(1)))
        scale = 1.0 / degree if to_mean else degree
        for d in range(D):
            value = observations[i, b * D + d] * scale
            observations[i, c * D + d] = value
            fine &= abs(value) <= LARGEST_SUM
        begin = ends[a]
    return fine
