"""The kernel that adds up what one agent hears by channels of any declaration, in the order in which it hears.

`senders[begin : end]` are the records of those whom the agent with record s hears, obstacle agents after the obstacle
rule. The result goes to row i of `now`, the agent's K x C x D block. Sums of features are taken in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.flock import NO_GROUP, OBSTACLE
from equiflock.runtime.jit import Array, Index, kernel
from equiflock.senses.weights import ADDRESS, ALL, IS_MEAN, OF_VELOCITY, SAME, SHORTEST, WHOM, call_loop

LARGEST_SUM = 1e30
"""Sums of features beyond this could overflow a sum of sums in float32."""


@kernel
def neighbour_scratch(N: Index, width: Index) -> Any:
    """Memory for the features of one agent's neighbours, r_ij, v_ij, |r_ij|^2, <r_ij, v_ij> and weights, and a row."""
    return np.empty((N, 3)), np.empty((N, 3)), np.empty(N), np.empty(N), np.empty(N), np.empty(width, np.float32)


@kernel
def aggregate(
    s: Index,
    i: Index,
    begin: Index,
    end: Index,
    senders: Array,
    records: Any,
    order: Array,
    crew: Any,
    obstacle: Any,
    table: Array,
    now: Array,
    scratch: Any,
) -> bool:
    """Write into now[i] what agent i, whose record is s, learns from senders[begin : end] by the channels of a table.

    `obstacle` is what `sort_out_obstacles` found. False if a sum is not finite or absurdly large.
    """
    place, motion, past = records
    roles, groups = crew
    nearest, rim, taken_x, taken_y = obstacle
    offsets, relative, squares, inners, weights, later = scratch
    heard, D = end - begin, motion.shape[1]
    # Relative positions and velocities of those heard, the latter of obstacle agents by the obstacle rule.
    for h in range(heard):
        j = np.uintp(senders[begin + h])
        for d in range(D):
            offsets[h, d] = place[d, s] - place[d, j]
            relative[h, d] = motion[s, d] - motion[j, d]
        # The orbit technique gives the nearest obstacle agent a relative velocity of its own, any others none.
        if rim > 0 and roles[order[j]] == OBSTACLE:
            relative[h, 0] = taken_x if j == nearest else 0.0
            relative[h, 1] = taken_y if j == nearest else 0.0
        # |r_ij|^2 and <r_ij, v_ij>, of which weights are functions.
        square, inner = 0.0, 0.0
        for d in range(D):
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
            # A channel among the same group, or among others, leaves the rest out, and obstacle agents in any case.
            its, whom = groups[order[senders[begin + h]]], table[c, WHOM]
            if whom != ALL and (its == NO_GROUP or (its == groups[i]) != (whom == SAME)):
                continue
            x, y = x + weights[h] * vectors[h, 0], y + weights[h] * vectors[h, 1]
            z += weights[h] * vectors[h, 2] if D == 3 else 0.0
            counted += 1
        # A mean is over those counted; of nobody it is zero.
        scale = 1.0 / max(counted, 1) if table[c, IS_MEAN] else 1.0
        now[i, c * D], now[i, c * D + 1] = x * scale, y * scale
        if D == 3:
            now[i, c * D + 2] = z * scale
        fine &= (abs(x) <= LARGEST_SUM) & (abs(y) <= LARGEST_SUM) & (abs(z) <= LARGEST_SUM)
    # Hops 2 .. K: means over all those heard of what they knew a step before.
    older = now.shape[1] - C * D
    for n in range(older):
        later[n] = 0.0
    for h in range(heard):
        for n in range(older):
            later[n] += past[senders[begin + h], n]
    per_degree = np.float32(1.0 / float(max(heard, np.uintp(1))))
    for n in range(older):
        now[i, C * D + n] = later[n] * per_degree
    return fine
