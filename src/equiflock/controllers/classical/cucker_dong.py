"""Cucker and Dong's law (2010, "Avoiding collisions in flocks"): the law of Cucker and Smale with repulsion,

    a_i = (strength / N) sum_j phi(|r_ij|) (v_j - v_i) + Lambda sum_j f(|r_ij|^2) r_ij
    Lambda = ((1/N) sum_(i>j) |v_ij|^2)^(1/2) = (sum_i |v_i - mean(v)|^2)^(1/2),    f(s) = repulsion (s - core^2)^-theta

Agents that start farther than `core` apart never come closer than that. The repulsion vanishes as velocities align, so
the flock keeps the distances that it then has. The equations are cited from memory, as the text of the paper was not
available; its theorem requires an integral of f that diverges at the core, so theta >= 1, and holds in continuous time
and without a clamp. The parameter values are choices of this implementation, such that flocks of 100 agents keep the
distance at a time step of 0.01 s: with weaker repulsion, or a clamp of 100, agents turn so close to the core that a
step jumps into it. Another choice: f is constant where |r|^2 < core^2 + 1e-6, which a flock should not reach. Lambda
depends on the whole flock, so the law has no local form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float, Float64

from equiflock._runtime.specs import format_spec
from equiflock.controllers.classical.cucker_smale import CuckerSmaleBase
from equiflock.controllers.classical.pair_law import (
    MINIMAL_SENSES,
    Vector,
    clamp_norm,
    clamp_terms,
    sum_for_agent,
    sum_over_all_pairs,
)
from equiflock.controllers.registry import controller
from equiflock.features import Channel, Senses, feature
from equiflock.flock import OBSTACLE, Flock, Observations, Vectors


@feature("core", vector="position")
def core_repulsion(square: float, core: float = 0.05, theta: float = 1.75) -> float:
    """Return the weight (|r|^2 - core^2)^-theta of r_ij; constant where |r|^2 < core^2 + 1e-6, so always finite."""
    return float(max(square - core * core, 1e-6) ** -theta)


@controller("cucker-dong")
@dataclass(frozen=True)
class CuckerDong(CuckerSmaleBase):
    """Alignment with the whole flock, and repulsion that diverges at a core around each agent. Up to about 300 agents.

    Repulsion grows with the number of agents: larger flocks need a smaller `repulsion` or a time step below 0.01 s.
    """

    clamp: float | None = 500.0
    """Largest norm of an acceleration; None for the law as published."""
    repulsion: float = 0.015
    """Strength of the repulsion."""
    core: float = 0.05
    """Distance that agents never come within."""
    theta: float = 1.75
    """Exponent of the repulsion at the core, at least 1."""

    privileged: ClassVar[Literal[True]] = True
    senses: ClassVar[Senses] = MINIMAL_SENSES

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channels of alignment and repulsion."""
        return *super().channels, (format_spec("core", core=self.core, theta=self.theta), "sum")

    def __call__(self, flock: Flock, observations: Observations) -> Vectors:
        """Return accelerations (B, N, D) from the flock, zero for all but followers; observations are ignored."""
        sums = sum_over_all_pairs(flock, self.channels)
        repulsion = self.repulsion * _compute_disorder(flock)[:, None, None] * sums[:, :, 1]
        return clamp_norm(self.compute_acceleration(sums) + repulsion, self.clamp)

    def compute_terms(
        self, observation: Float[np.ndarray, "K C D"], flock: Flock | None, agent: int
    ) -> dict[str, Vector]:
        """Return alignment and repulsion of a follower, from a flock in a batch of one."""
        assert flock is not None
        sums = sum_for_agent(flock, agent, self.channels)
        repulsion = self.repulsion * _compute_disorder(flock)[0] * sums[0, 0, 1]
        return clamp_terms({**self.split_acceleration(sums), "repulsion": repulsion}, self.clamp)


def _compute_disorder(flock: Flock) -> Float64[np.ndarray, " B"]:
    """Return Lambda (B,), over the members of each flock."""
    member = ((flock.roles != OBSTACLE) & ~flock.muted)[..., None]
    count = np.maximum(member.sum(axis=1, keepdims=True), 1)
    mean = flock.velocities.sum(axis=1, keepdims=True, where=member) / count
    return np.asarray(np.sqrt(np.square(flock.velocities - mean).sum(axis=(1, 2), where=member)))
