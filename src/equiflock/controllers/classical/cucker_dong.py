"""Cucker and Dong's law (2010, "Avoiding collisions in flocks"): Cucker and Smale's with a repelling term,

    a_i = (strength / N) sum_j phi(|r_ij|) (v_j - v_i) + Lambda sum_j f(|r_ij|^2) r_ij
    Lambda = ((1/N) sum_(i>j) |v_ij|^2)^(1/2) = (sum_i |v_i - mean(v)|^2)^(1/2),    f(s) = repulsion (s - core^2)^-theta

No two agents come nearer than `core` if they begin farther apart; the push ends as velocities agree, so that the flock
flies on at the distances that it has. The equations are as cited from memory of the paper, whose text we could not
find; its theorem asks for an integral of f that diverges at the core, so theta >= 1. It is a theorem of continuous
time, for no clamp. All numbers are our choice, such that flocks of 100 agents keep it at a time step of 0.01 s: a
weaker push turns agents so near the core that a step jumps into it, and so does a clamp of 100. So is that f is
constant where |r|^2 is within 1e-6 of core^2, where no flock should be. Lambda is of the whole flock: the law has no
local form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from equiflock.controllers.classical.cucker_smale import CuckerSmaleBase
from equiflock.controllers.classical.pair_law import MINIMAL_SENSES, clamp_norm
from equiflock.controllers.registry import controller
from equiflock.features import Channel, Senses, feature, format_feature_name
from equiflock.flock import OBSTACLE, Flock, Observations, Vectors
from equiflock.pairs.all_pairs import sum_over_all_pairs


@feature("core", vector="position")
def core_repulsion(square: float, core: float = 0.05, theta: float = 1.75) -> float:
    """The push f(|r|^2) = (|r|^2 - core^2)^-theta, times r_ij."""
    return float(max(square - core * core, 1e-6) ** -theta)


@controller("cucker-dong")
@dataclass(frozen=True)
class CuckerDong(CuckerSmaleBase):
    """Alignment with everybody, and a push without limit at a core around each agent. For up to some 300 agents.

    The push grows with the number of agents: more of them need a weaker one, or a time step below 0.01 s.
    """

    clamp: float | None = 500.0
    """The largest norm of an acceleration; none for the law as published."""
    repulsion: float = 0.015
    """The strength of the push."""
    core: float = 0.05
    """The distance that no two agents come within."""
    theta: float = 1.75
    """How steeply the push grows at the core, from 1 on."""

    privileged: ClassVar[Literal[True]] = True
    senses: ClassVar[Senses] = MINIMAL_SENSES

    @property
    def all_channels(self) -> tuple[Channel, ...]:
        """Alignment, and what pushes apart."""
        return *self.channels, (format_feature_name("core", core=self.core, theta=self.theta), "sum")

    def __call__(self, flock: Flock, observations: Observations) -> Vectors:
        """Accelerations (B, N, D) from the flock; its observations are not looked at."""
        sums = sum_over_all_pairs(flock, self.all_channels)
        # Lambda, of those that are part of the flock.
        member = ((flock.roles != OBSTACLE) & ~flock.muted)[..., None]
        count = np.maximum(member.sum(axis=1, keepdims=True), 1)
        mean = flock.velocities.sum(axis=1, keepdims=True, where=member) / count
        disorder = np.sqrt(np.square(flock.velocities - mean).sum(axis=(1, 2), where=member))[:, None, None]
        return clamp_norm(self.compute_acceleration(sums) + self.repulsion * disorder * sums[:, :, 1], self.clamp)
