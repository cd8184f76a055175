"""The kernels that `aggregation` is made of: what each agent learns from those it hears, added up in a fixed order.

The records of a flock are (place, motion, past): place and motion are positions and velocities padded
to three float64, past the first K - 1 hops of what each agent knew a step ago. In `before` and `now` an agent's
K x C x D block is one row. `listener` kernels work by (roles, groups), each (N,), and `said` is (mean, table): whether
the paper's three channels are averaged, and the `ChannelTable` of any others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.features import PAPER_FEATURES
from equiflock.flock import FOLLOWER, NO_GROUP, OBSTACLE
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
from equiflock.senses.weights import ADDRESS, ALL, IS_MEAN, OF_VELOCITY, SAME, SHORTEST, WHOM, call_loop

PAPER_CHANNELS = len(PAPER_FEATURES)
LARGEST_SUM = 1e30
"""Sums of features beyond this could overflow a sum of sums in float32."""


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
    fine = True
    for s in range(np.uintp(first), np.uintp(last)):
        for c in range(past.shape[1]):
            past[s, c] = before[order[s], c]
        for d in range(3):
            fine &= (abs(place[s, d]) <= FASTEST) & (abs(motion[s, d]) <= FASTEST)
    return fine


@inlined
def _aggregate_paper(
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
    """Write into now[i] what agent i, whose record is s, learns from hits[:heard] by the paper's three channels.

    All sums run in the order of `hits`. (more_x, more_y) is added to the sum of v_ij.
    """
    place, motion, past = records
    x, y, z = place[s, 0], place[s, 1], place[s, 2]
    u, v, w = motion[s, 0], motion[s, 1], motion[s, 2]
    v0, v1, v2 = more_x, more_y, 0.0  # the sum of v_ij
    a0, a1, a2 = 0.0, 0.0, 0.0  # the sum of r_ij / |r_ij|^4
    b0, b1, b2 = 0.0, 0.0, 0.0  # the sum of r_ij / |r_ij|^2
    for c in range(later.size):
        later[c] = 0.0
    # One pass over those heard: psi of hop 1, and what they knew a step before for hops 2 .. K.
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
    # Hop 1 is the sum or the mean, hops 2 .. K are means.
    per_degree = 1.0 / float(max(heard, np.uintp(1)))
    scale = per_degree if mean else 1.0
    now[i, 0], now[i, 1] = v0 * scale, v1 * scale
    now[i, D], now[i, D + 1] = a0 * scale, a1 * scale
    now[i, 2 * D], now[i, 2 * D + 1] = b0 * scale, b1 * scale
    if D == 3:
        now[i, 2], now[i, 5], now[i, 8] = v2 * scale, a2 * scale, b2 * scale
    for c in range(later.size):
        now[i, 3 * D + c] = later[c] * np.float32(per_degree)


@kernel
def _scratch(N: Index) -> Any:
    """Memory for the features of one agent's neighbours: r_ij, v_ij, |r_ij|^2, <r_ij, v_ij> and weights."""
    return np.empty((N, 3)), np.empty((N, 3)), np.empty(N), np.empty(N), np.empty(N)


@kernel
def _aggregate(
    s: Index,
    i: Index,
    heard: Index,
    hits: Array,
    records: Any,
    order: Array,
    listener: Any,
    obstacle: Any,
    table: Array,
    D: Index,
    later: Array,
    now: Array,
    scratch: Any,
) -> bool:
    """Write into now[i] what agent i, whose record is s, learns from hits[:heard] by the channels of a table.

    `obstacle` is what `sort_out_obstacles` found. False if a sum is not finite or absurdly large.
    """
    place, motion, past = records
    roles, groups = listener
    nearest, rim, taken_x, taken_y = obstacle
    offsets, relative, squares, inners, weights = scratch
    # Relative positions and velocities of those heard, the latter of obstacle agents by the obstacle rule.
    for h in range(heard):
        j = hits[h]
        for d in range(3):
            offsets[h, d] = place[s, d] - place[j, d]
            relative[h, d] = motion[s, d] - motion[j, d]
        if rim > 0 and roles[order[j]] == OBSTACLE:
            relative[h, 0] = taken_x if j == nearest else 0.0
            relative[h, 1] = taken_y if j == nearest else 0.0
        square, inner = 0.0, 0.0
        for d in range(3):
            square += offsets[h, d] * offsets[h, d]
            inner += offsets[h, d] * relative[h, d]
        squares[h], inners[h] = max(square, SHORTEST * SHORTEST), inner
    # Hop 1, channel by channel: weights of all those heard at once, then the sum of the vectors that they multiply.
    fine, C = True, table.shape[0]
    for c in range(C):
        pointers = squares.ctypes.data, inners.ctypes.data, weights.ctypes.data
        call_loop(table[c, ADDRESS], pointers[0], pointers[1], pointers[2], np.intp(heard))  # type: ignore[call-arg]
        vectors = relative if table[c, OF_VELOCITY] else offsets
        x, y, z, counted = 0.0, 0.0, 0.0, 0
        for h in range(heard):
            its, whom = groups[order[hits[h]]], table[c, WHOM]
            if whom != ALL and (its == NO_GROUP or (its == groups[i]) != (whom == SAME)):
                continue
            x, y, z = (
                x + weights[h] * vectors[h, 0],
                y + weights[h] * vectors[h, 1],
                z + weights[h] * vectors[h, 2],
            )
            counted += 1
        scale = 1.0 / max(counted, 1) if table[c, IS_MEAN] else 1.0
        now[i, c * D], now[i, c * D + 1] = x * scale, y * scale
        if D == 3:
            now[i, c * D + 2] = z * scale
        fine &= (abs(x) <= LARGEST_SUM) & (abs(y) <= LARGEST_SUM) & (abs(z) <= LARGEST_SUM)
    # Hops 2 .. K: means over all those heard of what they knew a step before.
    for n in range(later.size):
        later[n] = 0.0
    for h in range(heard):
        for n in range(later.size):
            later[n] += past[hits[h], n]
    per_degree = np.float32(1.0 / float(max(heard, np.uintp(1))))
    for n in range(later.size):
        now[i, C * D + n] = later[n] * per_degree
    return fine


@inlined
def _hear_cells_of(
    D: Index,
    records: Any,
    listener: Any,
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
    roles, _ = listener
    mean, table = said
    runs, hits = workspace(place.shape[0])
    later = np.empty(past.shape[1], np.float32)
    scratch = _scratch(place.shape[0] if len(table) > 0 else 0)
    obstacles = D == 2 and (roles == OBSTACLE).any()
    fine = True
    # Cell by cell: the runs of agents around it are the same for all its agents.
    for c in range(first, last):
        if starts[c] == starts[c + 1]:
            continue
        count = runs_around(c, shape, starts, runs)
        for s in range(starts[c], starts[c + 1]):
            i = order[s]
            if roles[i] != FOLLOWER:
                now[i] = 0.0
                continue
            heard = select_heard(s, place, comm_radius * comm_radius, runs, count, hits, D)
            nearest, rim, taken_x, taken_y = s, 0, 0.0, 0.0
            if obstacles:
                heard, nearest, rim, taken_x, taken_y = sort_out_obstacles(
                    s, heard, hits, place, motion, roles, (order, ranks), rules
                )
            if len(table) > 0:
                obstacle = nearest, rim, taken_x, taken_y
                fine &= _aggregate(s, i, heard, hits, records, order, listener, obstacle, table, D, later, now, scratch)
            else:
                more_x, more_y = taken_x - rim * motion[s, 0], taken_y - rim * motion[s, 1]
                _aggregate_paper(s, i, heard, hits, records, mean, D, later, now, more_x, more_y)
    return fine


@kernel
def hear_cells(
    records: Any,
    listener: Any,
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
        return _hear_cells_of(2, records, listener, cells, rules, comm_radius, said, now, first, last)
    return _hear_cells_of(3, records, listener, cells, rules, comm_radius, said, now, first, last)


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
        cells, listener = (order, starts, shape, unranked), (roles[b], groups[b])
        if not hear_cells(records, listener, cells, rules, comm_radius, said, now[b], 0, buckets):
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
    scratch = _scratch(N if len(table) > 0 else 0)
    fine = True
    for b in active:
        if not gather_records(positions[b], velocities[b], before[b], order, records, 0, N):
            return False
        for i in range(np.uintp(N)):
            if roles[b, i] != FOLLOWER:
                now[b, i] = 0.0
                continue
            row = np.uintp(b * N) + i
            hits = senders[begins[row] : begins[row + np.uintp(1)]].copy()
            heard, nearest, rim, taken_x, taken_y = np.uintp(hits.size), i, 0, 0.0, 0.0
            if D == 2:
                heard, nearest, rim, taken_x, taken_y = sort_out_obstacles(
                    i, heard, hits, place, motion, roles[b], (order, unranked), rules
                )
            if len(table) > 0:
                listener, obstacle = (roles[b], groups[b]), (nearest, rim, taken_x, taken_y)
                fine &= _aggregate(
                    i, i, heard, hits, records, order, listener, obstacle, table, D, later, now[b], scratch
                )
            else:
                more_x, more_y = taken_x - rim * motion[i, 0], taken_y - rim * motion[i, 1]
                _aggregate_paper(i, i, heard, hits, records, mean, D, later, now[b], more_x, more_y)
    return fine
