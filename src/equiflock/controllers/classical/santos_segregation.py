"""Santos, Pimenta and Chaimowicz's law (2014, "Segregation of multiple heterogeneous units in a robotic swarm"):

    a_i = - alignment sum_j v_ij - gain sum_j grad U(|r_ij|),    U(r) = (r - d)^2 / 2 + unit^2 (ln r + d / r)

so grad U(|r_ij|) = (|r_ij| - d) (1 + unit^2 / |r_ij|^2) r_ij / |r_ij|, with d the preferred distance of two agents:
small within a group, larger between groups. In the paper the sums run over the whole flock, alignment and unit are 1,
and d is 2 or 5. It proves that agents do not collide, velocities align and U reaches a minimum, and conjectures that
groups are separated there if the larger distance is large enough. The distances here are smaller, so that separated
groups stay within communication range: unit, gain and both distances are choices of this implementation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from equiflock._runtime.specs import format_spec
from equiflock.controllers.classical.pair_law import CentralizedLaw, ChannelSums, LocalLaw, PairLaw
from equiflock.controllers.registry import controller
from equiflock.features import Channel, feature
from equiflock.flock import Vectors


@feature("liking", vector="position")
def segregation_gradient(square: float, distance: float = 0.2, unit: float = 0.1) -> float:
    """Return the weight (|r| - d) (1 + unit^2/|r|^2) / |r| of r_ij: the gradient of U."""
    return (1.0 - distance / math.sqrt(square)) * (1.0 + unit * unit / square)


@dataclass(frozen=True)
class SegregationBase(PairLaw):
    """The segregation law, for either range of its sums."""

    alignment: float = 1.0
    """Rate of alignment per pair of agents, per second."""
    gain: float = 10.0
    """Gain of the potential."""
    within: float = 0.2
    """Preferred distance of agents of the same group."""
    between: float = 0.6
    """Preferred distance of agents of different groups; they segregate if it exceeds `within`."""
    unit: float = 0.1
    """Unit of length of the potential, below which agents repel each other strongly; 1 in the paper."""

    term_names: ClassVar[tuple[str, ...]] = ("alignment", "own group", "other groups")

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Sums of v_ij, and of grad U over the same group and over other groups."""
        same = format_spec("liking", distance=self.within, unit=self.unit, among="same")
        others = format_spec("liking", distance=self.between, unit=self.unit, among="others")
        return ("velocity", "sum"), (same, "sum"), (others, "sum")

    def compute_acceleration(self, sums: ChannelSums) -> Vectors:
        """Return alignment minus the gradient of the potential."""
        gradient = self.gain * (sums[:, :, 1] + sums[:, :, 2])
        return np.asarray(-self.alignment * sums[:, :, 0] - gradient)


@controller("segregation")
class Segregation(CentralizedLaw, SegregationBase):
    """All agents align, and stay closer to their own group than to others. For up to about 150 agents.

    Sums grow with the flock: larger flocks need a smaller alignment and gain, or a time step below 0.01 s.
    """


@controller("segregation-local")
class SegregationLocal(LocalLaw, SegregationBase):
    """The segregation law cut off at R."""
