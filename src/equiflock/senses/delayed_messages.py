"""Messages of several steps at once: the kernels for radios with jitter, or whose receivers use the last one they had.

At step n a receiver looks, for every sender, for the newest message that reached it: one sent at step m, when the two
were within R, not lost, that arrived at a = m + delay + jitter <= n and is not too old, n - a <= last_known. All states
and what was known stand in a ring of slots, a slot for every step that may still be heard: a record is a row of it,
(slot, flock, agent) counted through, and so is an agent's own record of now.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.flock import FOLLOWER
from equiflock.runtime.hashing import hash_combine
from equiflock.runtime.jit import Array, Index, inline_kernel, kernel
from equiflock.senses.aggregation_kernels import aggregate_received, make_batch_buffers
from equiflock.senses.cell_list import MAX_MAGNITUDE, list_nearby_runs, sort_by_agent_id, sort_into_cells
from equiflock.senses.neighbour_lists import BATCH_AGENTS, BATCH_ENTRIES
from equiflock.senses.obstacle_rule import apply_obstacle_rule
from equiflock.senses.radio_kernels import JITTER_STREAM, get_agent_id, is_lost_in_burst, skips_step

_HASH_SHIFT = np.uint64(11)


@kernel
def sort_slot(
    positions: Array, velocities: Array, agent_ids: Array, comm_radius: float, cells: Any, slot: Index, active: Array
) -> bool:
    """Sort the active flocks of a step, positions and velocities (B, N, D), into cells; False if one is off the scale.

    Within a cell agents stand in the order of their numbers, if they do not in memory.
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
    flock: Index, m: Index, receiver_hash: Index, receiver: Index, sender: Index, flock_radio: Any, window: Any
) -> bool:
    """Whether a receiver may use now what was sent at step m; `receiver_hash` is the hash of flock, step and receiver."""
    (_, now, _, _), (threshold, bursts, loss_after_loss, loss_after_arrival), _, _, _ = flock_radio
    delay, jitter, last_known = window
    h = hash_combine(receiver_hash, sender)
    # Since when it is there: it must not arrive after now, nor so long ago that it is forgotten.
    wait = np.int64(hash_combine(h, JITTER_STREAM) % np.uint64(jitter + 1)) if jitter > 0 else np.int64(0)
    since = now - m - delay - wait
    arrives = 0 <= since <= last_known and (h >> _HASH_SHIFT) >= threshold
    if bursts and 0 <= since <= last_known:
        arrives = not is_lost_in_burst(flock, m, receiver, sender, loss_after_loss, loss_after_arrival)
    return bool(arrives)


@inline_kernel
def _was_sent(b: Index, i: Index, j: Index, m: Index, flock: Index, sender: Index, flock_radio: Any) -> bool:
    """Whether agent j sent at step m, and agent i was there to hear it."""
    _, _, _, (send_interval, silent_from, present_from), _ = flock_radio
    there = present_from[b, j] <= m < silent_from[b, j] and present_from[b, i] <= m
    return there and not skips_step(flock, m, sender, send_interval)


@kernel
def is_message_usable(b: Index, i: Index, j: Index, m: Index, flock_radio: Any, window: Any, agent_ids: Array) -> bool:
    """Whether agent i of flock b may use now what agent j sent at step m, if it was within reach then."""
    flock, receiver, sender = hash_combine(flock_radio[0][0], b), get_agent_id(i, agent_ids), get_agent_id(j, agent_ids)
    receiver_hash = hash_combine(hash_combine(flock, m), receiver)
    return _was_sent(b, i, j, m, flock, sender, flock_radio) and _is_delivered(
        flock, m, receiver_hash, receiver, sender, flock_radio, window
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
    numbers: Array,
    flock_radio: Any,
    window: Any,
    last_receivers: Array,
    senders: Array,
) -> Index:
    """Put the message that j sent to i at step m on the list that ends at `end`, if it is to be used; its new end."""
    _, _, slots, rows = flock_radio[0]
    receiver, sender = np.uint64(numbers[i]), np.uint64(numbers[j])
    # Nobody hears itself, and of each sender only the newest message counts, which was considered first.
    wanted = i != j and last_receivers[j] != i and _was_sent(b, i, j, m, flock, sender, flock_radio)
    if wanted and _is_delivered(flock, m, receiver_hash, receiver, sender, flock_radio, window):
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
    cells: Any,
    graph: Any,
    radius_squared: float,
    numbers: Array,
    flock_radio: Any,
    window: Any,
    last_receivers: Array,
    runs: Array,
    senders: Array,
) -> Index:
    """Append to `senders`, from `end` on, the records of the messages that agent i uses, the newest first."""
    key, now, slots, _ = flock_radio[0]
    delay, jitter, last_known = window
    orders, starts, buckets, shapes = cells
    begins, listed = graph
    flock, N, D = hash_combine(key, b), positions.shape[2], positions.shape[3]
    for m in range(now - delay, max(now - delay - jitter - last_known, 0) - 1, -1):
        slot, receiver_hash = m % slots, hash_combine(hash_combine(flock, m), np.uint64(numbers[i]))
        # In a fixed topology all those listed, at any distance.
        if begins.size > 0:
            for e in range(begins[b * N + i], begins[b * N + i + 1]):
                end = _append_if_usable(
                    b, i, listed[e], m, end, receiver_hash, flock, numbers, flock_radio, window, last_receivers, senders
                )
            continue
        # Else those who were within R when they sent.
        shape = shapes[slot, b, 0], shapes[slot, b, 1], shapes[slot, b, 2]
        x, y, z = positions[slot, b, i, 0], positions[slot, b, i, 1], positions[slot, b, i, 2] if D == 3 else 0.0
        for run in range(list_nearby_runs(np.int64(buckets[slot, b, i]), shape, starts[slot, b], runs)):
            for s in range(runs[run, 0], runs[run, 1]):
                j = np.int64(orders[slot, b, s])
                dx, dy = x - positions[slot, b, j, 0], y - positions[slot, b, j, 1]
                dz = z - positions[slot, b, j, 2] if D == 3 else 0.0
                if dx * dx + dy * dy + dz * dz <= radius_squared:
                    end = _append_if_usable(
                        b, i, j, m, end, receiver_hash, flock, numbers, flock_radio, window, last_receivers, senders
                    )
    return end


@kernel
def aggregate_delayed_messages(
    history: Any,
    numbering: Any,
    roles_groups: Any,
    cells: Any,
    graph: Any,
    obstacle_rule: Any,
    comm_radius: float,
    channel_spec: Any,
    observations: Array,
    flock_radio: Any,
    window: Any,
    obstacles: bool,
    active: Array,
    first: Index,
    last: Index,
) -> bool:
    """What agents first .. last of the active flocks know; False if somebody is off the scale.

    Args:
        history: positions (S, B, N, D), velocities (S, B, N, D) and what was passed on (S, B, N, K * C * D), of S slots.
        numbering: (order, ranks): record s is agent order[s] of all flocks counted through, whose number is
            ranks[order[s]].
        roles_groups: (roles, groups) of the agents of all flocks, (B * N,) each.
        cells: order, starts, buckets and shapes of the cell lists of all slots and flocks.
        graph: starts and senders of a fixed topology; empty arrays for a dynamic one.
        obstacle_rule: the obstacle rule.
        comm_radius: R.
        channel_spec: what is said, as in `hearing`.
        observations: (B * N, K * C * D), the result.
        flock_radio: as in `flock_radio`.
        window: delay, jitter and last_known.
        obstacles: whether there are obstacle agents.
        active: the flocks that fly.
        first: the first agent.
        last: the one after the last.
    """
    positions, velocities, older_hops = history
    S, B, N, D = positions.shape
    records = positions.reshape(-1, D).T, velocities.reshape(-1, D), older_hops.reshape(S * B * N, older_hops.shape[3])
    listing, rule_result, features = make_batch_buffers(N, D, True)
    # For each sender, the receiver that was the last to use a message of it.
    lists, last_receivers = listing[4], np.empty(N, np.int64)
    fine = True
    for b in active:
        last_receivers[:] = -1
        begin = np.uintp(first)
        while begin < last:
            # The lists of a batch of agents, with room for one whom all others reach.
            agents, end = np.uintp(0), np.uintp(0)
            while begin + agents < last and agents < BATCH_AGENTS and end <= BATCH_ENTRIES:
                i = np.int64(begin + agents)
                if roles_groups[0][b * N + i] == FOLLOWER:
                    end = _list_messages(
                        b,
                        i,
                        end,
                        positions,
                        cells,
                        graph,
                        comm_radius * comm_radius,
                        numbering[1],
                        flock_radio,
                        window,
                        last_receivers,
                        listing[0],
                        lists[0],
                    )
                lists[2][agents] = end
                agents += np.uintp(1)
            # The obstacle rule, what the messages say, and the sums over it.
            row = np.uintp((flock_radio[0][1] % S * B + b) * N) + begin
            if obstacles:
                apply_obstacle_rule(row, agents, lists, records, roles_groups[0], numbering, obstacle_rule, rule_result)
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
                channel_spec[1],
                observations,
                features,
                flock_radio,
            )
            begin += agents
    return fine
