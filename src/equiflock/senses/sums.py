"""The kernels that add up what one agent hears, in the order in which it hears: the paper's channels, or any others.

Records are (place, motion, past): positions and velocities padded to three float64, and the first K - 1 hops of what
each agent knew a step ago. `hits[:heard]` are the records of those whom the agent with record s hears, obstacle agents
after the obstacle rule. The result goes to row i of `now`, the agent's K x C x D block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.features import PAPER_FEATURES
from equiflock.flock import NO_GROUP, OBSTACLE
from equiflock.runtime.jit import Array, Index, inlined, kernel
from equiflock.senses.weights import ADDRESS, ALL, IS_MEAN, OF_VELOCITY, SAME, SHORTEST, WHOM, call_loop

PAPER_CHANNELS = len(PAPER_FEATURES)
LARGEST_SUM = 1e30
"""Sums of features beyond this could overflow a sum of sums in float32."""


@inlined
def aggregate_paper(
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
def neighbour_scratch(N: Index) -> Any:
    """Memory for the features of one agent's neighbours: r_ij, v_ij, |r_ij|^2, <r_ij, v_ij> and weights."""
    return np.empty((N, 3)), np.empty((N, 3)), np.empty(N), np.empty(N), np.empty(N)


@kernel
def aggregate(
    s: Index,
    i: Index,
    heard: Index,
    hits: Array,
    records: Any,
    order: Array,
    crew: Any,
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
    roles, groups = crew
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
