"""Sums of declared channels, and of the older hops, over neighbour lists.

The arguments of a feature's weight, and the weight, depend on one entry of a list alone, so they are computed for all
entries of a batch at once. Then each agent sums its entries in the order of its list, features in float64 and older
hops in float32: a sum depends on its list alone, not on the batch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from equiflock._runtime.jit import Array, Index, inline_kernel, kernel
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
from equiflock.observations.neighbour_lists import NeighbourLists, Records, RolesGroups, RuleResult
from equiflock.observations.paper_sums import COLUMNS_PER_PASS, average_older_hops

LARGEST_SUM = 1e30
"""The largest sum of features: beyond it a sum of sums could overflow float32."""


class FeatureBuffers(NamedTuple):
    """Memory of one thread for the features of a batch, a column per entry of its lists."""

    vectors: Array
    """(2 D, entries) float64: r_ij in rows 0 .. D - 1, v_ij in rows D .. 2 D - 1."""
    squares: Array
    """(entries,) float64: max(|r_ij|, MIN_DISTANCE)^2."""
    inners: Array
    """(entries,) float64: <r_ij, v_ij>."""
    weights: Array
    """(entries,) float64: the weights of one channel."""


@kernel
def make_feature_buffers(entries: Index, D: Index) -> FeatureBuffers:
    """Allocate the features of a batch whose lists have at most `entries` entries."""
    return FeatureBuffers(np.empty((2 * D, entries)), np.empty(entries), np.empty(entries), np.empty(entries))


@inline_kernel
def _compute_relative_nd(
    D: Index,
    first: Index,
    agents: Index,
    order: Array,
    records: Records,
    roles: Array,
    lists: NeighbourLists,
    rule_result: RuleResult,
    vectors: Array,
) -> None:
    """Write r_ij and v_ij of all entries of a batch into vectors (2 D, entries).

    With the orbit technique, v_ij of the nearest obstacle agent is the virtual one, and that of other obstacle agents
    0.
    """
    record_positions, record_velocities = records.positions, records.velocities
    senders, ends = lists.senders, lists.ends
    virtual_velocities, nearest, obstacle_counts = rule_result
    begin = np.uintp(0)
    for a in range(agents):
        s = first + a
        for e in range(begin, ends[a]):
            # Relative position and velocity.
            j = np.uintp(senders[e])
            for d in range(D):
                vectors[d, e] = record_positions[d, s] - record_positions[d, j]
                vectors[D + d, e] = record_velocities[s, d] - record_velocities[j, d]
            # The orbit technique replaces v_ij of the nearest obstacle agent by a virtual one, of others by 0.
            if obstacle_counts[a] > 0 and roles[order[j]] == OBSTACLE:
                vectors[D, e] = virtual_velocities[a, 0] if j == nearest[a] else 0.0
                vectors[D + 1, e] = virtual_velocities[a, 1] if j == nearest[a] else 0.0
        begin = ends[a]


@inline_kernel
def _compute_products_nd(D: Index, entries: Index, features: FeatureBuffers) -> None:
    """Write |r_ij|^2, at least MIN_DISTANCE^2, and <r_ij, v_ij> of the first `entries` entries."""
    vectors, squares, inners = features.vectors, features.squares, features.inners
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
    lists: NeighbourLists,
    row: Array,
    features: FeatureBuffers,
    observations: Array,
) -> bool:
    """Write channel c of hop 1, described by a row of the channel table, for a batch of agents.

    Neighbours that the `among` of the channel excludes count neither in the sum nor in the mean. Return False if a sum
    is not finite or above LARGEST_SUM.
    """
    senders, ends = lists.senders, lists.ends
    vectors, squares, inners, weights = features
    # The weights of all entries, and the first row k of the vectors that they multiply.
    entries = np.intp(ends[agents - np.uintp(1)])
    squares_address, inners_address, weights_address = squares.ctypes.data, inners.ctypes.data, weights.ctypes.data
    call_loop(  # type: ignore[call-arg]
        row[LOOP_ADDRESS], row[OPTIONS_ADDRESS], squares_address, inners_address, weights_address, entries
    )
    k, among, is_mean = (D if row[IS_VELOCITY] else 0), row[AMONG_COLUMN], row[IS_MEAN]
    fine, begin = True, np.uintp(0)
    for a in range(agents):
        i, end = order[first + a], ends[a]
        x, y, z, counted = 0.0, 0.0, 0.0, np.uintp(0)
        for e in range(begin, end):
            # A channel among obstacle agents, which are in no group, the same group or other groups skips the rest.
            if among != AMONG_ALL:
                group = groups[order[senders[e]]]
                if (group == NO_GROUP) != (among == AMONG_OBSTACLES):
                    continue
                if among != AMONG_OBSTACLES and (group == groups[i]) != (among == AMONG_SAME):
                    continue
            x, y = x + weights[e] * vectors[k, e], y + weights[e] * vectors[k + 1, e]
            if D == 3:
                z += weights[e] * vectors[k + 2, e]
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
    """Compute channel c, a mean if `to_mean`, from channel b of the same feature: the sum is the mean times |N_i|.

    Return False if a result is not finite or above LARGEST_SUM.
    """
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
    records: Records,
    roles_groups: RolesGroups,
    lists: NeighbourLists,
    rule_result: RuleResult,
    table: Array,
    paper_channel_count: Index,
    has_obstacles: bool,
    observations: Array,
    features: FeatureBuffers,
    is_measured: bool,
) -> bool:
    """Write the channels of hop 1 from `paper_channel_count` on; return False if a sum is not finite or too large."""
    roles, groups = roles_groups
    ends = lists.ends
    fine, has_products = True, False
    for c in range(paper_channel_count, len(table)):
        # The mean and the sum of the same feature share one sum.
        b = _find_twin_channel(table, c)
        if b < c:
            fine &= _convert_aggregation(D, b, c, table[c, IS_MEAN] > 0, first, agents, order, ends, observations)
        elif table[c, AMONG_COLUMN] == AMONG_OBSTACLES and not has_obstacles:
            for a in range(agents):
                observations[order[first + a], c * D : (c + 1) * D] = 0.0
        else:
            # Compute r_ij and v_ij, unless they are measured, and the arguments of weights for all entries, once.
            if not (is_measured or has_products):
                _compute_relative_nd(D, first, agents, order, records, roles, lists, rule_result, features.vectors)
            if not has_products:
                _compute_products_nd(D, ends[agents - np.uintp(1)], features)
                has_products = True
            fine &= _sum_channel_nd(D, c, first, agents, order, groups, lists, table[c], features, observations)
    return fine


@kernel
def aggregate_declared_channels(
    first: Index,
    agents: Index,
    order: Array,
    records: Records,
    roles_groups: RolesGroups,
    lists: NeighbourLists,
    rule_result: RuleResult,
    table: Array,
    paper_channel_count: Index,
    has_obstacles: bool,
    observations: Array,
    features: FeatureBuffers,
    is_measured: bool,
    axes: tuple[Index, ...],
) -> bool:
    """Write the channels of a table, and the older hops, of a batch of agents.

    Args:
        first: the record of the first agent of the batch.
        agents: the size of the batch.
        order: record s is agent order[s], whose row of `observations` is written.
        records: of all agents.
        roles_groups: of all agents.
        lists: the neighbours of the batch.
        rule_result: the result of the obstacle rule for the batch.
        table: the `ChannelTable`.
        paper_channel_count: channels that `aggregate_paper_channels` has written already; if any, the older hops, too.
        has_obstacles: whether the flock has obstacle agents.
        observations: (N, K * C * D).
        features: memory; its vectors are r_ij and v_ij already if `is_measured`.
        is_measured: whether the radio has computed r_ij and v_ij.
        axes: one number for each dimension.

    Returns:
        False if a sum is not finite or too large.
    """
    C, D = len(table), records.velocities.shape[1]
    # The constant lets the compiler omit the third coordinate in the plane.
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
            has_obstacles,
            observations,
            features,
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
            has_obstacles,
            observations,
            features,
            is_measured,
        )
    # Hops 2 .. K: means over all neighbours of their z^(k-1) of the step before.
    if paper_channel_count == 0:
        for column in range(0, observations.shape[1] - C * D, COLUMNS_PER_PASS):
            average_older_hops(C * D + column, column, first, agents, order, records.older_hops, lists, observations)
    return fine
