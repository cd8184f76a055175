"""What the laws that are sums over pairs have in common.

A law names its channels, as `Senses` does, and makes an acceleration of their sums. In its centralized form the sums
run over the whole flock at any distance; cut off at R, they run over those that an agent hears, so every agent can fly
it by itself. A law that has both forms is one class of numbers and equations, and two short ones that say whom it sums
over.
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
"""What is observed beside a centralized law, which makes its sums of the flock itself: as little as can be."""
DEFAULT_CLAMP = 100.0
"""The largest norm of an acceleration, our choice, as for Tanner's laws: pushes at a touch have no limit otherwise."""


@dataclass(frozen=True)
class PairLaw(ABC):
    """A law that is a function of sums over pairs."""

    clamp: float | None = DEFAULT_CLAMP
    """The largest norm of an acceleration; none for the law as published."""

    def __post_init__(self) -> None:
        for each in fields(self):
            check_option(each.name, getattr(self, each.name), each.default)

    @property
    @abstractmethod
    def channels(self) -> tuple[Channel, ...]:
        """The features that are summed, or averaged."""

    @abstractmethod
    def compute_acceleration(self, sums: ChannelSums) -> Vectors:
        """Accelerations (B, N, D) from the sums of all channels (B, N, C, D), without the clamp."""


class CentralizedLaw(PairLaw):
    """A law whose sums run over the whole flock, in which a mean is 1/N times the sum.

    O(N^2) time in blocks, and memory O(N): meant for up to some 2,000 agents, at which a step takes a tenth of a second
    on one core. Obstacle agents, and agents that are silent or stopped, are left out: nobody avoids obstacles.
    """

    privileged: ClassVar[Literal[True]] = True
    senses: ClassVar[Senses] = MINIMAL_SENSES

    def __call__(self, flock: Flock, observations: Observations) -> Vectors:
        """Accelerations (B, N, D) from the flock; its observations are not looked at."""
        return clamp_norm(self.compute_acceleration(sum_over_all_pairs(flock, self.channels)), self.clamp)


class LocalLaw(PairLaw):
    """A law whose sums run over those that an agent hears, in which a mean is over these: O(N + edges).

    Obstacle agents are heard as agents that stand still, which is no way to avoid them.
    """

    @property
    def senses(self) -> Senses:
        """One hop of the law's channels."""
        return Senses(self.channels)

    def __call__(self, observations: Observations) -> Vectors:
        """Accelerations (B, N, D) from one-hop sums (B, N, 1, C, D)."""
        width = len(self.channels)
        if observations.ndim != 5 or observations.shape[2] < 1 or observations.shape[3] != width:
            raise InputError(f"observations must be of the shape (B, N, 1, {width}, D); got {observations.shape}")
        return clamp_norm(self.compute_acceleration(observations[:, :, 0].astype(np.float64)), self.clamp)


def check_option(name: str, value: object, default: object) -> None:
    """A clear error unless a number is finite and at least 0; words and points are checked by their own law."""
    if name == "clamp":
        if value is not None:
            check_positive("clamp", value)  # type: ignore[arg-type]
    elif is_finite(default) and (not is_finite(value) or value < 0):  # type: ignore[operator]
        raise InputError(f"{name} must be a finite number of at least 0; got {shorten_repr(value)}")


def clamp_norm(accelerations: Vectors, clamp: float | None) -> Vectors:
    """Min(1, C / |a|) a for each acceleration, which keeps a law equivariant."""
    if clamp is None:
        return accelerations
    norms = np.sqrt(np.square(accelerations).sum(axis=-1, keepdims=True))
    return np.asarray(accelerations * (clamp / np.maximum(norms, clamp)))
