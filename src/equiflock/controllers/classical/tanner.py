"""Tanner's three control laws (sections 2.2 and 2.3 of the paper), all of the form

    a_i = - sum_j v_ij - sum_j grad U(|r_ij|),    U(r) = 1/r^2 + ln r^2,

so grad U(|r_ij|) = 2 (r_ij / |r_ij|^2 - r_ij / |r_ij|^4), which is a sum of the paper's features. They differ in
whom the sums run over. All clamp |a_i|_2 <= C, which keeps them equivariant under rotation and reflection.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from equiflock.controllers.registry import controller
from equiflock.features import PAPER_FEATURES, Senses, paper_senses
from equiflock.flock import OBSTACLE, Flock, Observations, Roles, Vectors
from equiflock.runtime import threads
from equiflock.runtime.checks import InputError, check_positive
from equiflock.runtime.jit import Array, Index, kernel

DEFAULT_CLAMP = 100.0
"""C, the largest norm of an acceleration; the paper does not give it."""
SUMS = paper_senses("sum", hops=1)


@controller("tanner")
@dataclass(frozen=True)
class Tanner:
    """The centralized expert: the velocity sum runs over the whole flock, the potential over neighbours within R.

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
        if observations.shape[:2] != flock.shape[:2] or observations.shape[4:] != flock.shape[2:]:
            raise InputError(f"observations must be those of the flock, {flock.shape}; got {observations.shape}")
        return _accelerations(flock.velocities, flock.roles, observations, self.clamp)


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
        return _accelerations(NOBODY, NO_ROLES, observations, self.clamp)


@controller("tanner-fixed")
@dataclass(frozen=True)
class TannerFixed(TannerDynamic):
    """The decentralized law for a fixed graph: both sums over the agents that were within R at t = 0.

    It is the same function as the dynamic law, of observations that are made of other agents.

    Args:
        clamp: C, the largest norm of an acceleration; None for no clamp.
    """

    senses: ClassVar[Senses] = replace(SUMS, topology="fixed")


NOBODY, NO_ROLES = np.empty((0, 0, 0)), np.empty((0, 0), np.int8)
"""In place of velocities and roles, for laws that know the sums of velocities from observations."""
for _array in (NOBODY, NO_ROLES):
    _array.setflags(write=False)  # as the arrays of a flock are, so that kernels are compiled once


def _accelerations(velocities: Vectors, roles: Roles, observations: Observations, clamp: float | None) -> Vectors:
    """The law for all flocks; each thread takes some of them."""
    # The kernel does not look whether there is something where it reads.
    if observations.ndim != 5 or observations.shape[2] < 1 or observations.shape[3] < len(PAPER_FEATURES):
        raise InputError(f"observations must be one-hop sums of the shape (B, N, 1, 3, D); got {observations.shape}")
    B, N, _, _, D = observations.shape
    known, result = np.ascontiguousarray(observations), np.empty((B, N, D))
    common = velocities, roles, known, tanner_limit(clamp), result
    parts = threads.split_flocks(B, N) if B > 1 else [(0, 1)]
    threads.share(tanner_flocks, [(*common, *part) for part in parts])
    return result


def tanner_limit(clamp: float | None) -> float:
    """C as the kernel takes it: infinity if there is no clamp."""
    return math.inf if clamp is None else float(clamp)


@kernel
def tanner_flocks(
    velocities: Array, roles: Array, observations: Array, clamp: float, result: Array, first: Index, last: Index
) -> None:
    """The law for the flocks first .. last, the velocity sums being those over the whole flock if velocities are given.

    Args:
        velocities: (B, N, D), or of no flocks if sums of v_ij are taken from observations.
        roles: (B, N), with velocities.
        observations: (B, N, K, C, D), the sums of v_ij, r_ij / |r_ij|^4 and r_ij / |r_ij|^2 in front.
        clamp: C.
        result: (B, N, D), accelerations.
        first: the first flock.
        last: the one after the last.
    """
    _, N, D = result.shape
    everyone = len(velocities) > 0
    total = np.empty(D)
    for b in range(first, last):
        # The sum of all velocities, and over how many agents: obstacle agents stand still and do not count.
        count = 0
        total[:] = 0.0
        if everyone:
            for i in range(N):
                count += roles[b, i] != OBSTACLE
                for d in range(D):
                    total[d] += velocities[b, i, d]
        for i in range(N):
            square = 0.0
            for d in range(D):
                # -sum_j v_ij = sum_j v_j - N v_i, or minus the sum over those heard.
                sums = -np.float64(observations[b, i, 0, 0, d])
                toward = total[d] - count * velocities[b, i, d] if everyone else sums
                # The sum over those heard of grad U(|r_ij|) = 2 (r_ij / |r_ij|^2 - r_ij / |r_ij|^4).
                per_fourth, per_square = observations[b, i, 0, 1, d], observations[b, i, 0, 2, d]
                acceleration = toward - 2.0 * (np.float64(per_square) - np.float64(per_fourth))
                result[b, i, d] = acceleration
                square += acceleration * acceleration
            # The clamp: min(1, C / |a|) a.
            norm = math.sqrt(square)
            if norm > clamp:
                for d in range(D):
                    result[b, i, d] *= clamp / norm


def _check_clamp(clamp: float | None) -> None:
    if clamp is not None:
        check_positive("clamp", clamp)
