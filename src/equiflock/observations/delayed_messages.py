"""Kernels for radios with jitter or `last_known` > 0, where messages of several send steps are used at once.

At step n a receiver uses, of every sender, the newest message that has arrived: sent at step m, when the two were
within R, not lost, arrived at a = m + delay + jitter <= n, and not expired, n - a <= last_known. The states and older
hops of all steps whose messages may still be used are in a ring of slots; a record is its row (slot, flock, agent),
flattened. The row of an agent in the slot of now is its current state.

`build_message_graph` is the graph of the messages in use now, with any radio.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from equiflock._runtime.jit import Array, Index, inline_kernel, kernel
from equiflock._runtime.randomness import hash_combine
from equiflock.flock import FOLLOWER, MAX_MAGNITUDE
from equiflock.graph.cell_list import CellList, list_nearby_runs, sort_by_agent_id, sort_into_cells
from equiflock.graph.radius_graph import Graph
from equiflock.observations.aggregation_kernels import KernelArgs, aggregate_received
from equiflock.observations.neighbour_lists import BATCH_AGENTS, BATCH_ENTRIES, Batch, Records, make_batch_buffers
from equiflock.observations.orbit import apply_obstacle_rule
from equiflock.observations.radio_kernels import (
    HASH_SHIFT,
    JITTER_STREAM,
    RadioArgs,
    get_agent_id,
    is_lost_in_burst,
    skips_step,
)


class MessageHistory(NamedTuple):
    """The messages of the last S steps; step m is in slot m % S."""

    positions: Array
    """(S, B, N, D) float64."""
    velocities: Array
    """(S, B, N, D) float64."""
    older_hops: Array
    """(S, B, N, padded) float32: what each agent observed a step before it sent, padded by zeros to whole passes."""


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


class MessageSearch(NamedTuple):
    """Where `_list_messages` searches, and its memory."""

    positions: Array
    """(S, B, N, D) float64, as in `MessageHistory`."""
    cells: SlotCells
    links: FixedLinks
    radius_squared: float
    agent_ids: Array
    """(B N,) int64: the id of each agent."""
    radio_args: RadioArgs
    candidates: Array
    """(N + 1,) or longer: the senders in reach at one send step."""
    last_receivers: Array
    """(N,) int64: the last receiver to use a message of each sender."""
    runs: Array
    """(27, 2) uintp, as in `FlockBuffers`."""


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

    Within a cell, agents are sorted by ids, or by indices if `agent_ids` is empty. Return False if a flock is out of
    range.
    """
    orders, starts, buckets, shapes = cells
    for b in active:
        cell_list = CellList(orders[slot, b], starts[slot, b], buckets[slot, b])
        shape = sort_into_cells(positions[b], comm_radius, cell_list)
        if shape[0] == 0 or not (np.abs(velocities[b]) <= MAX_MAGNITUDE).all():
            return False
        if agent_ids.size > 0:
            sort_by_agent_id(orders[slot, b], starts[slot, b], agent_ids, 0, shape[0] * shape[1] * shape[2])
        for d in range(3):
            shapes[slot, b, d] = shape[d]
    return True


@inline_kernel
def _is_usable(
    b: Index, i: Index, j: Index, m: Index, flock: Index, receiver: Index, sender: Index, radio_args: RadioArgs
) -> bool:
    """Return whether agent i of flock b can use the message of agent j of step m now, if j was within reach then.

    `flock` is the hash of seed and flock; receiver and sender are the ids of i and j.
    """
    send_interval, silent_from, present_from = radio_args.sending
    # The sender sent while the receiver was in the flock.
    is_present = present_from[b, j] <= m < silent_from[b, j] and present_from[b, i] <= m
    if not is_present or skips_step(flock, m, sender, send_interval):
        return False
    # The message has arrived, after a random wait, and has not expired.
    delay, jitter, last_known = radio_args.window
    h = hash_combine(hash_combine(hash_combine(flock, m), receiver), sender)
    wait = np.int64(hash_combine(h, JITTER_STREAM) % np.uint64(jitter + 1)) if jitter > 0 else np.int64(0)
    since = radio_args.link.step - m - delay - wait
    if since < 0 or since > last_known:
        return False
    # It is not lost.
    threshold, has_bursts, loss_after_loss, loss_after_arrival = radio_args.loss
    if has_bursts:
        return not is_lost_in_burst(flock, m, receiver, sender, loss_after_loss, loss_after_arrival)
    return bool((h >> HASH_SHIFT) >= threshold)


@kernel
def _list_messages(b: Index, i: Index, end: Index, search: MessageSearch, senders: Array) -> Index:
    """Append the records of the messages that agent i uses to `senders`, from `end` on, and return the new end.

    Newest messages come first, and each sender occurs once at most.
    """
    positions, agent_ids, radio_args = search.positions, search.agent_ids, search.radio_args
    orders, starts, buckets, shapes = search.cells
    begins, listed = search.links
    candidates, last_receivers, runs = search.candidates, search.last_receivers, search.runs
    _, now, slots, rows = radio_args.link
    delay, jitter, last_known = radio_args.window
    flock, receiver = hash_combine(radio_args.link.seed_hash, b), np.uint64(agent_ids[i])
    N, D = positions.shape[2], positions.shape[3]
    for m in range(now - delay, max(now - delay - jitter - last_known, 0) - 1, -1):
        slot, count = m % slots, np.uintp(0)
        if begins.size > 0:
            # In a fixed topology all listed senders, at any distance.
            for e in range(begins[b * N + i], begins[b * N + i + 1]):
                candidates[count] = listed[e]
                count += np.uintp(1)
        else:
            # Otherwise the agents that were within R when they sent.
            shape = shapes[slot, b, 0], shapes[slot, b, 1], shapes[slot, b, 2]
            x, y, z = positions[slot, b, i, 0], positions[slot, b, i, 1], positions[slot, b, i, 2] if D == 3 else 0.0
            for run in range(list_nearby_runs(np.int64(buckets[slot, b, i]), shape, starts[slot, b], runs)):
                for s in range(runs[run, 0], runs[run, 1]):
                    j = orders[slot, b, s]
                    dx, dy = x - positions[slot, b, j, 0], y - positions[slot, b, j, 1]
                    dz = z - positions[slot, b, j, 2] if D == 3 else 0.0
                    candidates[count] = j
                    count += np.uintp(dx * dx + dy * dy + dz * dz <= search.radius_squared)
        for n in range(count):
            # No agent receives from itself, and of each sender only the newest message counts, which comes first.
            j = np.int64(candidates[n])
            if i == j or last_receivers[j] == i:
                continue
            if _is_usable(b, i, j, m, flock, receiver, np.uint64(agent_ids[j]), radio_args):
                last_receivers[j] = i
                senders[end] = slot * rows + b * N + j
                end += np.uintp(1)
    return end


@kernel
def aggregate_delayed_messages(
    history: MessageHistory,
    cells: SlotCells,
    links: FixedLinks,
    records: Records,
    kernel_args: KernelArgs,
    radio_args: RadioArgs,
    observations: Array,
    active: Array,
    first: Index,
    last: Index,
) -> bool:
    """Write the observations (B * N, K * C * D) of agents first .. last - 1 of each active flock.

    Records are all rows of the history. Leaders and obstacle agents observe zeros. Return False if a sum is not finite
    or too large.
    """
    S, B, N, D = history.positions.shape
    buffers, roles, channel_spec = make_batch_buffers(N, D, True), records.roles, kernel_args.channel_spec
    lists, ends, last_receivers = buffers.lists, buffers.lists.ends, np.empty(N, np.int64)
    radius_squared = kernel_args.comm_radius * kernel_args.comm_radius
    search = MessageSearch(
        history.positions,
        cells,
        links,
        radius_squared,
        records.agent_ids,
        radio_args,
        buffers.candidates,
        last_receivers,
        buffers.runs,
    )
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
                    end = _list_messages(b, i, end, search, lists.senders)
                ends[agents] = end
                agents += np.uintp(1)
            # The obstacle rule, the measurements and the sums; the batch begins with the record now of its first agent.
            row = np.uintp((radio_args.link.step % S * B + b) * N) + begin
            batch = Batch(row, agents, lists, buffers.rule_result, buffers.features)
            if records.has_obstacles:
                apply_obstacle_rule(batch, np.uintp(0), records, kernel_args.obstacle_rule)
            fine &= aggregate_received(b, radio_args, batch, records, channel_spec, channel_spec.table, observations)
            begin += agents
    return fine


def build_message_graph(
    can_receive: Bool[np.ndarray, "B N"],
    steps: range,
    get_reach_graph: Callable[[int], Graph],
    radio_args: RadioArgs,
    agent_ids: Array,
) -> Graph:
    """Return the graph of the messages used now; an edge counts once, whatever the number of its messages.

    Args:
        can_receive: (B, N), which agents receive at all.
        steps: the send steps of messages that can be used now.
        get_reach_graph: returns the graph of a step if all messages arrived.
        radio_args: the radio; its step is the step now.
        agent_ids: (N,), as in `Records`.
    """
    edges, (B, N) = np.empty(0, np.int64), can_receive.shape
    for step in steps:
        graph = get_reach_graph(step)
        rows, used = graph.rows, np.empty(len(graph.senders), np.bool_)
        _mark_usable(rows, graph.senders, N, step, radio_args, agent_ids, used)
        used &= can_receive.ravel()[rows]
        # An edge is one number, row * N + sender; with several messages it counts once.
        edges = np.union1d(edges, rows[used] * N + graph.senders[used])
    return Graph.from_edges(edges // N, edges % N, (B, N))


@kernel
def _mark_usable(
    rows: Array, senders: Array, N: Index, m: Index, radio_args: RadioArgs, agent_ids: Array, used: Array
) -> None:
    """Write into used (edges,) whether the message of step m along each edge is usable now."""
    for e in range(len(rows)):
        (b, i), j = divmod(rows[e], N), senders[e]
        flock, receiver = hash_combine(radio_args.link.seed_hash, b), get_agent_id(i, agent_ids)
        used[e] = _is_usable(b, i, j, m, flock, receiver, get_agent_id(j, agent_ids), radio_args)
