"""A flight of a given duration, and what is kept of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, is_dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from equiflock.flock import Flock, Vectors
from equiflock.outcomes import Outcome
from equiflock.protocols import AnyBody, Controller, Ending, Moment
from equiflock.runtime.checks import InputError, check_count, check_positive, is_finite, shorten_repr
from equiflock.runtime.physical_memory import read_physical_memory
from equiflock.senses.aggregation import Obstacles
from equiflock.senses.orbit import Orbit
from equiflock.senses.radio import Radio
from equiflock.simulation.body_motion import BodyState
from equiflock.simulation.failures import Failures
from equiflock.simulation.flight_builder import flight
from equiflock.simulation.trajectory import Trajectory
from equiflock.version import __version__

MAX_STEPS = 100_000_000
"""Flights of more steps are refused."""

Measure = Callable[[Moment], Float64[np.ndarray, " B"]]
"""A number per flock of a moment: any function in `equiflock.simulation.metrics`, or one's own."""


def simulate(
    start: Flock,
    controller: Controller,
    *,
    time_step: float = 0.01,
    duration: float = 2.0,
    comm_radius: float | None = None,
    body: AnyBody | None = None,
    ending: Ending | None = None,
    orbit: Orbit | None = None,
    obstacles: Obstacles = "nearest",
    radio: Radio | None = None,
    failures: Failures | None = None,
    body_state: BodyState | None = None,
    keep_every: int | None = 1,
    record: Iterable[Measure] | Mapping[str, Measure] = (),
    on_step: Callable[[Moment], object] | None = None,
    config: dict[str, Any] | None = None,
) -> Trajectory:
    """Fly for a while and keep what happened.

    Args:
        start: the flock at t = 0.
        controller: a controller, such as `load("tanner")`.
        time_step: dt, in seconds.
        duration: in seconds; T = duration / time_step, rounded, steps are made.
        comm_radius: the communication radius R, if it shall be another than that of `start`.
        body: what a commanded acceleration does; the double integrator if left out.
        ending: decides at every moment which flocks have ended; None lets them fly the whole time.
        orbit: the technique by which followers avoid obstacles; None if obstacle agents just stand still.
        obstacles: which obstacle agents within R a follower hears, the "nearest" or "all".
        radio: how messages travel, such as `Radio(loss=0.2)`; all arrive at once and exact if left out.
        failures: who fails, how and when, such as `Failures(agents=5, time=1.0)`; nobody if left out.
        body_state: what the body remembers of the agents of `start`, such as `run.body_state_at(-1)` of a saved flight.
        keep_every: keep every so many-th frame; None keeps none. The first and the last are always kept.
        record: functions of a moment to evaluate at every step, such as `metrics.velocity_variance`; their values stand
            in `series` under the functions' names, or those of a mapping, whatever frames are kept. They are given the
            flocks that had not ended before; the others keep their last values.
        on_step: called with every moment, for progress.
        config: more settings to keep with the trajectory, such as JSON can hold.
    """
    steps = count_steps(duration, time_step)
    # An endless flight takes any time, but in this one it would mean that nobody fails.
    if isinstance(failures, Failures) and failures.agents > 0 and failures.compute_failure_step(time_step) > steps:
        raise InputError(f"failures.time must be at most the duration, {steps * time_step:g} s; got {failures.time:g}")
    # The loop checks its own arguments, so time step and radius are taken from it from here on.
    rules: dict[str, Any] = {"orbit": orbit, "obstacles": obstacles, "radio": radio, "failures": failures}
    rules |= {"body": body, "body_state": body_state}
    loop = flight(start, controller, time_step=time_step, comm_radius=comm_radius, ending=ending, **rules)
    time_step, comm_radius, duration = loop.time_step, loop.comm_radius, float(duration)
    # Whoever opens the trajectory later finds everything that its numbers depend on, except the start itself.
    settings = {
        "controller": getattr(controller, "name", type(controller).__name__),
        "senses": asdict(controller.senses),
        "time_step": time_step,
        "duration": duration,
        "comm_radius": comm_radius,
        "body": describe_part(loop.body),
        "ending": describe_part(ending),
        "orbit": describe_part(orbit),
        "obstacles": obstacles,
        "radio": describe_part(radio),
        "failures": describe_part(failures),
        "keep_every": None if keep_every is None else check_count("keep_every", keep_every),
        "equiflock": __version__,
        **(config or {}),
    }
    settings = _to_json_types(settings)
    # Memory for the frames and the series is taken before the first step: too little of it is known at once.
    frames = _FrameBuffer(steps, keep_every, start.shape, loop.body_state)
    measures = _name_measures(record)
    series = {name: np.empty((steps + 1, len(start))) for name in measures}
    flown = np.zeros(len(start), np.int64)
    # A flock is measured once more at the step at which it ended, and never after.
    changed = np.ones(len(start), bool)

    # Where nothing happens but frames being kept, the steps between them need no moments.
    watched = bool(measures) or on_step is not None or ending is not None
    for moment in loop:
        frames.add(moment)
        # Ended flocks repeat their last values; measures are given the others only.
        for name, measure in measures.items():
            if not changed.all():
                series[name][moment.step] = series[name][moment.step - 1]
            series[name][moment.step, changed] = measure(_select_flocks(moment, changed))
        if on_step is not None:
            on_step(moment)
        if moment.step == steps or not moment.flying.any():
            break
        # Whoever flies now makes one more step, or all those that nobody looks at.
        unseen = 0 if watched else frames.next_step - moment.step - 1
        flown[moment.flying] = moment.step + 1 + unseen
        changed = moment.flying
        if unseen > 0:
            loop.skip(unseen)
    # If all flocks ended early, what remains of the time repeats their last states.
    frames.fill_rest(moment)
    for values in series.values():
        values[moment.step + 1 :] = values[moment.step]

    return Trajectory(
        times=frames.frame_steps * time_step,
        positions=frames.positions,
        velocities=frames.velocities,
        accelerations=frames.accelerations,
        conditions=frames.conditions,
        roles=start.roles.copy(),
        obstacles=start.obstacles.copy(),
        groups=start.groups.copy(),
        steps=flown,
        outcomes=np.where(moment.flying, Outcome.TIME_UP, moment.outcomes).astype(np.int8),
        time_step=time_step,
        comm_radius=comm_radius,
        series=series,
        config=settings,
        body_state=frames.body_state,
    )


def count_steps(duration: float, time_step: float) -> int:
    """How many steps a duration takes, to the nearest; a clear error if that is no sensible number."""
    check_positive("time_step", time_step)
    if not is_finite(duration) or duration < 0:
        raise InputError(f"duration must be a finite number of at least 0; got {shorten_repr(duration)}")
    steps = float(duration) / time_step
    if steps > MAX_STEPS:
        raise InputError(f"duration / time_step must be at most {MAX_STEPS:.0e} steps; got {steps:.3g}")
    return round(steps)


def describe_part(part: object) -> Any:
    """What a part of a flight is, such as JSON can hold: its kind, and its numbers and words."""
    if part is None:
        return None
    # A dataclass tells its fields; any other object its public attributes.
    numbers = asdict(part) if is_dataclass(part) and not isinstance(part, type) else getattr(part, "__dict__", {})
    plain = {
        name: value
        for name, value in numbers.items()
        if not name.startswith("_") and isinstance(value, (bool, int, float, str, type(None)))
    }
    return {"kind": getattr(part, "__name__", type(part).__name__), **plain}


def _to_json_types(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings as they would come back from a file: lists for tuples."""
    # Through JSON and back, so that a trajectory in memory equals the one that is loaded from disk.
    try:
        found: dict[str, Any] = json.loads(json.dumps(settings))
        return found
    except (TypeError, ValueError) as error:
        raise InputError(f"config must be such as JSON can hold: {error}") from None


def _name_measures(record: Iterable[Measure] | Mapping[str, Measure]) -> dict[str, Measure]:
    """The functions to record by the names of their series."""
    if callable(record) or not isinstance(record, Iterable):
        raise InputError(f"record must be functions in a list or a mapping; got {shorten_repr(record)}")
    if isinstance(record, Mapping):
        return dict(record)
    # In a list, a function is known by its own name, which two lambdas share.
    measures = list(record)
    names = [getattr(measure, "__name__", "") for measure in measures]
    if len(set(names)) < len(names) or "" in names:
        raise InputError(f"functions to record need names of their own, or a mapping that gives them; got {names}")
    return dict(zip(names, measures, strict=True))


class _FrameBuffer:
    """The frames that are kept, filled in as the flight goes on."""

    def __init__(self, steps: int, keep_every: int | None, shape: tuple[int, int, int], body_state: BodyState) -> None:
        every = keep_every or max(steps, 1)
        # Three arrays of float64, conditions, and what bodies remember. Refused here, with a hint, rather than by the
        # system in the middle of a flight.
        frames = -(-steps // every) + 1
        remembered = sum(array.nbytes for array in body_state.values())
        size = frames * (3 * 8 * math.prod(shape) + math.prod(shape[:2]) + remembered)
        if size > read_physical_memory():
            raise InputError(
                f"keeping {frames:,} frames needs {size / 2**30:,.0f} GiB, more than this machine has: "
                "raise keep_every, or set it to None and record what you need"
            )
        # The steps whose frames are kept, the first and the last in any case.
        self.frame_steps = np.append(np.arange(0, steps, every), steps)
        self.frames_filled = 0
        self.positions = np.empty((len(self.frame_steps), *shape))
        self.velocities = np.empty_like(self.positions)
        self.conditions = np.empty((len(self.frame_steps), *shape[:2]), np.int8)
        # No acceleration follows the last frame.
        self.accelerations: Vectors = np.zeros((len(self.frame_steps) - 1, *shape))
        self.body_state = {
            name: np.empty((len(self.frame_steps), *array.shape), array.dtype) for name, array in body_state.items()
        }

    @property
    def next_step(self) -> int:
        """The step of the next frame to keep."""
        return int(self.frame_steps[self.frames_filled])

    def add(self, moment: Moment) -> None:
        """Keep the moment, if its step is one of those to keep."""
        if self.frames_filled < len(self.frame_steps) and moment.step == self.frame_steps[self.frames_filled]:
            self._write_frame(moment)
            if self.frames_filled < len(self.frame_steps):
                self.accelerations[self.frames_filled - 1] = moment.accelerations

    def fill_rest(self, moment: Moment) -> None:
        """Repeat the last moment in all frames that are still empty; their accelerations stay zero."""
        while self.frames_filled < len(self.frame_steps):
            self._write_frame(moment)

    def _write_frame(self, moment: Moment) -> None:
        self.positions[self.frames_filled] = moment.flock.positions
        self.velocities[self.frames_filled] = moment.flock.velocities
        self.conditions[self.frames_filled] = moment.flock.conditions
        for name, values in self.body_state.items():
            values[self.frames_filled] = moment.body_state[name]
        self.frames_filled += 1


def _select_flocks(moment: Moment, which: Bool[np.ndarray, " B"]) -> Moment:
    """The same moment, with only those flocks for which `which` is true."""
    if which.all():
        return moment
    compute_message_graph = moment.compute_message_graph
    return replace(
        moment,
        flock=moment.flock[which],
        observations=moment.observations[which],
        accelerations=moment.accelerations[which],
        flying=moment.flying[which],
        outcomes=moment.outcomes[which],
        body_state={name: array[which] for name, array in moment.body_state.items()},
        compute_message_graph=None
        if compute_message_graph is None
        else lambda: compute_message_graph().select_flocks(which),
    )
