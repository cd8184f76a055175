"""Base classes of laws that are functions of sums over pairs of agents.

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
from jaxtyping import Float64

from equiflock.features import Channel, Senses
from equiflock.flock import Flock, Observations, Vectors
from equiflock.pairs.all_pairs import sum_over_all_pairs
from equiflock.runtime.checks import InputError, check_positive, is_finite, shorten_repr

ChannelSums = Float64[np.ndarray, "B N C D"]
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
        for field in fields(self):
            check_option(field.name, getattr(self, field.name), field.default)

    @property
    @abstractmethod
    def channels(self) -> tuple[Channel, ...]:
        """Features to sum or average over pairs."""

    @abstractmethod
    def compute_acceleration(self, sums: ChannelSums) -> Vectors:
        """Return accelerations (B, N, D) from the sums of all channels (B, N, C, D), before the clamp."""


class CentralizedLaw(PairLaw):
    """A law whose sums run over the whole flock; a mean is 1/N times the sum.

    O(N^2) time, in blocks, and O(N) memory: meant for up to about 2,000 agents, for which a step takes 0.1 s on one
    core. Obstacle agents and silent or stopped agents are excluded, so agents do not avoid obstacles.
    """

    privileged: ClassVar[Literal[True]] = True
    senses: ClassVar[Senses] = MINIMAL_SENSES

    def __call__(self, flock: Flock, observations: Observations) -> Vectors:
        """Return accelerations (B, N, D) from the flock, zero for all but followers; observations are ignored."""
        return clamp_norm(self.compute_acceleration(sum_over_all_pairs(flock, self.channels)), self.clamp)


class LocalLaw(PairLaw):
    """A law whose sums and means run over an agent's neighbours: O(N + edges) time.

    Obstacle agents count as neighbours that stand still, which does not make agents avoid them.
    """

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


def check_option(name: str, value: object, default: object) -> None:
    """Raise InputError if a law's option is invalid.

    `clamp` must be None or above 0. An option whose default is a number must be finite and at least 0. Others, such as
    words and points, are not checked.
    """
    if name == "clamp":
        if value is not None:
            check_positive("clamp", value)  # type: ignore[arg-type]
    elif is_finite(default) and (not is_finite(value) or value < 0):  # type: ignore[operator]
        raise InputError(f"{name} must be a finite number of at least 0; got {shorten_repr(value)}")


def clamp_norm(accelerations: Vectors, clamp: float | None) -> Vectors:
    """Return min(1, clamp / |a|) a for each acceleration a, in a new array; for None the same array, not clamped."""
    if clamp is None:
        return accelerations
    norms = np.sqrt(np.square(accelerations).sum(axis=-1, keepdims=True))
    return np.asarray(accelerations * (clamp / np.maximum(norms, clamp)))
