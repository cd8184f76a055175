"""The paper's three channels and the older hops, added up over lists: the second half of making observations.

Features of r_ij are numbers of an entry of a list alone, so they are computed for all entries of a batch in one loop.
Then each agent adds up its own entries in the order of its list: these features in float32, v_ij in float64, and what
the senders knew a step ago in float32. Every sum is that of its list, whatever the batch, so nothing out of reach and
no number of threads changes a bit of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.features import PAPER_FEATURES
from equiflock.pairs.feature_weights import MIN_DISTANCE
from equiflock.runtime.jit import Array, Index, inline_kernel
from equiflock.senses.slp import slp_kernel

PAPER_CHANNELS = len(PAPER_FEATURES)
COLUMNS_PER_PASS = 12
"""Numbers of the past that are added up in one pass over a list: both older hops of K = 3 in the plane."""
MIN_SQUARED_DISTANCE = np.float32(MIN_DISTANCE * MIN_DISTANCE)
ZERO, UNIT = np.float32(0.0), np.float32(1.0)
# Columns are unsigned: a signed one that is not a constant is tested for its sign wherever it is used.
_, U1, U2, U3, U4, U5, U6, U7, U8, U9, U10, U11 = map(np.uintp, range(COLUMNS_PER_PASS))


@inline_kernel
def weigh_offsets(D: Index, offsets: Array, entries: Index) -> None:
    """Turn r_ij of all entries, rows 0 .. D, into r_ij / |r_ij|^2, and write r_ij / |r_ij|^4 into the rows after."""
    for e in range(entries):
        x, y, z = offsets[0, e], offsets[1, e], offsets[2, e] if D == 3 else ZERO
        # Below the shortest distance the weights stay finite, and r_ij = 0 gives exactly zero.
        per_square = UNIT / max(x * x + y * y + z * z, MIN_SQUARED_DISTANCE)
        # One weight after the other: |r_ij|^4 by itself leaves the range of float32 much sooner.
        x, y, z = x * per_square, y * per_square, z * per_square
        offsets[0, e], offsets[1, e] = x, y
        offsets[D, e], offsets[D + 1, e] = x * per_square, y * per_square
        if D == 3:
            offsets[2, e], offsets[5, e] = z, z * per_square


@inline_kernel
def _store_means(p: Any, scale: Any, line: Array, observations: Array, i: Index, at: Index) -> None:
    """Write twelve sums, times `scale`, into now[i, at : ], as many as there is room for."""
    # By way of a line of memory, so that the sums are neighbours in any case.
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
    records: Any,
    lists: Any,
    rule_result: Any,
    mean: bool,
    C: Index,
    observations: Array,
    vectors: Array,
) -> None:
    _, record_velocities, older_hops = records
    senders, offsets, ends = lists
    taken, _, obstacle_counts = rule_result
    older_size, line = observations.shape[1] - C * D, np.empty(COLUMNS_PER_PASS, np.float32)
    begin = np.uintp(0)
    for a in range(agents):
        s, end = first + a, ends[a]
        # The sums of v_ij, of r_ij / |r_ij|^4 and r_ij / |r_ij|^2, and of the first twelve numbers of the past.
        u, v, w = record_velocities[s, 0], record_velocities[s, 1], record_velocities[s, 2] if D == 3 else 0.0
        v0, v1, v2 = 0.0, 0.0, 0.0
        # For an obstacle agent v_ij = v_i is summed below; the difference to what the orbit technique says comes first.
        if not is_measured:
            v0, v1 = taken[a, 0] - obstacle_counts[a] * u, taken[a, 1] - obstacle_counts[a] * v
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
        scale = per_degree if mean else 1.0
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
    lists: Any,
    observations: Array,
) -> None:
    """Write into now[:, at : ] the means of twelve more numbers of the past, from `column` on."""
    senders, _, ends = lists
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
    records: Any,
    lists: Any,
    rule_result: Any,
    mean: bool,
    C: Index,
    observations: Array,
    axes: Any,
) -> None:
    """Write into `observations` what a batch of agents, whose records begin with `first`, learns by the paper's three channels.

    And by the older hops of all C channels; of hop 1, channels after the first three are left as they are.

    Args:
        first: the record of the first.
        agents: how many.
        order: record s is agent order[s], whose row of `observations` is written.
        records: of all agents.
        lists: whom each of the batch hears, with r_ij; the offsets are overwritten.
        rule_result: what the obstacle rule says of each of the batch.
        mean: whether hop 1 is the mean rather than the sum.
        C: how many channels there are, of which the paper's come first.
        observations: (N, K * C * D).
        axes: one number for each dimension.
    """
    # The constants let the compiler leave the third coordinate out in the plane, and what is measured nowhere.
    entries = lists[2][agents - np.uintp(1)]
    if len(axes) == 2:
        weigh_offsets(2, lists[1], entries)
        _aggregate_paper_nd(
            2, False, first, agents, order, records, lists, rule_result, mean, C, observations, records[1]
        )
    else:
        weigh_offsets(3, lists[1], entries)
        _aggregate_paper_nd(
            3, False, first, agents, order, records, lists, rule_result, mean, C, observations, records[1]
        )
    _average_further_hops(first, agents, order, records, lists, C, observations)


@slp_kernel
def aggregate_measured_channels(
    first: Index,
    agents: Index,
    order: Array,
    records: Any,
    lists: Any,
    rule_result: Any,
    mean: bool,
    observations: Array,
    vectors: Array,
    axes: Any,
) -> None:
    """What `aggregate_paper_channels` does, with v_ij from the rows D .. 2 D of `vectors` (2 D, entries), as they were measured."""
    entries = lists[2][agents - np.uintp(1)]
    if len(axes) == 2:
        weigh_offsets(2, lists[1], entries)
        _aggregate_paper_nd(
            2, True, first, agents, order, records, lists, rule_result, mean, PAPER_CHANNELS, observations, vectors
        )
    else:
        weigh_offsets(3, lists[1], entries)
        _aggregate_paper_nd(
            3, True, first, agents, order, records, lists, rule_result, mean, PAPER_CHANNELS, observations, vectors
        )
    _average_further_hops(first, agents, order, records, lists, PAPER_CHANNELS, observations)


@inline_kernel
def _average_further_hops(
    first: Index, agents: Index, order: Array, records: Any, lists: Any, C: Index, observations: Array
) -> None:
    """Add up further numbers of the past: there may be more hops than three, more channels, or three dimensions."""
    one_hop = C * records[1].shape[1]
    for column in range(COLUMNS_PER_PASS, observations.shape[1] - one_hop, COLUMNS_PER_PASS):
        average_older_hops(one_hop + column, column, first, agents, order, records[2], lists, observations)
