"""The kernel that adds up channels of any declaration, and the older hops, over lists.

What the weights of features are functions of is a number of an entry of a list alone, so it is computed for all entries
of a batch at once, and so are the weights. Then each agent adds up its own entries in the order of its list, features
in float64 and older hops in float32: every sum is that of its list, whatever the batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.flock import NO_GROUP, OBSTACLE
from equiflock.pairs.feature_weights import (
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
from equiflock.runtime.jit import Array, Index, inline_kernel, kernel
from equiflock.senses.paper_sums import COLUMNS_PER_PASS, average_older_hops

LARGEST_SUM = 1e30
"""Sums of features beyond this could overflow a sum of sums in float32."""


@kernel
def make_feature_buffers(entries: Index, D: Index) -> Any:
    """Memory for the features of a batch: r_ij and v_ij in rows (2 D, entries), |r_ij|^2, <r_ij, v_ij> and weights."""
    return np.empty((2 * D, entries)), (np.empty(entries), np.empty(entries), np.empty(entries))


@inline_kernel
def _compute_relative_nd(
    D: Index,
    first: Index,
    agents: Index,
    order: Array,
    records: Any,
    roles: Array,
    lists: Any,
    rule_result: Any,
    memory: Any,
) -> None:
    record_positions, record_velocities, _ = records
    senders, _, ends = lists
    taken, nearest, obstacle_counts = rule_result
    vectors, _ = memory
    begin = np.uintp(0)
    for a in range(agents):
        s = first + a
        for e in range(begin, ends[a]):
            # Relative position and velocity.
            j = np.uintp(senders[e])
            for d in range(D):
                vectors[d, e] = record_positions[d, s] - record_positions[d, j]
                vectors[D + d, e] = record_velocities[s, d] - record_velocities[j, d]
            # The orbit technique gives the nearest obstacle agent a relative velocity of its own, any others none.
            if obstacle_counts[a] > 0 and roles[order[j]] == OBSTACLE:
                vectors[D, e] = taken[a, 0] if j == nearest[a] else 0.0
                vectors[D + 1, e] = taken[a, 1] if j == nearest[a] else 0.0
        begin = ends[a]


@inline_kernel
def _compute_products_nd(D: Index, entries: Index, memory: Any) -> None:
    """|r_ij|^2 and <r_ij, v_ij> of all entries, of which weights are functions."""
    vectors, (squares, inners, _) = memory
    for e in range(entries):
        square, inner = 0.0, 0.0
        for d in range(D):
            square += vectors[d, e] * vectors[d, e]
            inner += vectors[d, e] * vectors[D + d, e]
        squares[e], inners[e] = max(square, MIN_DISTANCE * MIN_DISTANCE), inner


@inline_kernel
def _sum_channel_nd(
    D: Index,
    c: Index,
    first: Index,
    agents: Index,
    order: Array,
    groups: Array,
    lists: Any,
    row: Any,
    memory: Any,
    observations: Array,
) -> bool:
    senders, _, ends = lists
    vectors, (squares, inners, weights) = memory
    # The weights of all entries, and the first row of the vectors that they multiply.
    entries = np.intp(ends[agents - np.uintp(1)])
    known = squares.ctypes.data, inners.ctypes.data, weights.ctypes.data
    call_loop(row[LOOP_ADDRESS], row[OPTIONS_ADDRESS], known[0], known[1], known[2], entries)  # type: ignore[call-arg]
    k, whom, mean = (D if row[IS_VELOCITY] else 0), row[AMONG_COLUMN], row[IS_MEAN]
    fine, begin = True, np.uintp(0)
    for a in range(agents):
        i, end = order[first + a], ends[a]
        x, y, z, counted = 0.0, 0.0, 0.0, np.uintp(0)
        for e in range(begin, end):
            # A channel among obstacles, who are in no group, among the same group or others leaves the rest out.
            if whom != AMONG_ALL:
                its = groups[order[senders[e]]]
                if (its == NO_GROUP) != (whom == AMONG_OBSTACLES):
                    continue
                if whom != AMONG_OBSTACLES and (its == groups[i]) != (whom == AMONG_SAME):
                    continue
            x, y = x + weights[e] * vectors[k, e], y + weights[e] * vectors[k + 1, e]
            if D == 3:
                z += weights[e] * vectors[k + 2, e]
            counted += np.uintp(1)
        # A mean is over those counted; of nobody it is zero.
        scale = 1.0 / float(max(counted, np.uintp(1))) if mean else 1.0
        observations[i, c * D], observations[i, c * D + 1] = x * scale, y * scale
        if D == 3:
            observations[i, c * D + 2] = z * scale
        fine &= (abs(x) <= LARGEST_SUM) & (abs(y) <= LARGEST_SUM) & (abs(z) <= LARGEST_SUM)
        begin = end
    return fine


@inline_kernel
def _find_twin_channel(table: Array, c: Index) -> Index:
    """The channel before c that is the other aggregation of the same feature among all who are heard; c if none is."""
    row = table[c]
    for b in range(c):
        other = table[b]
        same = other[LOOP_ADDRESS] == row[LOOP_ADDRESS] and other[OPTIONS_ADDRESS] == row[OPTIONS_ADDRESS]
        same = same and other[IS_VELOCITY] == row[IS_VELOCITY] and other[AMONG_COLUMN] == row[AMONG_COLUMN] == AMONG_ALL
        if same and other[IS_MEAN] != row[IS_MEAN]:
            return b
    return c


@kernel
def _convert_aggregation(
    D: Index,
    b: Index,
    c: Index,
    to_mean: bool,
    first: Index,
    agents: Index,
    order: Array,
    ends: Array,
    observations: Array,
) -> bool:
    """Make channel c, the mean if `to_mean`, of channel b, of the same feature: a sum is a mean times the degree."""
    begin, fine = np.uintp(0), True
    for a in range(agents):
        i, degree = order[first + a], float(max(ends[a] - begin, np.uintp(1)))
        scale = 1.0 / degree if to_mean else degree
        for d in range(D):
            value = observations[i, b * D + d] * scale
            observations[i, c * D + d] = value
            fine &= abs(value) <= LARGEST_SUM
        begin = ends[a]
    return fine


@inline_kernel
def _sum_channels_nd(
    D: Index,
    first: Index,
    agents: Index,
    order: Array,
    records: Any,
    roles_groups: Any,
    lists: Any,
    rule_result: Any,
    table: Array,
    paper_channel_count: Index,
    obstacles: bool,
    observations: Array,
    memory: Any,
    is_measured: bool,
) -> bool:
    roles, groups = roles_groups
    fine, compared = True, False
    for c in range(paper_channel_count, len(table)):
        # A mean and a sum of the same feature are one sum.
        b = _find_twin_channel(table, c)
        if b < c:
            fine &= _convert_aggregation(D, b, c, table[c, IS_MEAN] > 0, first, agents, order, lists[2], observations)
        elif table[c, AMONG_COLUMN] == AMONG_OBSTACLES and not obstacles:
            for a in range(agents):
                observations[order[first + a], c * D : (c + 1) * D] = 0.0
        else:
            # r_ij and v_ij of all entries, unless they are measured, and what weights are functions of, once.
            if not (is_measured or compared):
                _compute_relative_nd(D, first, agents, order, records, roles, lists, rule_result, memory)
            if not compared:
                _compute_products_nd(D, lists[2][agents - np.uintp(1)], memory)
                compared = True
            fine &= _sum_channel_nd(D, c, first, agents, order, groups, lists, table[c], memory, observations)
    return fine


@kernel
def aggregate_declared_channels(
    first: Index,
    agents: Index,
    order: Array,
    records: Any,
    roles_groups: Any,
    lists: Any,
    rule_result: Any,
    table: Array,
    paper_channel_count: Index,
    obstacles: bool,
    observations: Array,
    memory: Any,
    is_measured: bool,
    axes: Any,
) -> bool:
    """Write into `observations` what a batch of agents, whose records begin with `first`, learns by the channels of a table.

    Its arguments are those of `aggregate_paper_channels`, with the channels and memory, whose vectors are r_ij and v_ij already if
    `is_measured`. The first `paper_channel_count` channels are there already, and with them the older hops. `obstacles` tells whether
    there are any. False if a sum is not finite or too large.
    """
    C, D = len(table), records[1].shape[1]
    # The constant lets the compiler leave the third coordinate out in the plane.
    if len(axes) == 2:
        fine = _sum_channels_nd(
            2,
            first,
            agents,
            order,
            records,
            roles_groups,
            lists,
            rule_result,
            table,
            paper_channel_count,
            obstacles,
            observations,
            memory,
            is_measured,
        )
    else:
        fine = _sum_channels_nd(
            3,
            first,
            agents,
            order,
            records,
            roles_groups,
            lists,
            rule_result,
            table,
            paper_channel_count,
            obstacles,
            observations,
            memory,
            is_measured,
        )
    # Hops 2 .. K: means over all those heard of what they knew a step before.
    if paper_channel_count == 0:
        for column in range(0, observations.shape[1] - C * D, COLUMNS_PER_PASS):
            average_older_hops(C * D + column, column, first, agents, order, records[2], lists, observations)
    return fine
