"""Cucker and Smale's law (2007, "Emergent behavior in flocks"), equation (1) there with H = 1/N:

    a_i = (strength / N) sum_j phi(|r_ij|) (v_j - v_i),    phi(r) = 1 / (1 + r^2)^beta

It preserves the mean velocity. For beta <= 1/2 every flock reaches a common velocity from any initial state; for
beta > 1/2 only flocks that start close together or with similar velocities do. The factor 1/N is that of Ha and Liu
(2009), who proved the case beta = 1/2. Strength and the default of beta are choices of this implementation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from equiflock._runtime.specs import format_spec
from equiflock.controllers.classical.pair_law import CentralizedLaw, ChannelSums, LocalLaw, PairLaw
from equiflock.controllers.registry import controller
from equiflock.features import Channel, feature
from equiflock.flock import Vectors


@feature("influence", vector="velocity")
def influence(square: float, beta: float = 0.4) -> float:
    """Return the weight phi(r) = (1 + r^2)^-beta of v_ij: the influence of one agent on another."""
    return float((1.0 + square) ** -beta)


@dataclass(frozen=True)
class InfluenceLaw(PairLaw):
    """Alignment by the mean of an influence times v_ij, the first channel."""

    strength: float = 10.0
    """Rate of alignment, per second, if all influences were 1."""

    term_names: ClassVar[tuple[str, ...]] = ("alignment",)

    def compute_acceleration(self, sums: ChannelSums) -> Vectors:
        """Return - strength times the first channel."""
        return -self.strength * sums[:, :, 0]


@dataclass(frozen=True)
class CuckerSmaleBase(InfluenceLaw):
    """Cucker and Smale's law, for either range of its sums."""

    beta: float = 0.4
    """Decay exponent of the influence; up to 1/2, every flock reaches a common velocity."""

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Mean of phi(|r_ij|) v_ij."""
        return ((format_spec("influence", beta=self.beta), "mean"),)


@controller("cucker-smale")
class CuckerSmale(CentralizedLaw, CuckerSmaleBase):
    """All agents align, closer ones more strongly, and keep their mean velocity. For up to about 2,000 agents."""


@controller("cucker-smale-local")
class CuckerSmaleLocal(LocalLaw, CuckerSmaleBase):
    """Cucker and Smale's law cut off at R, with means over neighbours: a flock that splits stays split."""
