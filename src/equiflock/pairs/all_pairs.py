"""Sums of features over all pairs of a flock at any distance, for centralized laws.

Each agent is compared with all others, one block of agents at a time: time O(N^2), memory O(N). Each agent sums in the
order of agents, so blocks and threads do not change the result.
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
"""Distance up to which weights of features must be finite."""
BLOCK = 256
"""Agents per block; the buffers of a block fit into the L1 cache."""
PAIRS_PER_THREAD = 20_000
"""Minimum number of pairs per thread."""


def sum_over_all_pairs(
    flock: Flock, channels: tuple[Channel, ...], *, exclusion_radius: float = -1.0
) -> Float64[np.ndarray, "B N C D"]:
    """Return each channel aggregated over the whole flock, (B, N, C, D), for followers; zeros for other agents.

    Leaders and followers contribute unless they are silent or stopped. A mean divides by the number of contributing
    agents including the agent itself: 1/N times the sum for a whole flock. Runs on several threads. Raise
    NumericRangeError if a sum is not finite.

    Args:
        flock: the agents now.
        channels: features with their aggregation, as for `Senses`.
        exclusion_radius: agents within this distance are skipped; none are if it is negative.
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
    # Weights were checked at sample distances only; agents may be farther apart or faster.
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
    """Aggregate all channels for the followers among agents first .. last - 1 of all flocks; others stay unchanged.

    Args:
        positions: (B, N, D).
        velocities: (B, N, D).
        roles: (B, N).
        groups: (B, N).
        counted: (B, N), mask of contributing agents.
        table: the channels, a `ChannelTable`.
        squared_exclusion_radius: agents with |r_ij|^2 of at most this are skipped.
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
            # r_ij, v_ij, |r_ij|^2 and <r_ij, v_ij> of the contributing agents of the block.
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
            # Compute the weights of each channel, then sum weight times vector over the groups it is restricted to.
            for c in range(C):
                row = table[c]
                addresses = squares.ctypes.data, inners.ctypes.data, weights.ctypes.data
                call_loop(row[LOOP_ADDRESS], row[OPTIONS_ADDRESS], addresses[0], addresses[1], addresses[2], entries)  # type: ignore[call-arg]
                k, among = (D if row[IS_VELOCITY] else 0), row[AMONG_COLUMN]
                for e in range(entries):
                    # Obstacle agents do not contribute, so a channel among them is zero.
                    if among == AMONG_OBSTACLES:
                        continue
                    if among != AMONG_ALL and (groups[b, senders[e]] == groups[b, i]) != (among == AMONG_SAME):
                        continue
                    numbers[c] += 1.0
                    for d in range(D):
                        result[b, i, c, d] += weights[e] * vectors[k + d, e]
        # A mean counts the agent itself, with r_ii = v_ii = 0.
        for c in range(C):
            if table[c, IS_MEAN]:
                own = 1.0 if counted[b, i] and table[c, AMONG_COLUMN] in (AMONG_ALL, AMONG_SAME) else 0.0
                for d in range(D):
                    result[b, i, c, d] /= max(numbers[c] + own, 1.0)
