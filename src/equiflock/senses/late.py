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
from equiflock.runtime.hashing import blend
from equiflock.runtime.jit import Array, Index, inlined, kernel
from equiflock.senses.air import JITTER, is_quiet, lost_in_burst, number_of
from equiflock.senses.cells import FASTEST, order_by_rank, runs_around, sort_into_cells
from equiflock.senses.hearing import batch_memory, take_from_air
from equiflock.senses.listing import BATCH, ROOM
from equiflock.senses.obstacle_rule import apply_rule

_11 = np.uint64(11)


@kernel
def sort_frame(
    positions: Array, velocities: Array, ranks: Array, comm_radius: float, cells: Any, slot: Index, active: Array
) -> bool:
    """Sort the active flocks of a step, positions and velocities (B, N, D), into cells; False if one is off the scale.

    Within a cell agents stand in the order of their numbers, if they do not in memory.
    """
    orders, starts, buckets, shapes = cells
    for b in active:
        shape = sort_into_cells(positions[b], comm_radius, orders[slot, b], starts[slot, b], buckets[slot, b])
        if shape[0] == 0 or not (np.abs(velocities[b]) <= FASTEST).all():
            return False
        if ranks.size > 0:
            order_by_rank(orders[slot, b], starts[slot, b], ranks, 0, shape[0] * shape[1] * shape[2])
        for d in range(3):
            shapes[slot, b, d] = shape[d]
    return True


@inlined
def _arrives(flock: Index, m: Index, mine: Index, receiver: Index, sender: Index, air: Any, window: Any) -> bool:
    """Whether a receiver may use now what was sent at step m; `mine` is the hash of flock, step and receiver."""
    (_, now, _, _), (threshold, bursts, stay, fall), _, _, _ = air
    delay, jitter, last_known = window
    h = blend(mine, sender)
    # Since when it is there: it must not arrive after now, nor so long ago that it is forgotten.
    wait = np.int64(blend(h, JITTER) % np.uint64(jitter + 1)) if jitter > 0 else np.int64(0)
    since = now - m - delay - wait
    arrives = 0 <= since <= last_known and (h >> _11) >= threshold
    if bursts and 0 <= since <= last_known:
        arrives = not lost_in_burst(flock, m, receiver, sender, stay, fall)
    return bool(arrives)


@inlined
def _was_sent(b: Index, i: Index, j: Index, m: Index, flock: Index, sender: Index, air: Any) -> bool:
    """Whether agent j sent at step m, and agent i was there to hear it."""
    _, _, _, (every, silent_from, born), _ = air
    there = born[b, j] <= m < silent_from[b, j] and born[b, i] <= m
    return there and not is_quiet(flock, m, sender, every)


@kernel
def may_use(b: Index, i: Index, j: Index, m: Index, air: Any, window: Any, ranks: Array) -> bool:
    """Whether agent i of flock b may use now what agent j sent at step m, if it was within reach then."""
    flock, receiver, sender = blend(air[0][0], b), number_of(i, ranks), number_of(j, ranks)
    mine = blend(blend(flock, m), receiver)
    return _was_sent(b, i, j, m, flock, sender, air) and _arrives(flock, m, mine, receiver, sender, air, window)


@inlined
def _consider(
    b: Index,
    i: Index,
    j: Index,
    m: Index,
    end: Index,
    mine: Index,
    flock: Index,
    numbers: Array,
    air: Any,
    window: Any,
    stamps: Array,
    senders: Array,
) -> Index:
    """Put the message that j sent to i at step m on the list that ends at `end`, if it is to be used; its new end."""
    _, _, slots, rows = air[0]
    receiver, sender = np.uint64(numbers[i]), np.uint64(numbers[j])
    # Nobody hears itself, and of each sender only the newest message counts, which was considered first.
    wanted = i != j and stamps[j] != i and _was_sent(b, i, j, m, flock, sender, air)
    if wanted and _arrives(flock, m, mine, receiver, sender, air, window):
        stamps[j] = i
        senders[end] = (m % slots) * rows + b * len(stamps) + j
        end += np.uintp(1)
    return end


@kernel
def _list_agent(
    b: Index,
    i: Index,
    end: Index,
    positions: Array,
    cells: Any,
    graph: Any,
    radius_squared: float,
    numbers: Array,
    air: Any,
    window: Any,
    stamps: Array,
    runs: Array,
    senders: Array,
) -> Index:
    """Append to `senders`, from `end` on, the records of the messages that agent i uses, the newest first."""
    key, now, slots, _ = air[0]
    delay, jitter, last_known = window
    orders, starts, buckets, shapes = cells
    begins, listed = graph
    flock, N, D = blend(key, b), positions.shape[2], positions.shape[3]
    for m in range(now - delay, max(now - delay - jitter - last_known, 0) - 1, -1):
        slot, mine = m % slots, blend(blend(flock, m), np.uint64(numbers[i]))
        # In a fixed topology all those listed, at any distance.
        if begins.size > 0:
            for e in range(begins[b * N + i], begins[b * N + i + 1]):
                end = _consider(b, i, listed[e], m, end, mine, flock, numbers, air, window, stamps, senders)
            continue
        # Else those who were within R when they sent.
        shape = shapes[slot, b, 0], shapes[slot, b, 1], shapes[slot, b, 2]
        x, y, z = positions[slot, b, i, 0], positions[slot, b, i, 1], positions[slot, b, i, 2] if D == 3 else 0.0
        for run in range(runs_around(np.int64(buckets[slot, b, i]), shape, starts[slot, b], runs)):
            for s in range(runs[run, 0], runs[run, 1]):
                j = np.int64(orders[slot, b, s])
                dx, dy = x - positions[slot, b, j, 0], y - positions[slot, b, j, 1]
                dz = z - positions[slot, b, j, 2] if D == 3 else 0.0
                if dx * dx + dy * dy + dz * dz <= radius_squared:
                    end = _consider(b, i, j, m, end, mine, flock, numbers, air, window, stamps, senders)
    return end


@kernel
def hear_late(
    frames: Any,
    numbering: Any,
    crew: Any,
    cells: Any,
    graph: Any,
    rules: Any,
    comm_radius: float,
    said: Any,
    now: Array,
    air: Any,
    window: Any,
    obstacles: bool,
    active: Array,
    first: Index,
    last: Index,
) -> bool:
    """What agents first .. last of the active flocks know; False if somebody is off the scale.

    Args:
        frames: positions (S, B, N, D), velocities (S, B, N, D) and what was passed on (S, B, N, K * C * D), of S slots.
        numbering: (order, ranks): record s is agent order[s] of all flocks counted through, whose number is
            ranks[order[s]].
        crew: (roles, groups) of the agents of all flocks, (B * N,) each.
        cells: order, starts, buckets and shapes of the cell lists of all slots and flocks.
        graph: starts and senders of a fixed topology; empty arrays for a dynamic one.
        rules: the obstacle rule.
        comm_radius: R.
        said: what is said, as in `hearing`.
        now: (B * N, K * C * D), the result.
        air: as in `air`.
        window: delay, jitter and last_known.
        obstacles: whether there are obstacle agents.
        active: the flocks that fly.
        first: the first agent.
        last: the one after the last.
    """
    positions, velocities, past = frames
    S, B, N, D = positions.shape
    records = positions.reshape(-1, D).T, velocities.reshape(-1, D), past.reshape(S * B * N, past.shape[3])
    listing, rule, features = batch_memory(N, D, True)
    # For each sender, the receiver that was the last to use a message of it.
    lists, stamps = listing[4], np.empty(N, np.int64)
    fine = True
    for b in active:
        stamps[:] = -1
        begin = np.uintp(first)
        while begin < last:
            # The lists of a batch of agents, with room for one whom all others reach.
            agents, end = np.uintp(0), np.uintp(0)
            while begin + agents < last and agents < BATCH and end <= ROOM:
                i = np.int64(begin + agents)
                if crew[0][b * N + i] == FOLLOWER:
                    end = _list_agent(
                        b,
                        i,
                        end,
                        positions,
                        cells,
                        graph,
                        comm_radius * comm_radius,
                        numbering[1],
                        air,
                        window,
                        stamps,
                        listing[0],
                        lists[0],
                    )
                lists[2][agents] = end
                agents += np.uintp(1)
            # The obstacle rule, what the messages say, and the sums over it.
            row = np.uintp((air[0][1] % S * B + b) * N) + begin
            if obstacles:
                apply_rule(row, agents, lists, records, crew[0], numbering, rules, rule)
            fine &= take_from_air(
                b, row, agents, numbering, records, crew, lists, rule, said, said[1], now, features, air
            )
            begin += agents
    return fine
