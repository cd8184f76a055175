"""Reynolds' three rules (1987, "Flocks, herds and schools"): alignment, cohesion and separation.

    a_i = - alignment mean_j v_ij - cohesion mean_j r_ij + separation mean_j s(|r_ij|) r_ij,    j within R of i

with s(r) = 1/r^2 - 1/d^2 for r < d and 0 beyond: Reynolds gives the rules in words, and his code (OpenSteer) separates
by r_ij / |r_ij|^2. There each term is a unit vector of headings; here, as in the paper's introduction, they are vectors
of positions and velocities. That s falls to 0 at d, and all numbers, are our choice.
"""

from __future__ import annotations

from dataclasses import dataclass

from equiflock.controllers.classical.pair_law import ChannelSums, LocalLaw
from equiflock.controllers.registry import controller
from equiflock.features import Channel, feature, format_feature_name
from equiflock.flock import Vectors


@feature("separation", vector="position")
def separation(square: float, distance: float = 0.6) -> float:
    """Away from those that are nearer than a distance: 1/|r|^2 - 1/d^2."""
    return max(1.0 / square - 1.0 / (distance * distance), 0.0) if distance > 0.0 else 0.0


@controller("reynolds")
@dataclass(frozen=True)
class Reynolds(LocalLaw):
    """Boids: fly as your neighbours do, stay among them, and keep apart. Promises nothing, and looks alive."""

    alignment: float = 10.0
    """How fast a velocity becomes that of its neighbours, per second."""
    cohesion: float = 4.0
    """The pull towards the middle of the neighbours, per distance."""
    separation: float = 10.0
    """The push from those that are too near."""
    distance: float = 0.6
    """Those nearer than this are too near."""

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The mean of v_ij, of r_ij, and of what pushes apart."""
        apart = format_feature_name("separation", distance=self.distance)
        return ("velocity", "mean"), ("position", "mean"), (apart, "mean")

    def compute_acceleration(self, sums: ChannelSums) -> Vectors:
        """The three rules, each with its weight."""
        return -self.alignment * sums[:, :, 0] - self.cohesion * sums[:, :, 1] + self.separation * sums[:, :, 2]
