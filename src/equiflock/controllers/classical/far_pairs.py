"""Tanner's potential between agents that do not hear each other, for the law of section 2.2 whose U is not cut off.

Agents that are far from each other attract each other by 2 / |r|, which falls slowly, so nobody can be left out: O(N^2)
time, and memory O(N).
"""

from __future__ import annotations

import numpy as np

from equiflock.flock import FOLLOWER, OBSTACLE, Flock, Vectors
from equiflock.runtime import threads
from equiflock.runtime.jit import Array, Index, kernel

PAIRS_PER_THREAD = 20_000
"""Fewer pairs of agents than this are not worth a thread of their own."""


def gradients_beyond(flock: Flock) -> Vectors:
    """The sums of grad U over the agents of the flock that are farther than R, (B, N, D); each thread takes some."""
    B, N, _ = flock.shape
    result = np.zeros(flock.shape)
    counted = (flock.roles != OBSTACLE) & ~flock.muted
    common = flock.positions, flock.roles, counted, flock.comm_radius * flock.comm_radius, result
    rows = threads.split(B * N, max(1, PAIRS_PER_THREAD // N))
    threads.share(add_gradients_beyond, [(*common, *part) for part in rows])
    result.setflags(write=False)  # as the arrays of a flock are, so that kernels are compiled once
    return result


@kernel
def add_gradients_beyond(
    positions: Array, roles: Array, counted: Array, radius_squared: float, result: Array, first: Index, last: Index
) -> None:
    """Add up grad U(|r_ij|) over all j farther than R for the followers among the agents first .. last of all flocks.

    Args:
        positions: (B, N, D).
        roles: (B, N).
        counted: (B, N), who is added: neither obstacle agents nor those that send nothing.
        radius_squared: R^2. Whoever is within R is heard, and so part of observations.
        result: (B, N, D), zeros to which the sums are added.
        first: the first agent, b N + i for agent i of flock b.
        last: the one after the last.
    """
    _, N, D = positions.shape
    for agent in range(first, last):
        b, i = agent // N, agent % N
        if roles[b, i] != FOLLOWER:
            continue
        for j in range(N):
            square = 0.0
            for d in range(D):
                offset = positions[b, i, d] - positions[b, j, d]
                square += offset * offset
            if square <= radius_squared or not counted[b, j]:
                continue
            # grad U = 2 (1 / |r|^2 - 1 / |r|^4) r.
            weight = 2.0 * (1.0 - 1.0 / square) / square
            for d in range(D):
                result[b, i, d] += weight * (positions[b, i, d] - positions[b, j, d])
