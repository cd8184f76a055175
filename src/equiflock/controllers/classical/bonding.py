"""Park, Kim and Ha's law (2010, "Cucker-Smale flocking with inter-particle bonding forces"):

    a_i = (1/N) sum_j { strength phi(|r_ij|) (v_j - v_i)
                        + [ K1 <v_ij, r_ij> / (2 |r_ij|^2) + K2 (|r_ij| - 2 R0) / (2 |r_ij|) ] (r_j - r_i) }

with Cucker and Smale's phi. K1 brakes motion along the line between two agents, K2 is a spring of length 2 R0 between
them. Three agents in the plane, four in space, end 2 R0 apart; more cannot all be so, and over the whole flock the
springs of far pairs press the flock together. Cut off at an R of a little more than 2 R0, neighbours end 2 R0 apart
however many they are; from some 1.25 times 2 R0 on, agents beyond the nearest press together, too. 1/N in front of the
bonding force, and all numbers, are our choice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from equiflock.controllers.classical.cucker_smale import CuckerSmaleBase
from equiflock.controllers.classical.pair_law import CentralizedLaw, ChannelSums, LocalLaw
from equiflock.controllers.registry import controller
from equiflock.features import Channel, feature, format_feature_name
from equiflock.flock import Vectors


@feature("brake", vector="position")
def brake(square: float, inner: float) -> float:
    """The motion along the line between two agents, <v_ij, r_ij> / (2 |r_ij|^2), times r_ij."""
    return 0.5 * inner / square


@feature("bond", vector="position")
def bond(square: float, distance: float = 0.9) -> float:
    """A spring of that length, (|r_ij| - distance) / (2 |r_ij|), times r_ij."""
    return 0.5 * (1.0 - distance / math.sqrt(square))


@dataclass(frozen=True)
class BondingBase(CuckerSmaleBase):
    """The bonding law, whomever it sums over."""

    brake: float = 20.0
    """K1: how fast two agents stop moving along the line between them, per second."""
    spring: float = 100.0
    """K2: how stiff the springs are, per second squared."""
    half_distance: float = 0.45
    """R0: agents end twice this far apart."""

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The means of what aligns, brakes and bonds."""
        spring = format_feature_name("bond", distance=2.0 * self.half_distance)
        return *super().channels, ("brake", "mean"), (spring, "mean")

    def compute_acceleration(self, sums: ChannelSums) -> Vectors:
        """Alignment, brake and spring, each towards the other agent: against r_ij."""
        return super().compute_acceleration(sums) - self.brake * sums[:, :, 1] - self.spring * sums[:, :, 2]


@controller("bonding")
class Bonding(CentralizedLaw, BondingBase):
    """Everybody is tied to everybody by springs of length 2 R0, with brakes. For up to some 2,000 agents."""


@controller("bonding-local")
class BondingLocal(LocalLaw, BondingBase):
    """The bonding law cut off at R, the mean being over those heard: a lattice whose neighbours are 2 R0 apart."""
