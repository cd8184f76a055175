"""The recording of a live flight over its whole duration, in bounded memory, for saving."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from equiflock.flock import Flock, Vectors
from equiflock.outcomes import Outcome
from equiflock.runtime.arrays import ReadOnlyDict
from equiflock.simulation.body_motion import BodyState
from equiflock.simulation.trajectory import STATIC_ARRAYS, Trajectory

EMPTY_BODY_STATE: BodyState = ReadOnlyDict()
MAX_BYTES = 64 * 2**20
"""Maximum memory of one recording."""


class Recording:
    """Frames of a flight: every step or, when memory is full, every second step, every fourth, and so on.

    The newest step is always among the frames. A trajectory has constant agents; when they change, a new recording
    starts.

    Args:
        step: the first step; it is not recorded before it is added.
        flock: the flock at that step, a batch of one.
        body_state: body state arrays (see `Moment.body_state`).
        max_bytes: maximum memory of the frames; at least 8 frames are kept.
    """

    def __init__(
        self, step: int, flock: Flock, body_state: BodyState = EMPTY_BODY_STATE, max_bytes: int = MAX_BYTES
    ) -> None:
        self.first_step = step
        self.keep_every = 1
        self.agent_arrays = {name: getattr(flock, name).copy() for name in STATIC_ARRAYS}
        self.comm_radius = flock.comm_radius
        self._steps: list[int] = []
        self._frames: list[tuple[NDArray[Any], ...]] = []
        self.body_state_names = tuple(body_state)
        """Names of the body state arrays."""
        # Each frame has positions, velocities, accelerations, conditions and the body state.
        size = 3 * flock.positions.nbytes + flock.conditions.nbytes + sum(array.nbytes for array in body_state.values())
        self._max_frames = max(max_bytes // size, 8)

    def add(self, step: int, flock: Flock, accelerations: Vectors, body_state: BodyState = EMPTY_BODY_STATE) -> None:
        """Append copies of a step's arrays as the newest frame.

        It replaces the newest frame if that is the same step (the user changed the flock since) or no multiple of
        `keep_every` after the first. If memory is full, every second frame is dropped and `keep_every` is doubled.
        """
        last = self._steps[-1] if self._steps else None
        # The newest step is always kept; when another follows, it is dropped unless it is a multiple of `keep_every`.
        if last is not None and (last == step or (last - self.first_step) % self.keep_every):
            self._steps.pop()
            self._frames.pop()
        # Memory is full: drop every second frame, and double the interval.
        if len(self._steps) >= self._max_frames:
            self._steps, self._frames = self._steps[::2], self._frames[::2]
            self.keep_every *= 2
        self._steps.append(step)
        body_arrays = (body_state[name] for name in self.body_state_names)
        arrays = flock.positions, flock.velocities, accelerations, flock.conditions, *body_arrays
        self._frames.append(tuple(array.copy() for array in arrays))

    def to_trajectory(self, time_step: float, config: dict[str, Any]) -> Trajectory:
        """Return the recording as a trajectory whose time starts at 0 and whose outcome is TIME_UP.

        Args:
            time_step: seconds per step.
            config: the trajectory's config, to which `start_time` (seconds since the live flight's start) and
                `keep_every` (steps between frames, except before the last) are added.
        """
        steps = np.array(self._steps) - self.first_step
        stacked = (np.stack(part) for part in zip(*self._frames, strict=True))
        positions, velocities, accelerations, conditions, *body_arrays = stacked
        config = {**config, "start_time": self.first_step * time_step, "keep_every": self.keep_every}
        return Trajectory(
            times=steps * time_step,
            positions=positions,
            velocities=velocities,
            accelerations=accelerations[:-1],
            conditions=conditions,
            **self.agent_arrays,
            steps=steps[-1:],
            outcomes=np.array([Outcome.TIME_UP], np.int8),
            time_step=time_step,
            comm_radius=self.comm_radius,
            config=config,
            body_state=dict(zip(self.body_state_names, body_arrays, strict=True)),
        )
