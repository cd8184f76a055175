"""What is kept of a live flight, so that it can be saved: all of it, in bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.flock import Flock, Vectors
from equiflock.outcomes import Outcome
from equiflock.simulation.trajectory import CREW, Trajectory

MOST_BYTES = 64 * 2**20


class Recording:
    """Every step of a flight or, once that would take too much memory, every second, every fourth, and so on.

    A trajectory has the same agents all the time: when they change, a new recording begins.

    Args:
        step: the first step's number.
        flock: the agents then.
        most_bytes: how much memory is too much.
    """

    def __init__(self, step: int, flock: Flock, most_bytes: int = MOST_BYTES) -> None:
        self.first = step
        self.every = 1
        self.crew = {name: getattr(flock, name).copy() for name in CREW}
        self.comm_radius = flock.comm_radius
        self._steps: list[int] = []
        self._frames: list[tuple[Vectors, Vectors, Vectors]] = []
        self._most = max(most_bytes // (3 * flock.positions.nbytes), 8)

    def add(self, step: int, flock: Flock, accelerations: Vectors) -> None:
        """Take a step down; one that was taken down before is replaced."""
        last = self._steps[-1] if self._steps else None
        # The last step is always there, though it may not be one of those that stay.
        if last is not None and (last == step or (last - self.first) % self.every):
            self._steps.pop()
            self._frames.pop()
        if len(self._steps) >= self._most:
            self._steps, self._frames = self._steps[::2], self._frames[::2]
            self.every *= 2
        self._steps.append(step)
        self._frames.append((flock.positions.copy(), flock.velocities.copy(), accelerations.copy()))

    def trajectory(self, time_step: float, config: dict[str, Any]) -> Trajectory:
        """What was taken down so far; its time begins at 0."""
        steps = np.array(self._steps) - self.first
        positions, velocities, accelerations = (np.stack(part) for part in zip(*self._frames, strict=True))
        told = {**config, "begins_at": self.first * time_step, "keep_every": self.every}
        return Trajectory(
            times=steps * time_step,
            positions=positions,
            velocities=velocities,
            accelerations=accelerations[:-1],
            **self.crew,
            steps=steps[-1:],
            outcomes=np.array([Outcome.TIME_UP], np.int8),
            time_step=time_step,
            comm_radius=self.comm_radius,
            config=told,
        )
