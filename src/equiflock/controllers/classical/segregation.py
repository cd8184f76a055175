"""Santos, Pimenta and Chaimowicz's law (2014, "Segregation of multiple heterogeneous units in a robotic swarm"):

    a_i = - alignment sum_j v_ij - gain sum_j grad U(|r_ij|),    U(r) = (r - d)^2 / 2 + unit^2 (ln r + d / r)

so grad U(|r_ij|) = (|r_ij| - d) (1 + unit^2 / |r_ij|^2) r_ij / |r_ij|, with d the distance that two agents like: a
small one within a group, a larger one between groups. In the paper the sums run over the whole flock, alignment and
unit are 1, and d is 2 and 5. It proves that nobody collides, velocities agree and U comes to a minimum, and conjectures
that groups are apart there if the larger distance is large enough. Ours are smaller, so that a flock that is apart is
within reach of the radio: unit, gain and both distances are our choice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from equiflock.controllers.classical.pair_law import CentralizedLaw, ChannelSums, LocalLaw, PairLaw
from equiflock.controllers.registry import controller
from equiflock.features import Channel, feature, format_feature_name
from equiflock.flock import Vectors


@feature("liking", vector="position")
def segregation_gradient(square: float, distance: float = 0.2, unit: float = 0.1) -> float:
    """The gradient of U, (|r| - d) (1 + unit^2/|r|^2) / |r|, times r_ij."""
    return (1.0 - distance / math.sqrt(square)) * (1.0 + unit * unit / square)


@dataclass(frozen=True)
class SegregationBase(PairLaw):
    """The segregating law, whomever it sums over."""

    alignment: float = 1.0
    """How fast the velocities of two agents agree, per second."""
    gain: float = 10.0
    """The strength of the potential."""
    within: float = 0.2
    """The distance that agents of a group like."""
    between: float = 0.6
    """The distance that agents of different groups like; they segregate if it is larger than that within a group."""
    unit: float = 0.1
    """The unit of length of the potential, below which agents push each other hard; 1 in the published form."""

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The sums of v_ij, and of grad U among the same group and others."""
        same = format_feature_name("liking", distance=self.within, unit=self.unit, among="same")
        others = format_feature_name("liking", distance=self.between, unit=self.unit, among="others")
        return ("velocity", "sum"), (same, "sum"), (others, "sum")

    def compute_acceleration(self, sums: ChannelSums) -> Vectors:
        """Alignment, and down the potential."""
        down = self.gain * (sums[:, :, 1] + sums[:, :, 2])
        return np.asarray(-self.alignment * sums[:, :, 0] - down)


@controller("segregation")
class Segregation(CentralizedLaw, SegregationBase):
    """Everybody aligns with everybody, and keeps nearer to its own group than to others. For up to some 150 agents.

    Its sums grow with the flock: more agents need less alignment and gain, or a time step below 0.01 s.
    """


@controller("segregation-local")
class SegregationLocal(LocalLaw, SegregationBase):
    """The segregating law cut off at R."""
