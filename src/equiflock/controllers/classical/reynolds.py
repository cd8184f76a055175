"""Reynolds' three rules (1987, "Flocks, herds and schools"): alignment, cohesion and separation.

    a_i = - alignment mean_j v_ij - cohesion mean_j r_ij + separation mean_j s(|r_ij|) r_ij,    j within R of i

with s(r) = 1/r^2 - 1/d^2 for r < d and 0 beyond. Reynolds states the rules in words, and his code (OpenSteer) separates
agents by r_ij / |r_ij|^2. There each term is a unit vector of headings; here, as in the paper's introduction, terms are
vectors of positions and velocities. That s decreases to 0 at d, and all parameter values, are choices of this
implementation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from equiflock._runtime.specs import format_spec
from equiflock.controllers.classical.pair_law import ChannelSums, LocalLaw
from equiflock.controllers.registry import controller
from equiflock.features import Channel, feature
from equiflock.flock import Vectors


@feature("separation", vector="position")
def separation(square: float, distance: float = 0.6) -> float:
    """Return the weight 1/|r|^2 - 1/d^2 of r_ij: repulsion from close agents. 0 beyond the distance d, or if d = 0."""
    return max(1.0 / square - 1.0 / (distance * distance), 0.0) if distance > 0.0 else 0.0


@controller("reynolds")
@dataclass(frozen=True)
class Reynolds(LocalLaw):
    """Boids: align with neighbours, stay among them, and keep a distance. Lifelike, without guarantees."""

    alignment: float = 10.0
    """Rate of alignment with neighbours, per second."""
    cohesion: float = 4.0
    """Gain of the pull towards the centre of the neighbours, per second squared."""
    separation: float = 10.0
    """Gain of the repulsion from agents that are closer than `distance`."""
    distance: float = 0.6
    """Distance below which agents repel each other."""

    term_names: ClassVar[tuple[str, ...]] = ("alignment", "cohesion", "separation")

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Means of v_ij, of r_ij and of the separation."""
        separation = format_spec("separation", distance=self.distance)
        return ("velocity", "mean"), ("position", "mean"), (separation, "mean")

    def compute_acceleration(self, sums: ChannelSums) -> Vectors:
        """Return the weighted sum of the three rules: - alignment, - cohesion and + separation, times their means."""
        return -self.alignment * sums[:, :, 0] - self.cohesion * sums[:, :, 1] + self.separation * sums[:, :, 2]
