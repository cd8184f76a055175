"""The recording of a live flight, from which it can be saved: its whole duration, in bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.flock import Conditions, Flock, Vectors
from equiflock.outcomes import Outcome
from equiflock.simulation.trajectory import CREW, Trajectory

MOST_BYTES = 64 * 2**20
"""Memory that the recording of one flight may take."""


class Recording:
    """Every step of a flight or, once that would take too much memory, every second, every fourth, and so on.

    A trajectory has the same agents all the time: when they change, a new recording begins.

    Args:
        step: the number of the first step.
        flock: the agents at that step.
        most_bytes: the memory that its frames may take.
    """

    def __init__(self, step: int, flock: Flock, most_bytes: int = MOST_BYTES) -> None:
        self.first = step
        self.every = 1
        self.crew = {name: getattr(flock, name).copy() for name in CREW}
        self.comm_radius = flock.comm_radius
        self._steps: list[int] = []
        self._frames: list[tuple[Vectors, Vectors, Vectors, Conditions]] = []
        # Each frame is three arrays of the size of positions.
        self._most = max(most_bytes // (3 * flock.positions.nbytes), 8)

    def add(self, step: int, flock: Flock, accelerations: Vectors) -> None:
        """Record a step; if it was recorded before, because a person changed the flock in between, it is replaced."""
        last = self._steps[-1] if self._steps else None
        # The newest step is always kept; once another follows, it goes unless it is a multiple of `every`.
        if last is not None and (last == step or (last - self.first) % self.every):
            self._steps.pop()
            self._frames.pop()
        # Memory is full: drop every second frame, and keep half as many from now on.
        if len(self._steps) >= self._most:
            self._steps, self._frames = self._steps[::2], self._frames[::2]
            self.every *= 2
        self._steps.append(step)
        self._frames.append(
            (flock.positions.copy(), flock.velocities.copy(), accelerations.copy(), flock.conditions.copy())
        )

    def trajectory(self, time_step: float, config: dict[str, Any]) -> Trajectory:
        """The recorded steps as a trajectory, whose time begins at 0."""
        steps = np.array(self._steps) - self.first
        positions, velocities, accelerations, conditions = map(np.stack, zip(*self._frames, strict=True))
        # When it began in the live flight, and how many steps lie between frames, is in its settings.
        told = {**config, "begins_at": self.first * time_step, "keep_every": self.every}
        return Trajectory(
            times=steps * time_step,
            positions=positions,
            velocities=velocities,
            accelerations=accelerations[:-1],
            conditions=conditions,
            **self.crew,
            steps=steps[-1:],
            outcomes=np.array([Outcome.TIME_UP], np.int8),
            time_step=time_step,
            comm_radius=self.comm_radius,
            config=told,
        )
