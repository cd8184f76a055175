"""Tanner's three control laws (sections 2.2 and 2.3 of the paper), all of the form

    a_i = - sum_j v_ij - sum_j grad U(|r_ij|),    U(r) = 1/r^2 + ln r^2,

so grad U(|r_ij|) = 2 (r_ij / |r_ij|^2 - r_ij / |r_ij|^4), which is a sum of the paper's features. They differ in
whom the sums run over. All clamp |a_i|_2 <= C, which keeps them equivariant under rotation and reflection.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from equiflock.controllers.registry import controller
from equiflock.features import Senses, paper_senses
from equiflock.flock import OBSTACLE, Flock, Observations, Vectors
from equiflock.runtime.checks import check_positive

DEFAULT_CLAMP = 100.0
SUMS = paper_senses("sum", hops=1)


@controller("tanner")
@dataclass(frozen=True)
class Tanner:
    """The centralized expert: velocities over the whole flock, the potential over neighbours within R.

    U is constant beyond R, so the second sum needs the neighbours only, and the first is N v_i - sum_j v_j: O(N +
    edges) in all. The flock is leaders and followers; obstacle agents enter through the potential alone.

    Args:
        clamp: C, the largest norm of an acceleration; None for no clamp.
    """

    clamp: float | None = DEFAULT_CLAMP

    senses: ClassVar[Senses] = SUMS
    privileged: ClassVar[Literal[True]] = True

    def __post_init__(self) -> None:
        _check_clamp(self.clamp)

    def __call__(self, flock: Flock, observations: Observations) -> Vectors:
        """Accelerations (B, N, D) from the flock and its one-hop sums (B, N, 1, 3, D)."""
        # Obstacle agents stand still and add nothing to the sum.
        total = flock.velocities.sum(axis=1, keepdims=True)
        count = (flock.roles != OBSTACLE).sum(axis=1)[:, None, None]
        return _clamped(total - count * flock.velocities - _potential_gradient(observations), self.clamp)


@controller("tanner-dynamic")
@dataclass(frozen=True)
class TannerDynamic:
    """The decentralized law for a changing graph: both sums over the agents that are within R now.

    Args:
        clamp: C, the largest norm of an acceleration; None for no clamp.
    """

    clamp: float | None = DEFAULT_CLAMP

    senses: ClassVar[Senses] = SUMS

    def __post_init__(self) -> None:
        _check_clamp(self.clamp)

    def __call__(self, observations: Observations) -> Vectors:
        """Accelerations (B, N, D) from one-hop sums (B, N, 1, 3, D)."""
        return _clamped(-observations[:, :, 0, 0].astype(np.float64) - _potential_gradient(observations), self.clamp)


@controller("tanner-fixed")
@dataclass(frozen=True)
class TannerFixed(TannerDynamic):
    """The decentralized law for a fixed graph: both sums over the agents that were within R at t = 0.

    It is the same function as the dynamic law, of observations that are made of other agents.

    Args:
        clamp: C, the largest norm of an acceleration; None for no clamp.
    """

    senses: ClassVar[Senses] = replace(SUMS, topology="fixed")


def _potential_gradient(observations: Observations) -> Vectors:
    """The sum over those heard of grad U(|r_ij|) = 2 (r_ij / |r_ij|^2 - r_ij / |r_ij|^4)."""
    sums = observations[:, :, 0].astype(np.float64)
    gradient: Vectors = 2.0 * (sums[:, :, 2] - sums[:, :, 1])
    return gradient


def _clamped(accelerations: Vectors, clamp: float | None) -> Vectors:
    """Shorten each vector to norm at most `clamp`, keeping its direction."""
    if clamp is None:
        return accelerations
    # min(1, C / |a|) a, without a division by zero.
    norms = np.sqrt(np.einsum("bnd,bnd->bn", accelerations, accelerations))
    shortened: Vectors = accelerations * (clamp / np.maximum(norms, clamp))[..., None]
    return shortened


def _check_clamp(clamp: float | None) -> None:
    if clamp is not None:
        check_positive("clamp", clamp)
