"""Cucker and Smale's law (2007, "Emergent behavior in flocks"), equation (1) there with H = 1/N:

    a_i = (strength / N) sum_j phi(|r_ij|) (v_j - v_i),    phi(r) = 1 / (1 + r^2)^beta

It keeps the mean velocity. For beta <= 1/2 every flock comes to fly as one, whatever its start; for beta > 1/2 only
those that begin close together or slow enough. 1/N in front is that of Ha and Liu (2009), who proved the case beta =
1/2. Strength and the default of beta are our choice.
"""

from __future__ import annotations

from dataclasses import dataclass

from equiflock.controllers.classical.pair_law import CentralizedLaw, ChannelSums, LocalLaw, PairLaw
from equiflock.controllers.registry import controller
from equiflock.features import Channel, feature, format_feature_name
from equiflock.flock import Vectors


@feature("influence", vector="velocity")
def influence(square: float, beta: float = 0.4) -> float:
    """The influence of one agent on another, phi(r) = (1 + r^2)^-beta, times v_ij."""
    return float((1.0 + square) ** -beta)


@dataclass(frozen=True)
class InfluenceLaw(PairLaw):
    """Alignment by the mean of an influence times v_ij, which is the first channel."""

    strength: float = 10.0
    """How fast velocities would agree, per second, if all had an influence of 1."""

    def compute_acceleration(self, sums: ChannelSums) -> Vectors:
        """- strength times the mean."""
        return -self.strength * sums[:, :, 0]


@dataclass(frozen=True)
class CuckerSmaleBase(InfluenceLaw):
    """Cucker and Smale's law, whomever it sums over."""

    beta: float = 0.4
    """How influence falls with distance: up to 1/2 slowly enough that every flock flocks."""

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The mean of phi(|r_ij|) v_ij."""
        return ((format_feature_name("influence", beta=self.beta), "mean"),)


@controller("cucker-smale")
class CuckerSmale(CentralizedLaw, CuckerSmaleBase):
    """Everybody aligns with everybody, the nearer the more: keeps the mean velocity. For up to some 2,000 agents."""


@controller("cucker-smale-local")
class CuckerSmaleLocal(LocalLaw, CuckerSmaleBase):
    """Cucker and Smale's law cut off at R, the mean being over those heard: a flock that splits stays split."""
