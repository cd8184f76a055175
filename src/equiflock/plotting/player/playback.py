"""Playback of one saved flight, or two side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from equiflock._runtime.checks import InputError
from equiflock.flock import Role, Vectors
from equiflock.outcomes import Outcome
from equiflock.plotting.player.frames import NO_LINKS, FlockPicture, build_links
from equiflock.plotting.player.overlay import load_overlay
from equiflock.scenarios import Stop
from equiflock.scenarios.obstacle_shapes import obstacle_disks
from equiflock.simulation.body_motion import compute_acceleration_between
from equiflock.simulation.trajectory import Trajectory

MAX_FLIGHTS = 2
"""Maximum number of flights that the live page plays side by side."""
MAX_CURVE_POINTS = 400
"""Maximum number of frames that are measured for the curves of the whole flight."""


class Playback:
    """One flock, by its index in the batch, of one or more saved flights with the same frame times."""

    def __init__(self, runs: Sequence[Trajectory], flock: int = 0, max_flights: int = MAX_FLIGHTS) -> None:
        check_playback(runs, max_flights)
        flocks = min(len(run.steps) for run in runs)
        if flock >= flocks:
            raise InputError(f"flock must be below {flocks}; got {flock}")
        self.runs = [run[flock] for run in runs]
        self._overlays = [load_overlay(run) for run in self.runs]
        # Omit frames after all flights have ended, which repeat the last state. Half a step is added so that rounding
        # of times does not cut off the last frame.
        end = max((int(run.steps[0]) + 0.5) * run.time_step for run in self.runs)
        self.frame_count = max(int(np.count_nonzero(self.runs[0].times < end)), 1)
        self.edges = False
        """Whether pictures include the communication graph."""
        self.frame = 0
        """Index of the current frame."""

    @property
    def step(self) -> int:
        """Index of the current frame, under the name that `LiveSimulation` has for the number of steps."""
        return self.frame

    @property
    def time(self) -> float:
        """Time of the current frame, in seconds."""
        return float(self.runs[0].times[self.frame])

    def seek(self, frame: int) -> None:
        """Go to a frame by its index, or to the last if the index is beyond it."""
        self.frame = min(frame, self.frame_count - 1)

    def make_pictures(self) -> list[FlockPicture]:
        """Return the picture of each flight at the current frame, with all links within R if `edges` is True."""
        return [self._make_picture(panel, self.frame) for panel in range(len(self.runs))]

    def _make_picture(self, panel: int, frame: int) -> FlockPicture:
        """Return the picture of one flight at a frame; where no command follows, it has those that came last."""
        run = self.runs[panel]
        flock = run.flock(frame)
        # Half a step allows for the rounding of times.
        in_flight = run.times < (int(run.steps[0]) - 0.5) * run.time_step
        last_command = min(int(np.count_nonzero(in_flight)), len(run.accelerations)) - 1
        accelerations = run.accelerations[min(frame, last_command)] if last_command >= 0 else None
        held = _compute_held_accelerations(run, frame) if frame < len(run.accelerations) else np.zeros(flock.shape)
        # Lost messages are not saved: show all links within the communication radius.
        links = build_links(flock) if self.edges else NO_LINKS
        has_ended = not in_flight[frame]
        is_judged = has_ended and run.outcome[0] != Outcome.TIME_UP
        outcome = (int(run.outcome[0]), int(run.steps[0]) * run.time_step) if is_judged else ()
        overlay = self._overlays[panel].make_state(flock, *outcome)
        return FlockPicture(flock, accelerations, obstacle_disks(flock), links, has_ended, held, overlay)

    def to_dict(self, stop: Stop | None = None) -> dict[str, Any]:
        """Return times, flights and curves for the page, JSON-serializable.

        The curves have the metrics of each flight, with None for infinity and NaN, which JSON lacks, at up to
        MAX_CURVE_POINTS frames. `stop` cancels their measurement, which may take long, with a SearchCancelledError.
        """
        first = self.runs[0]
        # Evenly spaced frames without repetition, including the first and the last.
        measured = np.unique(np.linspace(0, self.frame_count - 1, MAX_CURVE_POINTS).round().astype(int))
        curves = []
        for frame in measured.tolist():
            if stop is not None:
                stop.check()
            values = [self._make_picture(panel, frame).metric_values for panel in range(len(self.runs))]
            curves.append([[value if math.isfinite(value) else None for value in panel] for panel in values])
        return {
            "times": first.times[: self.frame_count].tolist(),
            "time_step": first.time_step,
            "comm_radius": first.comm_radius,
            "dimensions": first.positions.shape[3],
            "flights": [
                {**_describe_flight(run), "overlay": overlay.to_dict()}
                for run, overlay in zip(self.runs, self._overlays, strict=True)
            ],
            "curves": {"times": first.times[measured].tolist(), "metric_values": curves},
        }


def _compute_held_accelerations(run: Trajectory, frame: int) -> Vectors:
    """Return the constant accelerations (1, N, D) that lead from a frame to the next one's positions."""
    time = float(run.times[frame + 1] - run.times[frame])
    return compute_acceleration_between(run.positions[frame], run.velocities[frame], run.positions[frame + 1], time)


def _describe_flight(run: Trajectory) -> dict[str, Any]:
    """Return controller, scenario (without options), agents (without obstacle agents) and ending of a flight.

    The ending is a text with the outcome and its time, "" for a flight that reached its full duration.
    """
    outcome = run.outcome[0]
    ending = "" if outcome == Outcome.TIME_UP else f"{outcome} at {int(run.steps[0]) * run.time_step:.2f} s"
    return {
        "controller": str(run.config.get("controller", "flight")),
        "scenario": str(run.config.get("scenario", "")).partition(":")[0],  # any text of the user
        "agents": int((run.roles[0] != Role.OBSTACLE).sum()),
        "ending": ending,
    }


def check_playback(runs: Sequence[Trajectory], max_flights: int = MAX_FLIGHTS) -> None:
    """Raise InputError if there are no flights, more than `max_flights`, or some with different frame times."""
    if not 1 <= len(runs) <= max_flights:
        raise InputError(f"flights must be one, or up to {max_flights} side by side; got {len(runs)}")
    if any(not np.array_equal(run.times, runs[0].times) for run in runs):
        raise InputError(
            "flights side by side must have the same times: save them with the same duration, time step and interval"
        )
