"""Saved flights on the page: one, or two side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from equiflock.flock import Role, Vectors
from equiflock.outcomes import Outcome
from equiflock.runtime.checks import InputError
from equiflock.scenarios import Stop
from equiflock.scenarios.until_passed import obstacle_disks
from equiflock.simulation.body_motion import compute_acceleration_between
from equiflock.simulation.trajectory import Trajectory
from equiflock.viewer.frames import NO_LINKS, FlockPicture, build_links

MAX_FLIGHTS = 2
MAX_CURVE_POINTS = 400
"""The curves of the whole flight are drawn through this many frames at most."""


class Playback:
    """One flock of each of one or two saved flights, frame by frame.

    Args:
        runs: one or two flights whose frames have the same times.
        flock: which flock of the batch.
    """

    def __init__(self, runs: Sequence[Trajectory], flock: int = 0) -> None:
        check_playback(runs)
        flocks = min(len(run.steps) for run in runs)
        if flock >= flocks:
            raise InputError(f"flock must be below {flocks}; got {flock}")
        self.runs = [run[flock] for run in runs]
        # Frames after everybody's flight has ended repeat the last state.
        # Half a step more, so that rounding of times never cuts off the last frame.
        end = max((int(run.steps[0]) + 0.5) * run.time_step for run in self.runs)
        self.frame_count = max(int(np.count_nonzero(self.runs[0].times < end)), 1)
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
        self.frame = min(frame, self.frame_count - 1)

    def make_pictures(self) -> list[FlockPicture]:
        """The flock of each panel at the present frame."""
        found = []
        for run in self.runs:
            flock = run.flock(self.frame)
            last = len(run.accelerations) - 1
            # No acceleration follows the last frame.
            accelerations = run.accelerations[self.frame] if self.frame <= last else None
            held_accelerations = _compute_held_accelerations(run, self.frame) if self.frame <= last else None
            # Which messages arrived is not saved: these are the links of those within reach.
            links = build_links(flock) if self.edges else NO_LINKS
            # By half a step, as times are rounded: from the frame at which this flight ended on.
            has_ended = self.time >= (int(run.steps[0]) - 0.5) * run.time_step
            found.append(
                FlockPicture(flock, accelerations, obstacle_disks(flock), links, has_ended, held_accelerations)
            )
        return found

    def to_dict(self, stop: Stop | None = None) -> dict[str, Any]:
        """What the page is sent of the flights: times, names and curves. `stop` ends measuring, which may take long."""
        first = self.runs[0]
        # Frames evenly over the flight, each once, the first and the last among them.
        measured = np.unique(np.linspace(0, self.frame_count - 1, MAX_CURVE_POINTS).round().astype(int))
        curves = []
        for frame in measured.tolist():
            if stop is not None:
                stop.check()
            curves.append([_replace_nonfinite(picture.metric_values) for picture in self._make_pictures_at(frame)])
        return {
            "times": first.times[: self.frame_count].tolist(),
            "time_step": first.time_step,
            "comm_radius": first.comm_radius,
            "dimensions": first.positions.shape[3],
            "flights": [_describe_flight(run) for run in self.runs],
            "curves": {"times": first.times[measured].tolist(), "numbers": curves},
        }

    def _make_pictures_at(self, frame: int) -> list[FlockPicture]:
        before, self.frame = self.frame, frame
        make_pictures = self.make_pictures()
        self.frame = before
        return make_pictures


def _compute_held_accelerations(run: Trajectory, frame: int) -> Vectors:
    """The accelerations that, held, lead from a frame to the next one, whatever body made it."""
    time = float(run.times[frame + 1] - run.times[frame])
    return compute_acceleration_between(run.positions[frame], run.velocities[frame], run.positions[frame + 1], time)


def _describe_flight(run: Trajectory) -> dict[str, Any]:
    """The controller, scenario, size and ending of a flight, as the page shows them."""
    return {
        "controller": str(run.config.get("controller", "flight")),
        "scenario": str(run.config.get("scenario", "")).partition(":")[0],
        "agents": int((run.roles[0] != Role.OBSTACLE).sum()),
        "ending": _format_ending(run),
    }


def _format_ending(run: Trajectory) -> str:
    """How and when a flight ended; nothing if it flew for its whole duration."""
    outcome = run.outcome[0]
    return "" if outcome == Outcome.TIME_UP else f"{outcome} at {int(run.steps[0]) * run.time_step:.2f} s"


def _replace_nonfinite(metric_values: tuple[float, ...]) -> list[float | None]:
    # JSON has neither infinity nor NaN.
    return [number if math.isfinite(number) else None for number in metric_values]


def check_playback(runs: Sequence[Trajectory]) -> None:
    """Raise a clear error unless these flights are one or two and have the same times."""
    if not 1 <= len(runs) <= MAX_FLIGHTS:
        raise InputError(f"one flight can be shown, or {MAX_FLIGHTS} side by side; got {len(runs)}")
    if any(not np.array_equal(run.times, runs[0].times) for run in runs):
        raise InputError("two flights can be shown side by side if they have the same times; these have not")
