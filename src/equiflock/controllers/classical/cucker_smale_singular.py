"""Cucker and Smale's law with a singular influence, phi(r) = r^-alpha, as of Carrillo, Choi, Mucha and Peszek (2017):

    a_i = (strength / N) sum_j |r_ij|^-alpha (v_j - v_i)

For alpha >= 1 no two agents that begin apart ever touch ("Sharp conditions to avoid collisions in singular Cucker-Smale
interactions"). That is a theorem of continuous time: two agents that meet head-on brake within a distance that a time
step must resolve. The clamp and the strength are our choice.
"""

from __future__ import annotations

from dataclasses import dataclass

from equiflock.controllers.classical.cucker_smale import InfluenceLaw
from equiflock.controllers.classical.pair_law import CentralizedLaw, LocalLaw
from equiflock.controllers.registry import controller
from equiflock.features import Channel, feature, format_feature_name


@feature("singular-influence", vector="velocity")
def singular_influence(square: float, alpha: float = 1.0) -> float:
    """The influence of one agent on another, phi(r) = r^-alpha, times v_ij."""
    return float(square ** (-0.5 * alpha))


@dataclass(frozen=True)
class CuckerSmaleSingularBase(InfluenceLaw):
    """The singular law, whomever it sums over."""

    alpha: float = 1.0
    """How steeply influence grows as agents come near: from 1 on they never touch."""

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The mean of |r_ij|^-alpha v_ij."""
        return ((format_feature_name("singular-influence", alpha=self.alpha), "mean"),)


@controller("cucker-smale-singular")
class CuckerSmaleSingular(CentralizedLaw, CuckerSmaleSingularBase):
    """Alignment without a limit at a touch: who comes near flies as one before they meet. Up to some 2,000 agents."""


@controller("cucker-smale-singular-local")
class CuckerSmaleSingularLocal(LocalLaw, CuckerSmaleSingularBase):
    """The singular law cut off at R, the mean being over those heard."""
