"""Parity: a swarm's flight beside the simulator's, from the same states."""

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
"""How far an acceleration may be from the simulator's, relative to the numbers that it is the sum of, or to 1.

Both are float32, in which a sum is as exact as its largest terms allow: where accelerations of 150 are sums of terms
that cancel, robots and simulator are each some 1e-5 from exact arithmetic, however they add up. `Program.compute_magnitude` is
the sum of the terms' absolute values; for agents that were not exported, the flock's longest acceleration counts."""


class Parity:
    """Compares what robots do at every step with what the simulator does in the same state.

    Args:
        controller: what the simulator flies by.
        program: what robots fly by, if it is exported, which tells how large the numbers are that they add up.
    """

    def __init__(self, controller: Controller, program: Program | None = None) -> None:
        self._decide, _ = make_decision_function(controller)
        self._program = program
        self.compared_count = self.different_count = 0
        self.largest_difference = self.largest_relative_difference = 0.0
        """The largest difference, as it is, and relative (see `TOLERANCE`)."""
        self.stop_reason: str | None = None
        """From when on nothing is compared any more, and why, if so."""

    def compare(self, moment: Moment, commands: Float64[np.ndarray, "N D"]) -> None:
        """Take note of a step."""
        if self.stop_reason is not None:
            return
        expected = np.asarray(self._decide(moment.flock, moment.observations), np.float64)[0]
        works = moment.flock.effective_roles[0] == FOLLOWER
        distances = np.linalg.norm(commands - expected, axis=1)[works]
        if self._program is None:
            shares = distances / max(np.linalg.norm(expected, axis=1).max(), 1.0)
        else:
            terms = self._program.compute_magnitude(moment.observations[0])
            shares = (np.abs(commands - expected) / terms).max(axis=1)[works]
        self.compared_count += len(distances)
        self.different_count += int((shares > TOLERANCE).sum())
        if len(distances):
            self.largest_difference = max(self.largest_difference, float(distances.max()))
            self.largest_relative_difference = max(self.largest_relative_difference, float(shares.max()))

    @property
    def is_within_tolerance(self) -> bool:
        """Whether everything that was compared is within the tolerance."""
        return self.compared_count > 0 and self.different_count == 0

    @property
    def summary(self) -> str:
        """The line of the table."""
        share = f"{self.compared_count - self.different_count:,} of {self.compared_count:,} accelerations within {TOLERANCE:g}"
        if self.compared_count == 0:
            return f"not compared {self.stop_reason or ''}".strip()
        scale = "the flock's longest acceleration" if self._program is None else "the terms that they are sums of"
        said = (
            f"{'yes' if self.is_within_tolerance else 'no'}: {share} of the simulator's, relative to {scale}, or to 1"
        )
        worst = f"the worst off by {self.largest_relative_difference:.2g}, {self.largest_difference:.2g} absolute"
        return f"{said}; {worst}" + (f"; not compared {self.stop_reason}" if self.stop_reason else "")


class Drift(NamedTuple):
    """How far robots are from where a flight of the simulator has them that knows nothing of them."""

    largest: float
    """Of any robot, at any step."""
    step: int
    """When that was."""
    last: float
    """Of any robot, at the end."""

    def __str__(self) -> str:
        return f"at most {self.largest:.2g} (step {self.step}), {self.last:.2g} at the end"


def drift(host: SwarmHost, controller: Controller, time_step: float, **flight_options: Any) -> Drift:
    """How far robots are, at each step of a flight, from where the same flight of the simulator has them.

    Args:
        host: after the flight.
        controller: what they flew by.
        time_step: dt.
        flight_options: further arguments of `flight`.
    """
    alone = flight(host.start, controller, time_step=time_step, **flight_options)
    found = [
        float(np.linalg.norm(moment.flock.positions[0] - places, axis=1).max())
        for places, moment in zip(host.position_history, alone, strict=False)
    ]
    worst = int(np.argmax(found))
    return Drift(found[worst], worst, found[-1])
