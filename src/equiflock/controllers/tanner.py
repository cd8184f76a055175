"""Tanner's three control laws (sections 2.2 and 2.3 of the paper), all of the form

    a_i = - sum_j v_ij - sum_j grad U(|r_ij|),    U(r) = 1/r^2 + ln r^2,

so grad U(|r_ij|) = 2 (r_ij / |r_ij|^2 - r_ij / |r_ij|^4), which is a sum of the messages' channels. They differ in
whom the sums run over. All clamp |a_i|_2 <= C, which keeps them equivariant under rotation and reflection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from equiflock.checks import check_positive
from equiflock.controllers.registry import register
from equiflock.types import Flock, Messages, Neighbourhood, OneHop, Role, Vectors

DEFAULT_CLAMP = 100.0
OBSTACLE = int(Role.OBSTACLE)


@register("tanner")
@dataclass(frozen=True)
class Tanner:
    """The centralized expert: velocities over the whole flock, the potential over neighbours within R.

    U is constant beyond R, so the second sum needs the neighbours only, and the first is N v_i - sum_j v_j: O(N +
    edges) in all. The flock is leaders and followers; obstacle agents enter through the potential alone.

    Args:
        clamp: C, the largest norm of an acceleration; None for no clamp.
    """

    clamp: float | None = DEFAULT_CLAMP

    hops: ClassVar[int] = 1
    one_hop: ClassVar[OneHop] = "sum"
    privileged: ClassVar[Literal[True]] = True

    def __post_init__(self) -> None:
        _check_clamp(self.clamp)

    def __call__(self, flock: Flock, messages: Messages) -> Vectors:
        """Accelerations (B, N, D) from the flock and its one-hop sums (B, N, 1, 3, D)."""
        # Obstacle agents stand still and add nothing to the sum.
        total = flock.velocities.sum(axis=1, keepdims=True)
        count = (flock.roles != OBSTACLE).sum(axis=1)[:, None, None]
        return _clamped(total - count * flock.velocities - _potential_gradient(messages), self.clamp)


@register("tanner-dynamic")
@dataclass(frozen=True)
class TannerDynamic:
    """The decentralized law for a changing graph: both sums over whoever is within R now.

    Args:
        clamp: C, the largest norm of an acceleration; None for no clamp.
    """

    clamp: float | None = DEFAULT_CLAMP

    hops: ClassVar[int] = 1
    one_hop: ClassVar[OneHop] = "sum"

    def __post_init__(self) -> None:
        _check_clamp(self.clamp)

    def __call__(self, messages: Messages) -> Vectors:
        """Accelerations (B, N, D) from one-hop sums (B, N, 1, 3, D)."""
        return _clamped(-messages[:, :, 0, 0].astype(np.float64) - _potential_gradient(messages), self.clamp)


@register("tanner-fixed")
@dataclass(frozen=True)
class TannerFixed(TannerDynamic):
    """The decentralized law for a fixed graph: both sums over whoever was within R at t = 0, however far now.

    It is the same function of the messages as the dynamic law; only the messages come from other agents.

    Args:
        clamp: C, the largest norm of an acceleration; None for no clamp.
    """

    neighbourhood: ClassVar[Neighbourhood] = "frozen"


def _potential_gradient(messages: Messages) -> Vectors:
    """The sum over those heard of grad U(|r_ij|) = 2 (r_ij / |r_ij|^2 - r_ij / |r_ij|^4)."""
    one_hop = messages[:, :, 0].astype(np.float64)
    gradient: Vectors = 2.0 * (one_hop[:, :, 2] - one_hop[:, :, 1])
    return gradient


def _clamped(accelerations: Vectors, clamp: float | None) -> Vectors:
    """Shorten each vector to norm at most `clamp`, keeping its direction."""
    if clamp is None:
        return accelerations
    norms = np.sqrt(np.einsum("bnd,bnd->bn", accelerations, accelerations))
    shortened: Vectors = accelerations * (clamp / np.maximum(norms, clamp))[..., None]
    return shortened


def _check_clamp(clamp: float | None) -> None:
    if clamp is not None:
        check_positive("clamp", clamp)
