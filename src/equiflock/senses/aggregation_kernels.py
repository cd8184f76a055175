"""The kernels of `aggregation`: what each agent learns from those it hears, added up in a fixed order.

In `previous` and `observations` an agent's K x C x D block is one row. Further arguments of these kernels:

    crew    (roles, groups) of the agents, each (N,)
    rules   the obstacle rule: is only the nearest obstacle agent heard, do followers orbit, and `Orbit.numbers`
    said    (mean, table, begun, axes): whether the paper's three channels are averaged; the `ChannelTable`, None if
            these are all; how many of its channels are the paper's, at its beginning; and one number for each axis
    air     what becomes of messages, see `senses.radio_kernels`; None if all arrive at once and exact

Where an argument is None, Numba leaves out what it is for, and compiles faster; so it does with branches on the length
of a tuple, here `axes`. It must be an argument by itself for that, so `table` is handed on beside `channel_spec`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.flock import FOLLOWER, OBSTACLE
from equiflock.runtime.jit import Array, Index, kernel
from equiflock.senses.cell_list import make_cell_list, sort_into_cells
from equiflock.senses.channel_sums import aggregate_declared_channels, make_feature_buffers
from equiflock.senses.neighbour_lists import (
    BATCH_AGENTS,
    compute_cells_per_block,
    compute_offsets,
    list_batch,
    make_list_buffers,
)
from equiflock.senses.obstacle_rule import apply_obstacle_rule, make_rule_buffers
from equiflock.senses.paper_sums import PAPER_CHANNELS, aggregate_measured_channels, aggregate_paper_channels
from equiflock.senses.radio_kernels import drop_lost_messages, measure_messages
from equiflock.senses.records import apply_radio, gather_records, make_records, make_sender_hashes


@kernel
def make_batch_buffers(N: Index, D: Index, needs_feature_buffers: bool) -> tuple[Any, Any, Any]:
    """Memory of one thread for batches of agents: lists, obstacle rule and features."""
    lists = make_list_buffers(N, D)
    # Declared channels alone need memory for features.
    return lists, make_rule_buffers(), make_feature_buffers(lists[4][0].size if needs_feature_buffers else 0, D)


@kernel
def _aggregate_batch(
    first: Index,
    agents: Index,
    order: Array,
    records: Any,
    roles_groups: Any,
    lists: Any,
    rule_result: Any,
    channel_spec: Any,
    table: Any,
    obstacles: bool,
    observations: Array,
    features: Any,
) -> bool:
    """Write into `observations` what a batch of agents, whose records begin with `first`, makes of those in its lists.

    `obstacles` tells whether the flock has any.
    """
    mean, _, paper_channel_count, axes = channel_spec
    # The paper's channels have a kernel of their own, and so have the older hops with them; others may follow.
    if table is None:
        aggregate_paper_channels(
            first, agents, order, records, lists, rule_result, mean, np.intp(PAPER_CHANNELS), observations, axes
        )
        return True
    if paper_channel_count > 0:
        aggregate_paper_channels(
            first, agents, order, records, lists, rule_result, mean, np.intp(len(table)), observations, axes
        )
    return aggregate_declared_channels(
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
        features,
        False,
        axes,
    )


@kernel
def aggregate_received(
    b: Index,
    first: Index,
    agents: Index,
    numbering: Any,
    records: Any,
    roles_groups: Any,
    lists: Any,
    rule_result: Any,
    channel_spec: Any,
    table: Any,
    observations: Array,
    features: Any,
    flock_radio: Any,
) -> bool:
    """What `_aggregate_batch` does, of messages as the radio delivers them, after those that are lost were taken out."""
    order, _ = numbering
    _, _, (is_measured, delayed, _, _, _), _, _ = flock_radio
    if not is_measured:
        return _aggregate_batch(
            first,
            agents,
            order,
            records,
            roles_groups,
            lists,
            rule_result,
            channel_spec,
            table,
            True,
            observations,
            features,
        )
    # Numbers as they are measured, and sums over them.
    shift = np.uintp(order.size if delayed else 0)
    measure_messages(
        b, first, shift, agents, lists, records, roles_groups[0], rule_result, flock_radio, numbering, features[0]
    )
    if table is not None:
        return aggregate_declared_channels(
            first,
            agents,
            order,
            records,
            roles_groups,
            lists,
            rule_result,
            table,
            0,
            True,
            observations,
            features,
            True,
            channel_spec[3],
        )
    aggregate_measured_channels(
        first, agents, order, records, lists, rule_result, channel_spec[0], observations, features[0], channel_spec[3]
    )
    return True


@kernel
def aggregate_cells(
    records: Any,
    roles_groups: Any,
    cells: Any,
    obstacle_rule: Any,
    comm_radius: float,
    channel_spec: Any,
    observations: Array,
    flock_radio: Any,
    first: Index,
    last: Index,
) -> bool:
    """What the agents in buckets first .. last of one flock know, into `observations` (N, K * C * D); False if off the scale.

    `flock_radio` is None, or that of the flock: (number of the flock, air, and what `apply_radio` says of senders).
    """
    needs_feature_buffers = channel_spec[1] is not None or flock_radio is not None
    memory = make_batch_buffers(cells[0].size, records[0].shape[0], needs_feature_buffers)
    return _aggregate_cells(
        records,
        roles_groups,
        cells,
        obstacle_rule,
        comm_radius,
        channel_spec,
        observations,
        flock_radio,
        first,
        last,
        memory,
    )


@kernel
def _aggregate_cells(
    records: Any,
    roles_groups: Any,
    cells: Any,
    obstacle_rule: Any,
    comm_radius: float,
    channel_spec: Any,
    observations: Array,
    flock_radio: Any,
    first: Index,
    last: Index,
    memory: Any,
) -> bool:
    order, starts, shape, agent_ids = cells
    listing, rule_result, features = memory
    record_positions, roles, lists = records[0], roles_groups[0], listing[4]
    obstacles, max_cells = (roles == OBSTACLE).any(), compute_cells_per_block(starts, shape)
    fine, c, done = True, np.intp(first), np.uintp(0)
    while c < last:
        # Whom a batch of agents hears, after the obstacle rule, and what they make of it.
        s = starts[c] + done
        c, done, agents = list_batch(
            c,
            done,
            last,
            record_positions,
            roles,
            order,
            starts,
            shape,
            max_cells,
            comm_radius * comm_radius,
            listing,
            channel_spec[3],
        )
        if agents == 0:
            continue
        if flock_radio is not None:
            b, on_air, sender_hashes = flock_radio
            drop_lost_messages(b, s, agents, lists, (order, agent_ids), on_air, sender_hashes)
            if obstacles:
                own = s + np.uintp(order.size if on_air[2][1] else 0)
                apply_obstacle_rule(own, agents, lists, records, roles, (order, agent_ids), obstacle_rule, rule_result)
            fine &= aggregate_received(
                b,
                s,
                agents,
                (order, agent_ids),
                records,
                roles_groups,
                lists,
                rule_result,
                channel_spec,
                channel_spec[1],
                observations,
                features,
                on_air,
            )
        else:
            if obstacles:
                apply_obstacle_rule(s, agents, lists, records, roles, (order, agent_ids), obstacle_rule, rule_result)
            fine &= _aggregate_batch(
                s,
                agents,
                order,
                records,
                roles_groups,
                lists,
                rule_result,
                channel_spec,
                channel_spec[1],
                obstacles,
                observations,
                features,
            )
    return fine


@kernel
def aggregate_flocks(
    positions: Array,
    velocities: Array,
    roles: Array,
    groups: Array,
    previous: Array,
    obstacle_rule: Any,
    comm_radius: float,
    channel_spec: Any,
    observations: Array,
    active: Array,
    flock_radio: Any,
) -> bool:
    """What all agents of the active flocks know; False if one of them is off the scale.

    State and `previous` are those of the step at which the messages were sent.
    """
    _, N, D = positions.shape
    order, starts, bucket = make_cell_list(N)
    unranked, sender_hashes = np.empty(0, np.int64), make_sender_hashes(N if flock_radio is not None else 0)
    older_size = previous.shape[2] - compute_first_hop_size(channel_spec[1], D)
    delayed = False if flock_radio is None else flock_radio[2][1]
    records = make_records(N, D, older_size, delayed)
    memory = make_batch_buffers(N, D, channel_spec[1] is not None or flock_radio is not None)
    for b in active:
        # Sort the flock into cells and its records into cell order, then aggregate in all cells.
        shape = sort_into_cells(positions[b], comm_radius, order, starts, bucket)
        if shape[0] == 0 or not gather_records(
            positions[b], velocities[b], previous[b], older_size, order, records, 0, N
        ):
            return False
        buckets = shape[0] * shape[1] * shape[2]
        cells, roles_groups = (order, starts, shape, unranked), (roles[b], groups[b])
        # Not a plain 0, as Numba compiles a kernel anew for every constant that it is called with.
        first = np.int64(0)
        if flock_radio is not None:
            if not apply_radio(b, order, unranked, records, older_size, flock_radio, sender_hashes, first, N):
                return False
            on_air = b, flock_radio, sender_hashes
            if not _aggregate_cells(
                records,
                roles_groups,
                cells,
                obstacle_rule,
                comm_radius,
                channel_spec,
                observations[b],
                on_air,
                first,
                buckets,
                memory,
            ):
                return False
        elif not _aggregate_cells(
            records,
            roles_groups,
            cells,
            obstacle_rule,
            comm_radius,
            channel_spec,
            observations[b],
            None,
            first,
            buckets,
            memory,
        ):
            return False
    return True


@kernel
def compute_first_hop_size(table: Any, D: Index) -> Index:
    """How many numbers the first hop of an agent's block has, C * D."""
    if table is None:
        return PAPER_CHANNELS * D
    return len(table) * D


@kernel
def aggregate_listed(
    positions: Array,
    velocities: Array,
    roles: Array,
    groups: Array,
    previous: Array,
    begins: Array,
    senders: Array,
    obstacle_rule: Any,
    channel_spec: Any,
    observations: Array,
    active: Array,
    flock_radio: Any,
) -> bool:
    """What all agents of the active flocks know if they hear the listed senders, at any distance."""
    _, N, D = positions.shape
    order, unranked = np.arange(N).astype(np.uintp), np.empty(0, np.int64)
    sender_hashes = make_sender_hashes(N if flock_radio is not None else 0)
    older_size = previous.shape[2] - compute_first_hop_size(channel_spec[1], D)
    delayed = False if flock_radio is None else flock_radio[2][1]
    shift = np.uintp(N if delayed else 0)
    records = make_records(N, D, older_size, delayed)
    listing, rule_result, features = make_batch_buffers(N, D, channel_spec[1] is not None or flock_radio is not None)
    lists = listing[4]
    fine = True
    for b in active:
        if not gather_records(positions[b], velocities[b], previous[b], older_size, order, records, 0, N):
            return False
        if flock_radio is not None and not apply_radio(
            b, order, unranked, records, older_size, flock_radio, sender_hashes, np.int64(0), N
        ):
            return False
        roles_groups, first = (roles[b], groups[b]), np.uintp(0)
        while first < N:
            # Records stand in the order of agents here, so the listed senders are the records heard.
            agents, end = np.uintp(0), np.uintp(0)
            while first + agents < N and agents < BATCH_AGENTS:
                row = np.uintp(b * N) + first + agents
                begin = np.uintp(begins[row])
                degree = np.uintp(begins[row + np.uintp(1)]) - begin
                if end + degree > lists[0].size:
                    break
                # Leaders and obstacle agents hear nobody: their Z is zero.
                for e in range(degree if roles[b, first + agents] == FOLLOWER else np.uintp(0)):
                    lists[0][end] = senders[begin + e]
                    end += np.uintp(1)
                lists[2][agents] = end
                agents += np.uintp(1)
            if flock_radio is not None:
                drop_lost_messages(b, first, agents, lists, (order, unranked), flock_radio, sender_hashes)
            # The obstacle rule, for the plane only, where obstacles exist.
            if D == 2:
                apply_obstacle_rule(
                    first + shift, agents, lists, records, roles[b], (order, unranked), obstacle_rule, rule_result
                )
            else:
                begin = np.uintp(0)
                for a in range(agents):
                    compute_offsets(3, first + shift + a, records[0], lists, begin, lists[2][a])
                    begin = lists[2][a]
            if flock_radio is not None:
                fine &= aggregate_received(
                    b,
                    first,
                    agents,
                    (order, unranked),
                    records,
                    roles_groups,
                    lists,
                    rule_result,
                    channel_spec,
                    channel_spec[1],
                    observations[b],
                    features,
                    flock_radio,
                )
            else:
                fine &= _aggregate_batch(
                    first,
                    agents,
                    order,
                    records,
                    roles_groups,
                    lists,
                    rule_result,
                    channel_spec,
                    channel_spec[1],
                    D == 2,
                    observations[b],
                    features,
                )
            first += agents
    return fine
