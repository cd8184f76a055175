"""Base classes of laws that are functions of sums over pairs of agents, and these sums over all pairs of a flock.

A law declares its channels, as in `Senses`, and computes an acceleration from their sums. In the centralized form the
sums run over the whole flock at any distance; in the local form, cut off at R, they run over an agent's neighbours, so
the law is decentralized. A law with both forms has one class with its parameters and equations, and a short subclass
for each range of its sums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float, Float64

from equiflock._runtime import threads
from equiflock._runtime.checks import InputError, NumericRangeError, check_nonnegative, check_positive, is_finite
from equiflock._runtime.jit import Array, Index, kernel
from equiflock.features import Channel, Senses
from equiflock.flock import FOLLOWER, LEADER, OBSTACLE, Flock, Observations, Vectors
from equiflock.observations.feature_weights import (
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
    agents including the agent itself: 1/N times the sum for a whole flock. Agents within `exclusion_radius`, if it is
    not negative, are skipped. Raise NumericRangeError if a sum is not finite.

    Each agent is compared with all others, one block of agents at a time, on several threads: time O(N^2), memory O(N).
    It sums in the order of agents, so blocks and threads do not change the result.
    """
    B, N, D = flock.shape
    table = build_channel_table(channels, MAX_DISTANCE)
    result = np.zeros((B, N, len(channels), D))
    counted = (flock.roles != OBSTACLE) & ~flock.muted
    squared_exclusion_radius = exclusion_radius * exclusion_radius if exclusion_radius >= 0.0 else -1.0
    agents = flock.positions, flock.velocities, flock.roles, flock.groups, counted
    common = *agents, table, squared_exclusion_radius, result
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
    """Aggregate all channels for the followers among agents first .. last - 1, b N + i for agent i of flock b.

    `counted` (B, N) is the mask of contributing agents, `table` a `ChannelTable`, and `result` (B, N, C, D) must be
    zeros. Agents with |r_ij|^2 of at most `squared_exclusion_radius` are skipped.
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


ChannelSums = Float64[np.ndarray, "B N C D"]
Vector = Float64[np.ndarray, " D"]
"""A term of one agent's acceleration."""
MINIMAL_SENSES = Senses((("velocity", "mean"),))
"""Observations of a centralized law, which computes its sums from the flock: the fewest possible."""
DEFAULT_CLAMP = 100.0
"""Largest norm of an acceleration, chosen as for Tanner's laws: repulsion is unbounded at contact."""


@dataclass(frozen=True)
class PairLaw(ABC):
    """A law that is a function of sums over pairs of agents."""

    clamp: float | None = DEFAULT_CLAMP
    """Largest norm of an acceleration; None for the law as published."""

    def __post_init__(self) -> None:
        """Raise InputError if a numeric option is not finite and at least 0, or the clamp not None or above 0."""
        if self.clamp is not None:
            check_positive("clamp", self.clamp)
        for field in fields(self):
            if field.name != "clamp" and is_finite(field.default):
                check_nonnegative(field.name, getattr(self, field.name))

    @property
    @abstractmethod
    def channels(self) -> tuple[Channel, ...]:
        """Features to sum or average over pairs."""

    @abstractmethod
    def compute_acceleration(self, sums: ChannelSums) -> Vectors:
        """Return accelerations (B, N, D), linear in the sums of all channels (B, N, C, D), before the clamp."""

    term_names: ClassVar[tuple[str, ...]]
    """Name of the term of each channel, such as "alignment"."""

    def split_acceleration(self, sums: ChannelSums) -> dict[str, Vector]:
        """Return the terms (D,) of one agent from its sums (1, 1, C, D): the law with all other channels at zero."""
        terms = {}
        for c, name in enumerate(self.term_names):
            alone = np.zeros_like(sums)
            alone[:, :, c] = sums[:, :, c]
            terms[name] = self.compute_acceleration(alone)[0, 0]
        return terms


class CentralizedLaw(PairLaw):
    """A law whose sums run over the whole flock; a mean is 1/N times the sum."""

    privileged: ClassVar[Literal[True]] = True
    senses: ClassVar[Senses] = MINIMAL_SENSES

    def __call__(self, flock: Flock, observations: Observations) -> Vectors:
        """Return accelerations (B, N, D) from the flock, zero for all but followers; observations are ignored."""
        return clamp_norm(self.compute_acceleration(sum_over_all_pairs(flock, self.channels)), self.clamp)

    def compute_terms(
        self, observation: Float[np.ndarray, "K C D"], flock: Flock | None, agent: int
    ) -> dict[str, Vector]:
        """Return the terms of a follower's acceleration, one per channel, from a flock in a batch of one."""
        assert flock is not None
        return clamp_terms(self.split_acceleration(sum_for_agent(flock, agent, self.channels)), self.clamp)


class LocalLaw(PairLaw):
    """A law whose sums and means run over an agent's neighbours: O(N + edges) time."""

    @property
    def senses(self) -> Senses:
        """One hop of the law's channels."""
        return Senses(self.channels)

    def __call__(self, observations: Observations) -> Vectors:
        """Return accelerations (B, N, D) from one-hop sums (B, N, 1, C, D)."""
        width = len(self.channels)
        if observations.ndim != 5 or observations.shape[2] < 1 or observations.shape[3] != width:
            raise InputError(f"observations must have the shape (B, N, 1, {width}, D); got {observations.shape}")
        return clamp_norm(self.compute_acceleration(observations[:, :, 0].astype(np.float64)), self.clamp)

    def compute_terms(
        self, observation: Float[np.ndarray, "K C D"], flock: Flock | None, agent: int
    ) -> dict[str, Vector]:
        """Return the terms of a follower's acceleration, one per channel."""
        return clamp_terms(self.split_acceleration(observation[None, :1].astype(np.float64)), self.clamp)


def sum_for_agent(
    flock: Flock, agent: int, channels: tuple[Channel, ...], *, exclusion_radius: float = -1.0
) -> ChannelSums:
    """Return the sums (1, 1, C, D) of one follower of a single flock, as `sum_over_all_pairs`, in O(N) time."""
    # Leaders contribute as followers do, and have no sums.
    roles = np.where(flock.roles == OBSTACLE, flock.roles, np.int8(LEADER))
    roles[0, agent] = FOLLOWER
    arrays = flock.arrays._replace(roles=roles)
    alone = Flock.view(*arrays, comm_radius=flock.comm_radius)
    return sum_over_all_pairs(alone, channels, exclusion_radius=exclusion_radius)[:, agent : agent + 1]


def clamp_terms(terms: dict[str, Vector], clamp: float | None) -> dict[str, Vector]:
    """Return the terms (D,), scaled by one factor such that the norm of their sum is at most `clamp`."""
    total = np.sum(list(terms.values()), axis=0)
    factor = 1.0 if clamp is None else clamp / max(float(np.linalg.norm(total)), clamp)
    return {name: np.asarray(factor * vector) for name, vector in terms.items()}


def clamp_norm(accelerations: Vectors, clamp: float | None) -> Vectors:
    """Return min(1, clamp / |a|) a for each acceleration a, in a new array; for None the same array, not clamped."""
    if clamp is None:
        return accelerations
    norms = np.sqrt(np.square(accelerations).sum(axis=-1, keepdims=True))
    return np.asarray(accelerations * (clamp / np.maximum(norms, clamp)))
