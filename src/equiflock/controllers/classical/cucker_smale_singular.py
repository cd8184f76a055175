"""Cucker and Smale's law with a singular influence, phi(r) = r^-alpha (Carrillo, Choi, Mucha, Peszek, 2017):

    a_i = (strength / N) sum_j |r_ij|^-alpha (v_j - v_i)

For alpha >= 1 agents that start at different positions never collide ("Sharp conditions to avoid collisions in singular
Cucker-Smale interactions"). The theorem holds in continuous time: the time step must resolve the short distance within
which two agents brake before a head-on collision. Clamp and strength are choices of this implementation.
"""

from __future__ import annotations

from dataclasses import dataclass

from equiflock._runtime.specs import format_spec
from equiflock.controllers.classical.cucker_smale import InfluenceLaw
from equiflock.controllers.classical.pair_law import CentralizedLaw, LocalLaw
from equiflock.controllers.registry import controller
from equiflock.features import Channel, feature


@feature("singular-influence", vector="velocity")
def singular_influence(square: float, alpha: float = 1.0) -> float:
    """Return the weight phi(r) = r^-alpha of v_ij: the influence of one agent on another."""
    return float(square ** (-0.5 * alpha))


@dataclass(frozen=True)
class CuckerSmaleSingularBase(InfluenceLaw):
    """The singular law, for either range of its sums."""

    alpha: float = 1.0
    """Exponent of the influence at short distances; from 1 on, agents never collide."""

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Mean of |r_ij|^-alpha v_ij."""
        return ((format_spec("singular-influence", alpha=self.alpha), "mean"),)


@controller("cucker-smale-singular")
class CuckerSmaleSingular(CentralizedLaw, CuckerSmaleSingularBase):
    """Alignment diverges at contact, so agents match velocities before they collide. For up to about 2,000 agents."""


@controller("cucker-smale-singular-local")
class CuckerSmaleSingularLocal(LocalLaw, CuckerSmaleSingularBase):
    """The singular law cut off at R, with means over neighbours."""
