"""Parity: comparison of a swarm's accelerations and positions with the simulator's."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from equiflock.deployment.export.program import Program
from equiflock.deployment.swarm_host import SwarmHost
from equiflock.flock import FOLLOWER
from equiflock.protocols import Controller, Moment
from equiflock.simulation.flight_builder import flight, make_decision_function

TOLERANCE = 1e-5
"""Largest difference from the simulator's acceleration, relative to the terms it is the sum of, or to 1.

Both sides use float32, in which the largest terms limit the precision of a sum: where terms cancel to accelerations of
150, robots and simulator each differ by about 1e-5 from exact arithmetic, in any order of summation. The scale is
`Program.compute_magnitude`, the sum of the terms' absolute values; for agents of kind "package" it is the flock's
largest acceleration."""


class Parity:
    """Compares the robots' accelerations at every step with those of the simulator in the same state.

    Args:
        controller: controller of the simulator.
        program: exported program of the robots, which gives the scale of errors; None for agents of kind "package".
    """

    def __init__(self, controller: Controller, program: Program | None = None) -> None:
        self._decide, _ = make_decision_function(controller)
        self._program = program
        self.compared_count = self.different_count = 0
        self.largest_difference = self.largest_relative_difference = 0.0
        """Largest difference, absolute and relative (see `TOLERANCE`)."""
        self.stop_reason: str | None = None
        """Since when and why accelerations are no longer compared, or None."""

    def compare(self, moment: Moment, commands: Float64[np.ndarray, "N D"]) -> None:
        """Compare the commands of working followers at a step with the simulator's, and update the counts.

        No effect once `stop_reason` is set.
        """
        if self.stop_reason is not None:
            return
        expected = np.asarray(self._decide(moment.flock, moment.observations), np.float64)[0]
        working = moment.flock.effective_roles[0] == FOLLOWER
        distances = np.linalg.norm(commands - expected, axis=1)[working]
        if self._program is None:
            relative = distances / max(np.linalg.norm(expected, axis=1).max(), 1.0)
        else:
            terms = self._program.compute_magnitude(moment.observations[0])
            relative = (np.abs(commands - expected) / terms).max(axis=1)[working]
        self.compared_count += len(distances)
        self.different_count += int((relative > TOLERANCE).sum())
        if len(distances):
            self.largest_difference = max(self.largest_difference, float(distances.max()))
            self.largest_relative_difference = max(self.largest_relative_difference, float(relative.max()))

    @property
    def is_within_tolerance(self) -> bool:
        """Whether accelerations were compared and all are within the tolerance."""
        return self.compared_count > 0 and self.different_count == 0

    @property
    def summary(self) -> str:
        """Value of the row `parity` of the result table."""
        if self.compared_count == 0:
            return f"not compared {self.stop_reason or ''}".strip()
        verdict = "yes" if self.is_within_tolerance else "no"
        equal_count = self.compared_count - self.different_count
        scale = "the flock's largest acceleration" if self._program is None else "the terms that they are sums of"
        return (
            f"{verdict}: {equal_count:,} of {self.compared_count:,} accelerations within {TOLERANCE:g} of the "
            f"simulator's, relative to {scale}, or to 1; largest difference {self.largest_relative_difference:.2g}, "
            f"{self.largest_difference:.2g} absolute"
        ) + (f"; not compared {self.stop_reason}" if self.stop_reason else "")


class Drift(NamedTuple):
    """Distance between an agent's positions in the swarm and in an independent simulation."""

    largest: float
    """Largest distance of any agent at any step."""
    step: int
    """Step of the largest distance."""
    last: float
    """Largest distance of any agent at the end."""

    def __str__(self) -> str:
        return f"at most {self.largest:.2g} (step {self.step}), {self.last:.2g} at the end"


def compute_drift(host: SwarmHost, controller: Controller, time_step: float, **flight_options: Any) -> Drift:
    """Compare the positions of a swarm with an independent simulation of the same flight.

    Args:
        host: the host after the flight.
        controller: controller of the robots.
        time_step: dt.
        flight_options: further arguments of `flight`.
    """
    simulation = flight(host.start, controller, time_step=time_step, **flight_options)
    distances = [
        float(np.linalg.norm(moment.flock.positions[0] - positions, axis=1).max())
        for positions, moment in zip(host.position_history, simulation, strict=False)
    ]
    step = int(np.argmax(distances))
    return Drift(distances[step], step, distances[-1])
