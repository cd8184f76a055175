"""The kernels of `aggregation`: what each agent learns from those it hears, added up in a fixed order.

In `before` and `now` an agent's K x C x D block is one row. Further arguments of these kernels:

    crew    (roles, groups) of the agents, each (N,)
    rules   the obstacle rule: is only the nearest obstacle agent heard, do followers orbit, and `Orbit.numbers`
    said    (mean, table, begun, axes): whether the paper's three channels are averaged; the `ChannelTable`, None if
            these are all; how many of its channels are the paper's, at its beginning; and one number for each axis
    air     what becomes of messages, see `senses.air`; None if all arrive at once and exact

Where an argument is None, Numba leaves out what it is for, and compiles faster; so it does with branches on the length
of a tuple, here `axes`. It must be an argument by itself for that, so `table` is handed on beside `said`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.flock import FOLLOWER, OBSTACLE
from equiflock.runtime.jit import Array, Index, kernel
from equiflock.senses.air import measure, receive
from equiflock.senses.cells import cell_list, sort_into_cells
from equiflock.senses.listing import BATCH, cells_per_block, list_batch, list_memory, take_offsets
from equiflock.senses.obstacle_rule import apply_rule, rule_memory
from equiflock.senses.paper_sums import PAPER_CHANNELS, add_up_measured, add_up_paper
from equiflock.senses.records import gather_records, make_calls, make_records, put_on_air
from equiflock.senses.sums import add_up_declared, feature_memory


@kernel
def batch_memory(N: Index, D: Index, declared: bool) -> tuple[Any, Any, Any]:
    """Memory of one thread for batches of agents: lists, obstacle rule and features."""
    lists = list_memory(N, D)
    # Declared channels alone need memory for features.
    return lists, rule_memory(), feature_memory(lists[4][0].size if declared else 0, D)


@kernel
def _add_up(
    first: Index,
    agents: Index,
    order: Array,
    records: Any,
    crew: Any,
    lists: Any,
    rule: Any,
    said: Any,
    table: Any,
    obstacles: bool,
    now: Array,
    features: Any,
) -> bool:
    """Write into `now` what a batch of agents, whose records begin with `first`, makes of those in its lists.

    `obstacles` tells whether the flock has any.
    """
    mean, _, begun, axes = said
    # The paper's channels have a kernel of their own, and so have the older hops with them; others may follow.
    if table is None:
        add_up_paper(first, agents, order, records, lists, rule, mean, np.intp(PAPER_CHANNELS), now, axes)
        return True
    if begun > 0:
        add_up_paper(first, agents, order, records, lists, rule, mean, np.intp(len(table)), now, axes)
    return add_up_declared(
        first, agents, order, records, crew, lists, rule, table, begun, obstacles, now, features, False, axes
    )


@kernel
def take_from_air(
    b: Index,
    first: Index,
    agents: Index,
    numbering: Any,
    records: Any,
    crew: Any,
    lists: Any,
    rule: Any,
    said: Any,
    table: Any,
    now: Array,
    features: Any,
    air: Any,
) -> bool:
    """What `_add_up` does, of messages as the radio delivers them, after those that are lost were taken out."""
    order, _ = numbering
    _, _, (measured, delayed, _, _, _), _, _ = air
    if not measured:
        return _add_up(first, agents, order, records, crew, lists, rule, said, table, True, now, features)
    # Numbers as they are measured, and sums over them.
    shift = np.uintp(order.size if delayed else 0)
    measure(b, first, shift, agents, lists, records, crew[0], rule, air, numbering, features[0])
    if table is not None:
        return add_up_declared(
            first, agents, order, records, crew, lists, rule, table, 0, True, now, features, True, said[3]
        )
    add_up_measured(first, agents, order, records, lists, rule, said[0], now, features[0], said[3])
    return True


@kernel
def hear_cells(
    records: Any,
    crew: Any,
    cells: Any,
    rules: Any,
    comm_radius: float,
    said: Any,
    now: Array,
    air: Any,
    first: Index,
    last: Index,
) -> bool:
    """What the agents in buckets first .. last of one flock know, into `now` (N, K * C * D); False if off the scale.

    `air` is None, or that of the flock: (number of the flock, air, and what `put_on_air` says of senders).
    """
    declared = said[1] is not None or air is not None
    memory = batch_memory(cells[0].size, records[0].shape[0], declared)
    return _hear_cells(records, crew, cells, rules, comm_radius, said, now, air, first, last, memory)


@kernel
def _hear_cells(
    records: Any,
    crew: Any,
    cells: Any,
    rules: Any,
    comm_radius: float,
    said: Any,
    now: Array,
    air: Any,
    first: Index,
    last: Index,
    memory: Any,
) -> bool:
    order, starts, shape, ranks = cells
    listing, rule, features = memory
    place, roles, lists = records[0], crew[0], listing[4]
    obstacles, most = (roles == OBSTACLE).any(), cells_per_block(starts, shape)
    fine, c, done = True, np.intp(first), np.uintp(0)
    while c < last:
        # Whom a batch of agents hears, after the obstacle rule, and what they make of it.
        s = starts[c] + done
        c, done, agents = list_batch(
            c, done, last, place, roles, order, starts, shape, most, comm_radius * comm_radius, listing, said[3]
        )
        if agents == 0:
            continue
        if air is not None:
            b, on_air, calls = air
            receive(b, s, agents, lists, (order, ranks), on_air, calls)
            if obstacles:
                own = s + np.uintp(order.size if on_air[2][1] else 0)
                apply_rule(own, agents, lists, records, roles, (order, ranks), rules, rule)
            fine &= take_from_air(
                b, s, agents, (order, ranks), records, crew, lists, rule, said, said[1], now, features, on_air
            )
        else:
            if obstacles:
                apply_rule(s, agents, lists, records, roles, (order, ranks), rules, rule)
            fine &= _add_up(s, agents, order, records, crew, lists, rule, said, said[1], obstacles, now, features)
    return fine


@kernel
def hear_flocks(
    positions: Array,
    velocities: Array,
    roles: Array,
    groups: Array,
    before: Array,
    rules: Any,
    comm_radius: float,
    said: Any,
    now: Array,
    active: Array,
    air: Any,
) -> bool:
    """What all agents of the active flocks know; False if one of them is off the scale.

    State and `before` are those of the step at which the messages were sent.
    """
    _, N, D = positions.shape
    order, starts, bucket = cell_list(N)
    unranked, calls = np.empty(0, np.int64), make_calls(N if air is not None else 0)
    older = before.shape[2] - first_hop(said[1], D)
    delayed = False if air is None else air[2][1]
    records = make_records(N, D, older, delayed)
    memory = batch_memory(N, D, said[1] is not None or air is not None)
    for b in active:
        # Sort the flock into cells and its records into cell order, then aggregate in all cells.
        shape = sort_into_cells(positions[b], comm_radius, order, starts, bucket)
        if shape[0] == 0 or not gather_records(positions[b], velocities[b], before[b], older, order, records, 0, N):
            return False
        buckets = shape[0] * shape[1] * shape[2]
        cells, crew = (order, starts, shape, unranked), (roles[b], groups[b])
        # Not a plain 0, as Numba compiles a kernel anew for every constant that it is called with.
        first = np.int64(0)
        if air is not None:
            if not put_on_air(b, order, unranked, records, older, air, calls, first, N):
                return False
            on_air = b, air, calls
            if not _hear_cells(records, crew, cells, rules, comm_radius, said, now[b], on_air, first, buckets, memory):
                return False
        elif not _hear_cells(records, crew, cells, rules, comm_radius, said, now[b], None, first, buckets, memory):
            return False
    return True


@kernel
def first_hop(table: Any, D: Index) -> Index:
    """How many numbers the first hop of an agent's block has, C * D."""
    if table is None:
        return PAPER_CHANNELS * D
    return len(table) * D


@kernel
def hear_listed(
    positions: Array,
    velocities: Array,
    roles: Array,
    groups: Array,
    before: Array,
    begins: Array,
    senders: Array,
    rules: Any,
    said: Any,
    now: Array,
    active: Array,
    air: Any,
) -> bool:
    """What all agents of the active flocks know if they hear the listed senders, at any distance."""
    _, N, D = positions.shape
    order, unranked = np.arange(N).astype(np.uintp), np.empty(0, np.int64)
    calls = make_calls(N if air is not None else 0)
    older = before.shape[2] - first_hop(said[1], D)
    delayed = False if air is None else air[2][1]
    shift = np.uintp(N if delayed else 0)
    records = make_records(N, D, older, delayed)
    listing, rule, features = batch_memory(N, D, said[1] is not None or air is not None)
    lists = listing[4]
    fine = True
    for b in active:
        if not gather_records(positions[b], velocities[b], before[b], older, order, records, 0, N):
            return False
        if air is not None and not put_on_air(b, order, unranked, records, older, air, calls, np.int64(0), N):
            return False
        crew, first = (roles[b], groups[b]), np.uintp(0)
        while first < N:
            # Records stand in the order of agents here, so the listed senders are the records heard.
            agents, end = np.uintp(0), np.uintp(0)
            while first + agents < N and agents < BATCH:
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
            if air is not None:
                receive(b, first, agents, lists, (order, unranked), air, calls)
            # The obstacle rule, for the plane only, where obstacles exist.
            if D == 2:
                apply_rule(first + shift, agents, lists, records, roles[b], (order, unranked), rules, rule)
            else:
                begin = np.uintp(0)
                for a in range(agents):
                    take_offsets(3, first + shift + a, records[0], lists, begin, lists[2][a])
                    begin = lists[2][a]
            if air is not None:
                fine &= take_from_air(
                    b,
                    first,
                    agents,
                    (order, unranked),
                    records,
                    crew,
                    lists,
                    rule,
                    said,
                    said[1],
                    now[b],
                    features,
                    air,
                )
            else:
                fine &= _add_up(
                    first, agents, order, records, crew, lists, rule, said, said[1], D == 2, now[b], features
                )
            first += agents
    return fine
