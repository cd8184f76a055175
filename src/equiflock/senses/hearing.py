"""The kernels that `aggregation` is made of: what each agent learns from those it hears, added up in a fixed order.

The records of a flock are (place, motion, past): place and motion are positions and velocities padded
to three float64, past the first K - 1 hops of what each agent knew a step ago. In `before` and `now` an agent's
K x C x D block is one row. Further arguments of these kernels:

    crew    (roles, groups) of the agents, each (N,)
    rules   the obstacle rule: is only the nearest obstacle agent heard, do followers orbit, and `Orbit.numbers`
    said    (mean, table): whether the paper's three channels are averaged, and the `ChannelTable` of any others
"""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.flock import FOLLOWER, OBSTACLE
from equiflock.runtime.jit import Array, Index, inlined, kernel
from equiflock.senses.cells import (
    FASTEST,
    cell_list,
    into_cell_order,
    runs_around,
    select_heard,
    sort_into_cells,
    workspace,
)
from equiflock.senses.orbit import sort_out_obstacles
from equiflock.senses.sums import PAPER_CHANNELS, aggregate, aggregate_paper, neighbour_scratch


@kernel
def make_records(N: Index, width: Index, heard: Index) -> tuple[Array, Array, Array]:
    """Memory for the records of N agents that know `width` = K * C * D numbers each, `heard` of them of hop 1."""
    past = np.empty((N, width - heard), np.float32)
    return np.empty((N, 3), np.float64), np.empty((N, 3), np.float64), past


@kernel
def gather_records(
    positions: Array, velocities: Array, before: Array, order: Array, records: Any, first: Index, last: Index
) -> bool:
    """Copy agents first .. last into cell order; False if a vector is not finite or absurdly large."""
    place, motion, past = records
    into_cell_order(positions, order, place, first, last)
    into_cell_order(velocities, order, motion, first, last)
    # Hops 1 .. K - 1 of a step ago become hops 2 .. K now; and nothing may overflow float32 later.
    fine = True
    for s in range(np.uintp(first), np.uintp(last)):
        for c in range(past.shape[1]):
            past[s, c] = before[order[s], c]
        for d in range(3):
            fine &= (abs(place[s, d]) <= FASTEST) & (abs(motion[s, d]) <= FASTEST)
    return fine


@inlined
def _hear_cells_of(
    D: Index,
    records: Any,
    crew: Any,
    cells: Any,
    rules: Any,
    comm_radius: float,
    said: Any,
    now: Array,
    first: Index,
    last: Index,
) -> bool:
    order, starts, shape, ranks = cells
    place, motion, past = records
    roles, _ = crew
    mean, table = said
    runs, hits = workspace(place.shape[0])
    later = np.empty(past.shape[1], np.float32)
    scratch = neighbour_scratch(place.shape[0] if len(table) > 0 else 0)
    obstacles = D == 2 and (roles == OBSTACLE).any()
    fine = True
    for c in range(first, last):
        if starts[c] == starts[c + 1]:
            continue
        # The runs of agents around a cell are the same for all its agents.
        count = runs_around(c, shape, starts, runs)
        for s in range(starts[c], starts[c + 1]):
            i = order[s]
            if roles[i] != FOLLOWER:
                now[i] = 0.0
                continue
            # Whom it hears; the obstacle rule then decides which obstacle agents count, and with which velocity.
            heard = select_heard(s, place, comm_radius * comm_radius, runs, count, hits, D)
            nearest, rim, taken_x, taken_y = s, 0, 0.0, 0.0
            if obstacles:
                heard, nearest, rim, taken_x, taken_y = sort_out_obstacles(
                    s, heard, hits, place, motion, roles, (order, ranks), rules
                )
            # What it makes of them. A function for this step, shared with `hear_listed`, costs 70% more time.
            if len(table) > 0:
                obstacle = nearest, rim, taken_x, taken_y
                fine &= aggregate(s, i, heard, hits, records, order, crew, obstacle, table, D, later, now, scratch)
            else:
                more_x, more_y = taken_x - rim * motion[s, 0], taken_y - rim * motion[s, 1]
                aggregate_paper(s, i, heard, hits, records, mean, D, later, now, more_x, more_y)
    return fine


@kernel
def hear_cells(
    records: Any,
    crew: Any,
    cells: Any,
    rules: Any,
    comm_radius: float,
    said: Any,
    now: Array,
    first: Index,
    last: Index,
) -> bool:
    """What the agents in buckets first .. last of one flock know, into `now` (N, K * C * D); False if off the scale."""
    # The constant lets the compiler leave the third coordinate out in the plane.
    if cells[2][2] == 1:
        return _hear_cells_of(2, records, crew, cells, rules, comm_radius, said, now, first, last)
    return _hear_cells_of(3, records, crew, cells, rules, comm_radius, said, now, first, last)


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
) -> bool:
    """What all agents of the active flocks know; False if one of them is off the scale."""
    _, N, D = positions.shape
    order, starts, bucket = cell_list(N)
    unranked = np.empty(0, np.int64)
    records = make_records(N, before.shape[2], first_hop(said, D))
    for b in active:
        shape = sort_into_cells(positions[b], comm_radius, order, starts, bucket)
        if shape[0] == 0 or not gather_records(positions[b], velocities[b], before[b], order, records, 0, N):
            return False
        buckets = shape[0] * shape[1] * shape[2]
        cells, crew = (order, starts, shape, unranked), (roles[b], groups[b])
        if not hear_cells(records, crew, cells, rules, comm_radius, said, now[b], 0, buckets):
            return False
    return True


@kernel
def first_hop(said: Any, D: Index) -> Index:
    """How many numbers the first hop of an agent's block has, C * D."""
    return (len(said[1]) if len(said[1]) > 0 else PAPER_CHANNELS) * D


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
) -> bool:
    """What all agents of the active flocks know if they hear the listed senders, at any distance."""
    _, N, D = positions.shape
    mean, table = said
    order, unranked = np.arange(N).astype(np.uintp), np.empty(0, np.int64)
    records = make_records(N, before.shape[2], first_hop(said, D))
    place, motion, past = records
    later = np.empty(past.shape[1], np.float32)
    scratch = neighbour_scratch(N if len(table) > 0 else 0)
    fine = True
    for b in active:
        if not gather_records(positions[b], velocities[b], before[b], order, records, 0, N):
            return False
        crew = roles[b], groups[b]
        for i in range(np.uintp(N)):
            if roles[b, i] != FOLLOWER:
                now[b, i] = 0.0
                continue
            # Records stand in the order of agents here, so the listed senders are the records heard.
            row = np.uintp(b * N) + i
            hits = senders[begins[row] : begins[row + np.uintp(1)]].copy()
            heard, nearest, rim, taken_x, taken_y = np.uintp(hits.size), i, 0, 0.0, 0.0
            if D == 2:
                heard, nearest, rim, taken_x, taken_y = sort_out_obstacles(
                    i, heard, hits, place, motion, crew[0], (order, unranked), rules
                )
            if len(table) > 0:
                obstacle = nearest, rim, taken_x, taken_y
                fine &= aggregate(i, i, heard, hits, records, order, crew, obstacle, table, D, later, now[b], scratch)
            else:
                more_x, more_y = taken_x - rim * motion[i, 0], taken_y - rim * motion[i, 1]
                aggregate_paper(i, i, heard, hits, records, mean, D, later, now[b], more_x, more_y)
    return fine
