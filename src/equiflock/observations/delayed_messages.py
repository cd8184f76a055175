"""Kernels for radios with jitter or `last_known` > 0, where messages of several send steps are used at once.

At step n a receiver uses, of every sender, the newest message that has arrived: sent at step m, when the two were
within R, not lost, arrived at a = m + delay + jitter <= n, and not expired, n - a <= last_known. The states and older
hops of all steps whose messages may still be used are in a ring of slots; a record is its row (slot, flock, agent),
flattened. The row of an agent in the slot of now is its current state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from equiflock._runtime.jit import Array, Index, inline_kernel, kernel
from equiflock._runtime.randomness import hash_combine
from equiflock.flock import FOLLOWER
from equiflock.graph.cell_list import MAX_MAGNITUDE, Numbering, list_nearby_runs, sort_by_agent_id, sort_into_cells
from equiflock.observations.aggregation_kernels import ChannelSpec, aggregate_received, make_batch_buffers
from equiflock.observations.neighbour_lists import (
    BATCH_AGENTS,
    BATCH_ENTRIES,
    Records,
    RolesGroups,
    apply_obstacle_rule,
)
from equiflock.observations.orbit import ObstacleRule
from equiflock.observations.radio_kernels import JITTER_STREAM, RadioArgs, get_agent_id, is_lost_in_burst, skips_step

_HASH_SHIFT = np.uint64(11)


class MessageWindow(NamedTuple):
    """When messages are used, in steps."""

    delay: Index
    """int64: steps from sending to arrival."""
    jitter: Index
    """int64: the most further steps to arrival."""
    last_known: Index
    """int64: steps after arrival for which a message is used."""


class MessageHistory(NamedTuple):
    """The messages of the last S steps; step m is in slot m % S."""

    positions: Array
    """(S, B, N, D) float64."""
    velocities: Array
    """(S, B, N, D) float64."""
    older_hops: Array
    """(S, B, N, K * C * D) float32: what each agent observed a step before it sent."""


class SlotCells(NamedTuple):
    """The cell lists of all slots and flocks."""

    orders: Array
    """(S, B, N) uintp."""
    starts: Array
    """(S, B, 2 N + 65) uintp."""
    buckets: Array
    """(S, B, N) uintp."""
    shapes: Array
    """(S, B, 3) int64: torus shapes."""


class FixedLinks(NamedTuple):
    """The graph of a fixed topology; both arrays are empty for a dynamic one."""

    starts: Array
    """(B * N + 1,) int64, as in `Graph`."""
    senders: Array
    """(edges,) int64, as in `Graph`."""


@kernel
def sort_slot(
    positions: Array,
    velocities: Array,
    agent_ids: Array,
    comm_radius: float,
    cells: SlotCells,
    slot: Index,
    active: Array,
) -> bool:
    """Sort the active flocks of a step, positions and velocities (B, N, D), into the cells of a slot of the ring.

    Within a cell, agents are sorted by ids, or by indices if `agent_ids` is empty.

    Returns:
        False if a flock is out of range.
    """
    orders, starts, buckets, shapes = cells
    for b in active:
        shape = sort_into_cells(positions[b], comm_radius, orders[slot, b], starts[slot, b], buckets[slot, b])
        if shape[0] == 0 or not (np.abs(velocities[b]) <= MAX_MAGNITUDE).all():
            return False
        if agent_ids.size > 0:
            sort_by_agent_id(orders[slot, b], starts[slot, b], agent_ids, 0, shape[0] * shape[1] * shape[2])
        for d in range(3):
            shapes[slot, b, d] = shape[d]
    return True


@inline_kernel
def _is_delivered(
    flock: Index,
    m: Index,
    receiver_hash: Index,
    receiver: Index,
    sender: Index,
    radio_args: RadioArgs,
    window: MessageWindow,
) -> bool:
    """Return whether a message of step m has arrived by now, was not lost, and has not expired.

    `receiver_hash` is the hash of flock, step m and receiver; `flock` is the hash of seed and flock.
    """
    threshold, has_bursts, loss_after_loss, loss_after_arrival = radio_args.loss
    delay, jitter, last_known = window
    h = hash_combine(receiver_hash, sender)
    # The steps since its arrival: it must have arrived, and must not have expired.
    wait = np.int64(hash_combine(h, JITTER_STREAM) % np.uint64(jitter + 1)) if jitter > 0 else np.int64(0)
    since = radio_args.link.step - m - delay - wait
    arrives = 0 <= since <= last_known and (h >> _HASH_SHIFT) >= threshold
    if has_bursts and 0 <= since <= last_known:
        arrives = not is_lost_in_burst(flock, m, receiver, sender, loss_after_loss, loss_after_arrival)
    return bool(arrives)


@inline_kernel
def _was_sent(b: Index, i: Index, j: Index, m: Index, flock: Index, sender: Index, radio_args: RadioArgs) -> bool:
    """Return whether agent j sent at step m while agent i was in the flock."""
    send_interval, silent_from, present_from = radio_args.sending
    is_present = present_from[b, j] <= m < silent_from[b, j] and present_from[b, i] <= m
    return is_present and not skips_step(flock, m, sender, send_interval)


@kernel
def is_message_usable(
    b: Index, i: Index, j: Index, m: Index, radio_args: RadioArgs, window: MessageWindow, agent_ids: Array
) -> bool:
    """Return whether agent i of flock b can use the message of agent j of step m now, if j was within reach then."""
    flock = hash_combine(radio_args.link.seed_hash, b)
    receiver, sender = get_agent_id(i, agent_ids), get_agent_id(j, agent_ids)
    receiver_hash = hash_combine(hash_combine(flock, m), receiver)
    return _was_sent(b, i, j, m, flock, sender, radio_args) and _is_delivered(
        flock, m, receiver_hash, receiver, sender, radio_args, window
    )


@inline_kernel
def _append_if_usable(
    b: Index,
    i: Index,
    j: Index,
    m: Index,
    end: Index,
    receiver_hash: Index,
    flock: Index,
    agent_ids: Array,
    radio_args: RadioArgs,
    window: MessageWindow,
    last_receivers: Array,
    senders: Array,
) -> Index:
    """Append the message of step m from j to i to the list that ends at `end`, if usable; return the new end."""
    slots, rows = radio_args.link.slots, radio_args.link.rows
    receiver, sender = np.uint64(agent_ids[i]), np.uint64(agent_ids[j])
    # No agent receives from itself, and of each sender only the newest message counts, which comes first.
    is_new = i != j and last_receivers[j] != i and _was_sent(b, i, j, m, flock, sender, radio_args)
    if is_new and _is_delivered(flock, m, receiver_hash, receiver, sender, radio_args, window):
        last_receivers[j] = i
        senders[end] = (m % slots) * rows + b * len(last_receivers) + j
        end += np.uintp(1)
    return end


@kernel
def _list_messages(
    b: Index,
    i: Index,
    end: Index,
    positions: Array,
    cells: SlotCells,
    links: FixedLinks,
    radius_squared: float,
    agent_ids: Array,
    radio_args: RadioArgs,
    window: MessageWindow,
    last_receivers: Array,
    runs: Array,
    senders: Array,
) -> Index:
    """Append the records of the messages that agent i uses to `senders`, from `end` on, and return the new end.

    Newest messages come first, and each sender occurs once at most.
    """
    now, slots = radio_args.link.step, radio_args.link.slots
    delay, jitter, last_known = window
    orders, starts, buckets, shapes = cells
    begins, listed = links
    flock, N, D = hash_combine(radio_args.link.seed_hash, b), positions.shape[2], positions.shape[3]
    for m in range(now - delay, max(now - delay - jitter - last_known, 0) - 1, -1):
        slot, receiver_hash = m % slots, hash_combine(hash_combine(flock, m), np.uint64(agent_ids[i]))
        # In a fixed topology all listed senders, at any distance.
        if begins.size > 0:
            for e in range(begins[b * N + i], begins[b * N + i + 1]):
                end = _append_if_usable(
                    b,
                    i,
                    listed[e],
                    m,
                    end,
                    receiver_hash,
                    flock,
                    agent_ids,
                    radio_args,
                    window,
                    last_receivers,
                    senders,
                )
            continue
        # Otherwise the agents that were within R when they sent.
        shape = shapes[slot, b, 0], shapes[slot, b, 1], shapes[slot, b, 2]
        x, y, z = positions[slot, b, i, 0], positions[slot, b, i, 1], positions[slot, b, i, 2] if D == 3 else 0.0
        for run in range(list_nearby_runs(np.int64(buckets[slot, b, i]), shape, starts[slot, b], runs)):
            for s in range(runs[run, 0], runs[run, 1]):
                j = np.int64(orders[slot, b, s])
                dx, dy = x - positions[slot, b, j, 0], y - positions[slot, b, j, 1]
                dz = z - positions[slot, b, j, 2] if D == 3 else 0.0
                if dx * dx + dy * dy + dz * dz <= radius_squared:
                    end = _append_if_usable(
                        b, i, j, m, end, receiver_hash, flock, agent_ids, radio_args, window, last_receivers, senders
                    )
    return end


@kernel
def aggregate_delayed_messages(
    history: MessageHistory,
    numbering: Numbering,
    roles_groups: RolesGroups,
    cells: SlotCells,
    links: FixedLinks,
    obstacle_rule: ObstacleRule,
    comm_radius: float,
    channel_spec: ChannelSpec,
    observations: Array,
    radio_args: RadioArgs,
    window: MessageWindow,
    has_obstacles: bool,
    active: Array,
    first: Index,
    last: Index,
) -> bool:
    """Write the observations of agents first .. last - 1 of each active flock.

    Leaders and obstacle agents observe zeros.

    Args:
        history: the messages of S slots.
        numbering: the agent of each of S * B * N records, an index into all B * N agents, and the ids of these.
        roles_groups: of the agents of all flocks, (B * N,) each.
        cells: the cell lists of all slots and flocks.
        links: the graph of a fixed topology.
        obstacle_rule: the obstacle rule.
        comm_radius: R.
        channel_spec: the channels.
        observations: (B * N, K * C * D), the result.
        radio_args: the radio.
        window: when messages are used.
        has_obstacles: whether there are obstacle agents.
        active: indices of the flocks that fly.
        first: the first agent.
        last: the last agent + 1.

    Returns:
        False if a sum is not finite or too large.
    """
    positions, velocities, older_hops = history
    S, B, N, D = positions.shape
    records = Records(
        positions.reshape(-1, D).T, velocities.reshape(-1, D), older_hops.reshape(S * B * N, older_hops.shape[3])
    )
    listing, rule_result, features = make_batch_buffers(N, D, True)
    # The last receiver to use a message of each sender.
    lists, last_receivers = listing.lists, np.empty(N, np.int64)
    roles, senders, ends, runs = roles_groups.roles, lists.senders, lists.ends, listing.runs
    fine = True
    for b in active:
        last_receivers[:] = -1
        begin = np.uintp(first)
        while begin < last:
            # The lists of a batch of agents, with room for one with N - 1 neighbours.
            agents, end = np.uintp(0), np.uintp(0)
            while begin + agents < last and agents < BATCH_AGENTS and end <= BATCH_ENTRIES:
                i = np.int64(begin + agents)
                if roles[b * N + i] == FOLLOWER:
                    end = _list_messages(
                        b,
                        i,
                        end,
                        positions,
                        cells,
                        links,
                        comm_radius * comm_radius,
                        numbering.agent_ids,
                        radio_args,
                        window,
                        last_receivers,
                        runs,
                        senders,
                    )
                ends[agents] = end
                agents += np.uintp(1)
            # The obstacle rule, the measurements and the sums; `row` is the record now of the first of the batch.
            row = np.uintp((radio_args.link.step % S * B + b) * N) + begin
            if has_obstacles:
                apply_obstacle_rule(row, agents, lists, records, roles, numbering, obstacle_rule, rule_result)
            fine &= aggregate_received(
                b,
                row,
                agents,
                numbering,
                records,
                roles_groups,
                lists,
                rule_result,
                channel_spec,
                channel_spec.table,
                observations,
                features,
                radio_args,
            )
            begin += agents
    return fine
