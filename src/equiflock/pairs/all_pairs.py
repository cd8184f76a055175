"""Sums of features over all pairs of a flock, at any distance: what the centralized laws are made of.

Every agent compares itself with everybody else, a block of agents at a time: O(N^2) time, and memory O(N). Each agent
adds up in the order of numbers, so neither blocks nor threads show in the result.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from equiflock.features import Channel
from equiflock.flock import FOLLOWER, OBSTACLE, Flock
from equiflock.pairs.feature_weights import (
    AMONG_ALL,
    AMONG_COLUMN,
    AMONG_OBSTACLES,
    AMONG_SAME,
    IS_MEAN,
    IS_VELOCITY,
    LOOP_ADDRESS,
    MIN_DISTANCE,
    OPTIONS_ADDRESS,
    build_channel_table,
    call_loop,
)
from equiflock.runtime import threads
from equiflock.runtime.checks import NumericRangeError
from equiflock.runtime.jit import Array, Index, kernel

MAX_DISTANCE = 1e6
"""The weights of features must be finite up to this distance."""
BLOCK = 256
"""Agents that an agent is compared with at once: what is known of them stays in the processor's nearest cache."""
PAIRS_PER_THREAD = 20_000
"""Fewer pairs of agents than this are not worth a thread of their own."""


def sum_over_all_pairs(
    flock: Flock, channels: tuple[Channel, ...], *, exclusion_radius: float = -1.0
) -> Float64[np.ndarray, "B N C D"]:
    """Each channel summed over the whole flock, for the followers; zeros for all others.

    The flock is leaders and followers, without those that are silent or stopped. A mean is the sum over the number of
    agents that it is made of, the agent itself counted among its own kind: 1/N times the sum, for all of a flock.

    Args:
        flock: at one instant.
        channels: features with their aggregation, as for `Senses`.
        exclusion_radius: a distance within which nobody is counted; everybody is if it is negative.
    """
    B, N, D = flock.shape
    table = build_channel_table(channels, MAX_DISTANCE)
    result = np.zeros((B, N, len(channels), D))
    counted = (flock.roles != OBSTACLE) & ~flock.muted
    squared_exclusion_radius = exclusion_radius * exclusion_radius if exclusion_radius >= 0.0 else -1.0
    common = (
        flock.positions,
        flock.velocities,
        flock.roles,
        flock.groups,
        counted,
        table,
        squared_exclusion_radius,
        result,
    )
    rows = threads.split_range(B * N, max(1, PAIRS_PER_THREAD // N))
    threads.run_parallel(add_all_pairs, [(*common, *part) for part in rows])
    # Weights are finite where they were tried; agents may be farther apart than that, or faster.
    if not np.isfinite(result).all():
        names = ", ".join(dict.fromkeys(name for name, _ in channels))
        raise NumericRangeError(f"sums of features must be finite numbers; one of {names} is off the scale")
    return result


@kernel
def add_all_pairs(
    positions: Array,
    velocities: Array,
    roles: Array,
    groups: Array,
    counted: Array,
    table: Array,
    squared_exclusion_radius: float,
    result: Array,
    first: Index,
    last: Index,
) -> None:
    """Add up all channels for the followers among the agents first .. last of all flocks.

    Args:
        positions: (B, N, D).
        velocities: (B, N, D).
        roles: (B, N).
        groups: (B, N).
        counted: (B, N), who is added.
        table: the channels, a `ChannelTable`.
        squared_exclusion_radius: agents whose |r_ij|^2 is at most this are left out.
        result: (B, N, C, D), zeros.
        first: the first agent, b N + i for agent i of flock b.
        last: the one after the last.
    """
    _, N, D = positions.shape
    C = table.shape[0]
    vectors, senders = np.empty((2 * D, BLOCK)), np.empty(BLOCK, np.int64)
    squares, inners, weights = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    numbers = np.empty(C)
    for agent in range(first, last):
        b, i = agent // N, agent % N
        if roles[b, i] != FOLLOWER:
            continue
        numbers[:] = 0.0
        for begin in range(0, N, BLOCK):
            # r_ij, v_ij, |r_ij|^2 and <r_ij, v_ij> of those in the block who count.
            entries = 0
            for j in range(begin, min(begin + BLOCK, N)):
                if j == i or not counted[b, j]:
                    continue
                square, inner = 0.0, 0.0
                for d in range(D):
                    r, v = positions[b, i, d] - positions[b, j, d], velocities[b, i, d] - velocities[b, j, d]
                    vectors[d, entries], vectors[D + d, entries] = r, v
                    square, inner = square + r * r, inner + r * v
                if square > squared_exclusion_radius:
                    squares[entries], inners[entries] = max(square, MIN_DISTANCE * MIN_DISTANCE), inner
                    senders[entries] = j
                    entries += 1
            # The weights of a channel, then its sum over those of the groups that it is made of.
            for c in range(C):
                row = table[c]
                known = squares.ctypes.data, inners.ctypes.data, weights.ctypes.data
                call_loop(row[LOOP_ADDRESS], row[OPTIONS_ADDRESS], known[0], known[1], known[2], entries)  # type: ignore[call-arg]
                k, whom = (D if row[IS_VELOCITY] else 0), row[AMONG_COLUMN]
                for e in range(entries):
                    # Obstacle agents are not counted, so a channel among them is zero.
                    if whom == AMONG_OBSTACLES:
                        continue
                    if whom != AMONG_ALL and (groups[b, senders[e]] == groups[b, i]) != (whom == AMONG_SAME):
                        continue
                    numbers[c] += 1.0
                    for d in range(D):
                        result[b, i, c, d] += weights[e] * vectors[k + d, e]
        # A mean counts the agent itself, whose own r_ii and v_ii are zero.
        for c in range(C):
            if table[c, IS_MEAN]:
                own = 1.0 if counted[b, i] and table[c, AMONG_COLUMN] in (AMONG_ALL, AMONG_SAME) else 0.0
                for d in range(D):
                    result[b, i, c, d] /= max(numbers[c] + own, 1.0)
