"""Park, Kim and Ha's law (2010, "Cucker-Smale flocking with inter-particle bonding forces"):

    a_i = (1/N) sum_j { strength phi(|r_ij|) (v_j - v_i)
                        + [ K1 <v_ij, r_ij> / (2 |r_ij|^2) + K2 (|r_ij| - 2 R0) / (2 |r_ij|) ] (r_j - r_i) }

with the phi of Cucker and Smale. K1 damps motion along the line between two agents, K2 is the stiffness of a spring of
length 2 R0 between them. Three agents in the plane, or four in space, end 2 R0 apart; more agents cannot all have this
distance, and in the centralized law the springs of distant pairs compress the flock. Cut off at an R slightly above
2 R0, neighbours end 2 R0 apart in flocks of any size; from about R = 1.25 (2 R0) on, second neighbours compress the
flock too. The factor 1/N of the bonding force and all parameter values are choices of this implementation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from equiflock._runtime.specs import format_spec
from equiflock.controllers.classical.cucker_smale import CuckerSmaleBase
from equiflock.controllers.classical.pair_law import CentralizedLaw, ChannelSums, LocalLaw
from equiflock.controllers.registry import controller
from equiflock.features import Channel, feature
from equiflock.flock import Vectors


@feature("brake", vector="position")
def brake(square: float, inner: float) -> float:
    """Return the weight <v_ij, r_ij> / (2 |r_ij|^2) of r_ij, for |r_ij|^2 and the inner product <v_ij, r_ij>."""
    return 0.5 * inner / square


@feature("bond", vector="position")
def bond(square: float, distance: float = 0.9) -> float:
    """Return the weight (|r_ij| - distance) / (2 |r_ij|) of r_ij: a spring of length `distance`."""
    return 0.5 * (1.0 - distance / math.sqrt(square))


@dataclass(frozen=True)
class BondingBase(CuckerSmaleBase):
    """The bonding law, for either range of its sums."""

    brake: float = 20.0
    """K1, damping rate of motion along the line between two agents, per second."""
    spring: float = 100.0
    """K2, stiffness of the springs, per second squared."""
    half_distance: float = 0.45
    """R0, half the final distance of agents."""

    term_names: ClassVar[tuple[str, ...]] = ("alignment", "brake", "spring")

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Means of the alignment, the brake and the spring."""
        spring = format_spec("bond", distance=2.0 * self.half_distance)
        return *super().channels, ("brake", "mean"), (spring, "mean")

    def compute_acceleration(self, sums: ChannelSums) -> Vectors:
        """Return alignment + brake + spring, the latter two along -r_ij, towards the other agent."""
        return super().compute_acceleration(sums) - self.brake * sums[:, :, 1] - self.spring * sums[:, :, 2]


@controller("bonding")
class Bonding(CentralizedLaw, BondingBase):
    """All pairs of agents are connected by damped springs of length 2 R0. For up to about 2,000 agents."""


@controller("bonding-local")
class BondingLocal(LocalLaw, BondingBase):
    """The bonding law cut off at R, with means over neighbours: a lattice with a spacing of 2 R0."""
