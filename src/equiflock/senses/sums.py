"""The kernel that adds up channels of any declaration, and the older hops, over lists.

What the weights of features are functions of is a number of an entry of a list alone, so it is computed for all entries
of a batch at once, and so are the weights. Then each agent adds up its own entries in the order of its list, features
in float64 and older hops in float32: every sum is that of its list, whatever the batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.flock import NO_GROUP, OBSTACLE
from equiflock.pairs.weights import (
    ADDRESS,
    ALL,
    IS_MEAN,
    OBSTACLES,
    OF_VELOCITY,
    OPTIONS,
    SAME,
    SHORTEST,
    WHOM,
    call_loop,
)
from equiflock.runtime.jit import Array, Index, inlined, kernel
from equiflock.senses.paper_sums import GROUP, add_older

LARGEST_SUM = 1e30
"""Sums of features beyond this could overflow a sum of sums in float32."""


@kernel
def feature_memory(entries: Index, D: Index) -> Any:
    """Memory for the features of a batch: r_ij and v_ij in rows (2 D, entries), |r_ij|^2, <r_ij, v_ij> and weights."""
    return np.empty((2 * D, entries)), (np.empty(entries), np.empty(entries), np.empty(entries))


@inlined
def _compare_of(
    D: Index, first: Index, agents: Index, order: Array, records: Any, roles: Array, lists: Any, rule: Any, memory: Any
) -> None:
    place, motion, _ = records
    senders, _, ends = lists
    taken, nearest, rims = rule
    vectors, _ = memory
    begin = np.uintp(0)
    for a in range(agents):
        s = first + a
        for e in range(begin, ends[a]):
            # Relative position and velocity.
            j = np.uintp(senders[e])
            for d in range(D):
                vectors[d, e] = place[d, s] - place[d, j]
                vectors[D + d, e] = motion[s, d] - motion[j, d]
            # The orbit technique gives the nearest obstacle agent a relative velocity of its own, any others none.
            if rims[a] > 0 and roles[order[j]] == OBSTACLE:
                vectors[D, e] = taken[a, 0] if j == nearest[a] else 0.0
                vectors[D + 1, e] = taken[a, 1] if j == nearest[a] else 0.0
        begin = ends[a]


@inlined
def _multiply_of(D: Index, entries: Index, memory: Any) -> None:
    """|r_ij|^2 and <r_ij, v_ij> of all entries, of which weights are functions."""
    vectors, (squares, inners, _) = memory
    for e in range(entries):
        square, inner = 0.0, 0.0
        for d in range(D):
            square += vectors[d, e] * vectors[d, e]
            inner += vectors[d, e] * vectors[D + d, e]
        squares[e], inners[e] = max(square, SHORTEST * SHORTEST), inner


@inlined
def _add_channel_of(
    D: Index,
    c: Index,
    first: Index,
    agents: Index,
    order: Array,
    groups: Array,
    lists: Any,
    row: Any,
    memory: Any,
    now: Array,
) -> bool:
    senders, _, ends = lists
    vectors, (squares, inners, weights) = memory
    # The weights of all entries, and the first row of the vectors that they multiply.
    entries = np.intp(ends[agents - np.uintp(1)])
    known = squares.ctypes.data, inners.ctypes.data, weights.ctypes.data
    call_loop(row[ADDRESS], row[OPTIONS], known[0], known[1], known[2], entries)  # type: ignore[call-arg]
    k, whom, mean = (D if row[OF_VELOCITY] else 0), row[WHOM], row[IS_MEAN]
    fine, begin = True, np.uintp(0)
    for a in range(agents):
        i, end = order[first + a], ends[a]
        x, y, z, counted = 0.0, 0.0, 0.0, np.uintp(0)
        for e in range(begin, end):
            # A channel among obstacles, who are in no group, among the same group or others leaves the rest out.
            if whom != ALL:
                its = groups[order[senders[e]]]
                if (its == NO_GROUP) != (whom == OBSTACLES):
                    continue
                if whom != OBSTACLES and (its == groups[i]) != (whom == SAME):
                    continue
            x, y = x + weights[e] * vectors[k, e], y + weights[e] * vectors[k + 1, e]
            if D == 3:
                z += weights[e] * vectors[k + 2, e]
            counted += np.uintp(1)
        # A mean is over those counted; of nobody it is zero.
        scale = 1.0 / float(max(counted, np.uintp(1))) if mean else 1.0
        now[i, c * D], now[i, c * D + 1] = x * scale, y * scale
        if D == 3:
            now[i, c * D + 2] = z * scale
        fine &= (abs(x) <= LARGEST_SUM) & (abs(y) <= LARGEST_SUM) & (abs(z) <= LARGEST_SUM)
        begin = end
    return fine


@inlined
def _aggregated_before(table: Array, c: Index) -> Index:
    """The channel before c that is the other aggregation of the same feature among all who are heard; c if none is."""
    row = table[c]
    for b in range(c):
        other = table[b]
        same = other[ADDRESS] == row[ADDRESS] and other[OPTIONS] == row[OPTIONS]
        same = same and other[OF_VELOCITY] == row[OF_VELOCITY] and other[WHOM] == row[WHOM] == ALL
        if same and other[IS_MEAN] != row[IS_MEAN]:
            return b
    return c


@kernel
def _aggregate_otherwise(
    D: Index, b: Index, c: Index, to_mean: bool, first: Index, agents: Index, order: Array, ends: Array, now: Array
) -> bool:
    """Make channel c, the mean if `to_mean`, of channel b, of the same feature: a sum is a mean times the degree."""
    begin, fine = np.uintp(0), True
    for a in range(agents):
        i, degree = order[first + a], float(max(ends[a] - begin, np.uintp(1)))
        scale = 1.0 / degree if to_mean else degree
        for d in range(D):
            value = now[i, b * D + d] * scale
            now[i, c * D + d] = value
            fine &= abs(value) <= LARGEST_SUM
        begin = ends[a]
    return fine


@inlined
def _add_channels_of(
    D: Index,
    first: Index,
    agents: Index,
    order: Array,
    records: Any,
    crew: Any,
    lists: Any,
    rule: Any,
    table: Array,
    begun: Index,
    obstacles: bool,
    now: Array,
    memory: Any,
    measured: bool,
) -> bool:
    roles, groups = crew
    fine, compared = True, False
    for c in range(begun, len(table)):
        # A mean and a sum of the same feature are one sum.
        b = _aggregated_before(table, c)
        if b < c:
            fine &= _aggregate_otherwise(D, b, c, table[c, IS_MEAN] > 0, first, agents, order, lists[2], now)
        elif table[c, WHOM] == OBSTACLES and not obstacles:
            for a in range(agents):
                now[order[first + a], c * D : (c + 1) * D] = 0.0
        else:
            # r_ij and v_ij of all entries, unless they are measured, and what weights are functions of, once.
            if not (measured or compared):
                _compare_of(D, first, agents, order, records, roles, lists, rule, memory)
            if not compared:
                _multiply_of(D, lists[2][agents - np.uintp(1)], memory)
                compared = True
            fine &= _add_channel_of(D, c, first, agents, order, groups, lists, table[c], memory, now)
    return fine


@kernel
def add_up_declared(
    first: Index,
    agents: Index,
    order: Array,
    records: Any,
    crew: Any,
    lists: Any,
    rule: Any,
    table: Array,
    begun: Index,
    obstacles: bool,
    now: Array,
    memory: Any,
    measured: bool,
    axes: Any,
) -> bool:
    """Write into `now` what a batch of agents, whose records begin with `first`, learns by the channels of a table.

    Its arguments are those of `add_up_paper`, with the channels and memory, whose vectors are r_ij and v_ij already if
    `measured`. The first `begun` channels are there already, and with them the older hops. `obstacles` tells whether
    there are any. False if a sum is not finite or too large.
    """
    C, D = len(table), records[1].shape[1]
    # The constant lets the compiler leave the third coordinate out in the plane.
    if len(axes) == 2:
        fine = _add_channels_of(
            2, first, agents, order, records, crew, lists, rule, table, begun, obstacles, now, memory, measured
        )
    else:
        fine = _add_channels_of(
            3, first, agents, order, records, crew, lists, rule, table, begun, obstacles, now, memory, measured
        )
    # Hops 2 .. K: means over all those heard of what they knew a step before.
    if begun == 0:
        for column in range(0, now.shape[1] - C * D, GROUP):
            add_older(C * D + column, column, first, agents, order, records[2], lists, now)
    return fine
