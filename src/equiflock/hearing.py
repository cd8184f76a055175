"""The kernels that `messages` is made of: what each agent learns from those it hears, added up in a fixed order.

The records of a flock are (place, motion, past): place and motion are positions and velocities padded
to three float64, past the first K - 1 hops of what each agent knew a step ago. In `before` and `now` an agent's
K x 3 x D block is one row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.cells import FASTEST, cell_list, into_cell_order, runs_around, select_heard, sort_into_cells, workspace
from equiflock.graph import FOLLOWER, OBSTACLE
from equiflock.kernels import Array, Index, inlined, kernel
from equiflock.orbit import hear_obstacles

SHORTEST = 1e-8
"""In psi, |r_ij| counts as at least this: coincident agents push each other nowhere, and nothing overflows."""


@kernel
def make_records(N: Index, width: Index, D: Index) -> tuple[Array, Array, Array]:
    """Memory for the records of N agents that know `width` = K * 3 * D numbers each."""
    past = np.empty((N, width - 3 * D), np.float32)
    return np.empty((N, 3), np.float64), np.empty((N, 3), np.float64), past


@kernel
def gather_records(
    positions: Array, velocities: Array, before: Array, order: Array, records: Any, first: Index, last: Index
) -> bool:
    """Copy agents first .. last into cell order; False if a vector is not finite or absurdly large."""
    place, motion, past = records
    into_cell_order(positions, order, place, first, last)
    into_cell_order(velocities, order, motion, first, last)
    fine = True
    for s in range(np.uintp(first), np.uintp(last)):
        for c in range(past.shape[1]):
            past[s, c] = before[order[s], c]
        for d in range(3):
            fine &= (abs(place[s, d]) <= FASTEST) & (abs(motion[s, d]) <= FASTEST)
    return fine


@inlined
def _tell(
    s: Index,
    i: Index,
    heard: Index,
    hits: Array,
    records: Any,
    mean: bool,
    D: Index,
    later: Array,
    now: Array,
    more_x: float,
    more_y: float,
) -> None:
    """Write into now[i] what agent i, whose record is s, learns from hits[:heard], added up in that order.

    (more_x, more_y) is added to the sum of v_ij.
    """
    place, motion, past = records
    x, y, z = place[s, 0], place[s, 1], place[s, 2]
    u, v, w = motion[s, 0], motion[s, 1], motion[s, 2]
    v0, v1, v2 = more_x, more_y, 0.0  # the sum of v_ij
    a0, a1, a2 = 0.0, 0.0, 0.0  # the sum of r_ij / |r_ij|^4
    b0, b1, b2 = 0.0, 0.0, 0.0  # the sum of r_ij / |r_ij|^2
    for c in range(later.size):
        later[c] = 0.0
    for h in range(heard):
        j = hits[h]
        dx, dy, dz = x - place[j, 0], y - place[j, 1], z - place[j, 2] if D == 3 else 0.0
        per_square = 1.0 / max(dx * dx + dy * dy + dz * dz, SHORTEST * SHORTEST)
        per_fourth = per_square * per_square
        v0, v1, v2 = v0 + (u - motion[j, 0]), v1 + (v - motion[j, 1]), v2 + (w - motion[j, 2])
        a0, a1, a2 = a0 + dx * per_fourth, a1 + dy * per_fourth, a2 + dz * per_fourth
        b0, b1, b2 = b0 + dx * per_square, b1 + dy * per_square, b2 + dz * per_square
        for c in range(later.size):
            later[c] += past[j, c]
    per_degree = 1.0 / float(max(heard, np.uintp(1)))
    scale = per_degree if mean else 1.0
    now[i, 0], now[i, 1] = v0 * scale, v1 * scale
    now[i, D], now[i, D + 1] = a0 * scale, a1 * scale
    now[i, 2 * D], now[i, 2 * D + 1] = b0 * scale, b1 * scale
    if D == 3:
        now[i, 2], now[i, 5], now[i, 8] = v2 * scale, a2 * scale, b2 * scale
    for c in range(later.size):
        now[i, 3 * D + c] = later[c] * np.float32(per_degree)


@inlined
def _hear_cells_of(
    D: Index,
    records: Any,
    roles: Array,
    cells: Any,
    rules: Any,
    radius: float,
    mean: bool,
    now: Array,
    first: Index,
    last: Index,
) -> None:
    order, starts, shape, ranks = cells
    place, motion, past = records
    runs, hits = workspace(place.shape[0])
    later = np.empty(past.shape[1], np.float32)
    obstacles = D == 2 and (roles == OBSTACLE).any()
    for c in range(first, last):
        if starts[c] == starts[c + 1]:
            continue
        count = runs_around(c, shape, starts, runs)
        for s in range(starts[c], starts[c + 1]):
            i = order[s]
            if roles[i] != FOLLOWER:
                now[i] = 0.0
                continue
            heard = select_heard(s, place, radius * radius, runs, count, hits, D)
            more_x, more_y = 0.0, 0.0
            if obstacles:
                heard, more_x, more_y = hear_obstacles(s, heard, hits, place, motion, roles, (order, ranks), rules)
            _tell(s, i, heard, hits, records, mean, D, later, now, more_x, more_y)


@kernel
def hear_cells(
    records: Any, roles: Array, cells: Any, rules: Any, radius: float, mean: bool, now: Array, first: Index, last: Index
) -> None:
    """What the agents in buckets first .. last of one flock know, into `now` (N, K * 3 * D)."""
    # The constant lets the compiler leave the third coordinate out in the plane.
    if cells[2][2] == 1:
        _hear_cells_of(2, records, roles, cells, rules, radius, mean, now, first, last)
    else:
        _hear_cells_of(3, records, roles, cells, rules, radius, mean, now, first, last)


@kernel
def hear_flocks(
    positions: Array,
    velocities: Array,
    roles: Array,
    before: Array,
    rules: Any,
    radius: float,
    mean: bool,
    now: Array,
    active: Array,
) -> bool:
    """What all agents of the active flocks know; False if one of them is out of range."""
    _, N, D = positions.shape
    order, starts, bucket = cell_list(N)
    unranked = np.empty(0, np.int64)
    records = make_records(N, before.shape[2], D)
    for b in active:
        shape = sort_into_cells(positions[b], radius, order, starts, bucket)
        if shape[0] == 0 or not gather_records(positions[b], velocities[b], before[b], order, records, 0, N):
            return False
        buckets = shape[0] * shape[1] * shape[2]
        cells = order, starts, shape, unranked
        hear_cells(records, roles[b], cells, rules, radius, mean, now[b], 0, buckets)
    return True


@kernel
def hear_listed(
    positions: Array,
    velocities: Array,
    roles: Array,
    before: Array,
    begins: Array,
    senders: Array,
    rules: Any,
    mean: bool,
    now: Array,
    active: Array,
) -> bool:
    """What all agents of the active flocks know if they hear the listed senders, at any distance."""
    _, N, D = positions.shape
    order, unranked = np.arange(N).astype(np.uintp), np.empty(0, np.int64)
    records = make_records(N, before.shape[2], D)
    place, motion, past = records
    later = np.empty(past.shape[1], np.float32)
    for b in active:
        if not gather_records(positions[b], velocities[b], before[b], order, records, 0, N):
            return False
        for i in range(np.uintp(N)):
            if roles[b, i] != FOLLOWER:
                now[b, i] = 0.0
                continue
            row = np.uintp(b * N) + i
            hits = senders[begins[row] : begins[row + np.uintp(1)]].copy()
            heard, more_x, more_y = np.uintp(hits.size), 0.0, 0.0
            if D == 2:
                heard, more_x, more_y = hear_obstacles(
                    i, heard, hits, place, motion, roles[b], (order, unranked), rules
                )
            _tell(i, i, heard, hits, records, mean, D, later, now[b], more_x, more_y)
    return True
