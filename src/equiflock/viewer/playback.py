"""Saved flights on the page: one, or two side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from equiflock.flock import Role
from equiflock.outcomes import Outcome
from equiflock.runtime.checks import InputError
from equiflock.scenarios import Stop
from equiflock.scenarios.passing import obstacle_disks
from equiflock.simulation.trajectory import Trajectory
from equiflock.viewer.frames import FlockPicture, edges_of

MOST_FLIGHTS = 2
MOST_MEASURED = 400
"""The curves of the whole flight are drawn through so many frames at most."""


class Playback:
    """One flock of each of one or two saved flights, frame by frame.

    Args:
        runs: with the same times.
        flock: which flock of the batch.
    """

    def __init__(self, runs: Sequence[Trajectory], flock: int = 0) -> None:
        check_playback(runs)
        flocks = min(len(run.steps) for run in runs)
        if flock >= flocks:
            raise InputError(f"flock must be below {flocks}; got {flock}")
        self.runs = [run[flock] for run in runs]
        # Frames after everybody's flight has ended repeat the last state.
        end = max((int(run.steps[0]) + 0.5) * run.time_step for run in self.runs)
        self.frames = max(int(np.count_nonzero(self.runs[0].times < end)), 1)
        self.edges = False
        self.frame = 0

    @property
    def step(self) -> int:
        """The number of the frame that is shown."""
        return self.frame

    @property
    def time(self) -> float:
        """The time of the frame, in seconds."""
        return float(self.runs[0].times[self.frame])

    def seek(self, frame: int) -> None:
        """Go to a frame, or to the last if there are fewer."""
        self.frame = min(frame, self.frames - 1)

    def pictures(self) -> list[FlockPicture]:
        """What each panel of the page shows."""
        found = []
        for run in self.runs:
            flock = run.flock(self.frame)
            last = len(run.accelerations) - 1
            accelerations = run.accelerations[self.frame] if self.frame <= last else None
            edges = edges_of(flock) if self.edges else None
            still = self.time >= (int(run.steps[0]) - 0.5) * run.time_step
            found.append(FlockPicture(flock, accelerations, obstacle_disks(flock), edges, still))
        return found

    def told(self, stop: Stop | None = None) -> dict[str, Any]:
        """What the page must know of the flights; measuring long ones takes a while, which `stop` ends."""
        first = self.runs[0]
        measured = np.unique(np.linspace(0, self.frames - 1, MOST_MEASURED).round().astype(int))
        curves = []
        for frame in measured.tolist():
            if stop is not None:
                stop.check()
            curves.append([_for_json(picture.numbers) for picture in self._pictures_at(frame)])
        return {
            "times": first.times[: self.frames].tolist(),
            "time_step": first.time_step,
            "comm_radius": first.comm_radius,
            "dimensions": first.positions.shape[3],
            "flights": [_about(run) for run in self.runs],
            "curves": {"times": first.times[measured].tolist(), "numbers": curves},
        }

    def _pictures_at(self, frame: int) -> list[FlockPicture]:
        before, self.frame = self.frame, frame
        pictures = self.pictures()
        self.frame = before
        return pictures


def _about(run: Trajectory) -> dict[str, Any]:
    """What the page tells of a flight."""
    return {
        "controller": str(run.config.get("controller", "flight")),
        "scenario": str(run.config.get("scenario", "")).partition(":")[0],
        "agents": int((run.roles[0] != Role.OBSTACLE).sum()),
        "ending": _ending(run),
    }


def _ending(run: Trajectory) -> str:
    """How a flight ended, and when, if not with its time."""
    outcome = run.outcome[0]
    return "" if outcome == Outcome.TIME_UP else f"{outcome} at {int(run.steps[0]) * run.time_step:.2f} s"


def _for_json(numbers: tuple[float, ...]) -> list[float | None]:
    return [number if math.isfinite(number) else None for number in numbers]


def check_playback(runs: Sequence[Trajectory]) -> None:
    """Raise a clear error unless these can be shown together."""
    if not 1 <= len(runs) <= MOST_FLIGHTS:
        raise InputError(f"one flight can be shown, or {MOST_FLIGHTS} side by side; got {len(runs)}")
    if any(not np.array_equal(run.times, runs[0].times) for run in runs):
        raise InputError("two flights can be shown side by side if they have the same times; these have not")
