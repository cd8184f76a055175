"""`simulate`: a flight of a given duration, recorded as a trajectory."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, is_dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from equiflock._runtime.checks import InputError, check_count, check_positive, shorten_repr
from equiflock._runtime.memory import check_fits_memory
from equiflock.flock import Flock, Vectors
from equiflock.observations.aggregation import Obstacles
from equiflock.observations.orbit import Orbit
from equiflock.observations.radio import Radio
from equiflock.outcomes import Outcome
from equiflock.protocols import AnyBody, Controller, Ending, LastStep, Moment
from equiflock.simulation.body_motion import BodyState
from equiflock.simulation.environment import Environment, apply_shorthands
from equiflock.simulation.failures import Failures
from equiflock.simulation.flight_builder import flight
from equiflock.simulation.last_step import LastStepRecorder
from equiflock.simulation.metrics import METRICS, get_metric
from equiflock.simulation.trajectory import STATIC_ARRAYS, Trajectory
from equiflock.version import __version__

MAX_STEPS = 100_000_000
"""Largest number of steps of a flight."""
STEP_TOLERANCE = 1e-9
"""Relative rounding error with which a duration still is a whole number of steps."""

Measure = Callable[[Moment], Float64[np.ndarray, " B"]]
"""A function of a moment that returns a number per flock, such as those in `equiflock.simulation.metrics`."""


def simulate(
    start: Flock,
    controller: Controller,
    *,
    time_step: float = 0.01,
    duration: float = 2.0,
    comm_radius: float | None = None,
    environment: Environment | None = None,
    body: AnyBody | None = None,
    ending: Ending | None = None,
    orbit: Orbit | None = None,
    obstacles: Obstacles = "nearest",
    radio: Radio | None = None,
    failures: Failures | None = None,
    body_state: BodyState | None = None,
    keep_every: int | None = 1,
    record: Iterable[Measure | str] | Mapping[str, Measure | str] = (),
    on_step: Callable[[Moment], object] | None = None,
    config: dict[str, Any] | None = None,
) -> Trajectory:
    """Simulate a flight of that duration and return its trajectory.

    Ended flocks stay as they are. Once all flocks have ended, the simulation stops, and their last states and values
    fill the rest of the duration. Raise InputError if an argument is invalid, an agent would fail after the duration,
    or the frames exceed the memory.

    Args:
        start: the flock at t = 0.
        controller: a controller, such as `load("tanner")`.
        time_step: dt, in seconds.
        duration: in seconds, at least one step; the flight has T = duration / time_step steps, rounded.
        comm_radius: R; default: that of `start`.
        environment: radio, body and failures, such as `Environment(radio=Radio(delay=1))`; default: the paper's.
        body: shorthand for that part of the environment, as are `radio` and `failures`.
        ending: decides at every moment which flocks have ended; None: all flocks fly for the whole duration.
        orbit: orbit technique by which followers avoid obstacles; None: obstacle agents only stand still.
        obstacles: obstacle agents within R from which a follower receives messages: the "nearest" or "all".
        radio: see `body`.
        failures: see `body`.
        body_state: body state of the agents of `start`, such as `run.body_state_at(-1)` of a saved flight.
        keep_every: interval of the frames to keep, in steps; None: none in between. The first and last are always kept.
        record: functions of a moment to evaluate at every step, or names of metrics, such as "velocity_variance"; their
            values are in `series` under their names, or the keys of a mapping, at every step whatever frames are kept.
            They receive the flocks that had not ended before; ended flocks keep their last values.
        on_step: called with every moment until all flocks have ended, for progress.
        config: further settings to store with the trajectory, JSON-serializable.
    """
    steps = count_steps(duration, time_step)
    environment = apply_shorthands(environment, radio=radio, body=body, failures=failures)
    failures = environment.failures
    # An endless flight accepts any time of failure; in this one no agent would fail.
    if failures.agents > 0 and failures.compute_failure_step(time_step) > steps:
        raise InputError(f"failures.time must be at most the duration, {steps * time_step:g} s; got {failures.time:g}")
    loop = flight(
        start,
        controller,
        time_step=time_step,
        comm_radius=comm_radius,
        environment=environment,
        ending=ending,
        orbit=orbit,
        obstacles=obstacles,
        body_state=body_state,
    )
    # All settings on which the results depend, except the start itself.
    settings = {
        "controller": getattr(controller, "name", type(controller).__name__),
        "senses": asdict(controller.senses),
        "time_step": loop.time_step,
        "duration": compute_flown_duration(duration, time_step),
        "comm_radius": loop.comm_radius,
        "body": describe_part(environment.body),
        "ending": describe_part(ending),
        "orbit": describe_part(orbit),
        "obstacles": obstacles,
        "radio": None if environment.radio.is_ideal else describe_part(environment.radio),
        "failures": None if failures.is_empty else describe_part(failures),
        "keep_every": None if keep_every is None else check_count("keep_every", keep_every),
        "equiflock": __version__,
        **({} if loop.safety is None else {"safety": str(loop.safety.limits)}),
        **(config or {}),
    }
    settings = _to_json_types(settings)
    # Allocate frames and series before the first step, so that a lack of memory shows at once.
    frames = _FrameBuffer(steps, keep_every, start.shape, loop.body_state)
    series = _SeriesBuffer(steps, len(start), record)
    flown_steps = np.zeros(len(start), np.int64)
    # Without measures, callback and ending, the steps between frames need no moments.
    every_moment = bool(series.measures) or on_step is not None or ending is not None
    last_steps = LastStepRecorder() if series.uses_last_step else None
    for moment in loop:
        if last_steps is not None:
            moment = last_steps.attach(moment)
        frames.add(moment)
        series.add(moment)
        if on_step is not None:
            on_step(moment)
        if moment.step == steps or not moment.flying.any():
            break
        # Flying flocks make the step to the next moment, and the skipped ones before it.
        skipped = 0 if every_moment else frames.next_step - moment.step - 1
        flown_steps[moment.flying] = moment.step + 1 + skipped
        if skipped > 0:
            loop.skip(skipped)
    # If all flocks ended early, repeat their last states until the end of the duration.
    frames.fill_rest(moment)
    series.fill_rest(moment)
    return Trajectory(
        times=frames.frame_steps * loop.time_step,
        positions=frames.positions,
        velocities=frames.velocities,
        accelerations=frames.accelerations,
        conditions=frames.conditions,
        **{name: getattr(start, name).copy() for name in STATIC_ARRAYS},
        steps=flown_steps,
        outcomes=np.where(moment.flying, Outcome.TIME_UP, moment.outcomes).astype(np.int8),
        time_step=loop.time_step,
        comm_radius=loop.comm_radius,
        series=series.values,
        config=settings,
        body_state=frames.body_state,
    )


def count_steps(duration: float, time_step: float) -> int:
    """Return the number of steps of a duration, rounded to the nearest.

    Raise InputError if the duration is below one step, the time step is not positive, or there are more than MAX_STEPS
    steps.
    """
    steps = check_positive("duration", duration) / check_positive("time_step", time_step)
    if steps > MAX_STEPS:
        raise InputError(f"duration / time_step must be at most {MAX_STEPS:.0e} steps; got {steps:.3g}")
    if steps < 1.0 - STEP_TOLERANCE:
        raise InputError(f"duration must be at least one time step ({time_step:g} s); got {duration:g}")
    return round(steps)


def compute_flown_duration(duration: float, time_step: float) -> float:
    """Return `duration` if it is a whole number of steps, else the duration of the steps that are flown."""
    steps = count_steps(duration, time_step)
    is_whole = abs(duration / time_step - steps) <= STEP_TOLERANCE * steps
    return float(duration) if is_whole else steps * time_step


def describe_part(part: object) -> Any:
    """Return {"kind": name of the type, ..} of a part of a flight, with its public numbers, booleans and strings.

    Other attributes are left out. None for None; for a function, "kind" is its name.
    """
    if part is None:
        return None
    attributes = asdict(part) if is_dataclass(part) and not isinstance(part, type) else getattr(part, "__dict__", {})
    values = {
        name: value
        for name, value in attributes.items()
        if not name.startswith("_") and isinstance(value, (bool, int, float, str, type(None)))
    }
    return {"kind": getattr(part, "__name__", type(part).__name__), **values}


def _to_json_types(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings as a file would return them, with lists for tuples; raise InputError if JSON cannot."""
    try:
        result: dict[str, Any] = json.loads(json.dumps(settings))
        return result
    except (TypeError, ValueError) as error:
        raise InputError(f"config must be JSON-serializable: {error}") from None


def _name_measures(record: Iterable[Measure | str] | Mapping[str, Measure | str]) -> dict[str, Measure]:
    """Return the functions to record by the names of their series: the keys of a mapping, or their own names.

    Raise InputError if functions in a list have the same name or none, or if there is no metric of a name.
    """
    if callable(record) or isinstance(record, str) or not isinstance(record, Iterable):
        expected = "a list or a mapping of functions of a moment, or of names of metrics"
        raise InputError(f"record must be {expected}; got {shorten_repr(record)}")
    given = list(record.values() if isinstance(record, Mapping) else record)
    measures = [get_metric(each, "record") if isinstance(each, str) else each for each in given]
    for measure in measures:
        if not callable(measure):
            raise InputError(f"a measure must be a function of a moment or the name of a metric; got {measure!r}")
    if isinstance(record, Mapping):
        return dict(zip(record, measures, strict=True))
    names = [each if isinstance(each, str) else getattr(each, "__name__", "") for each in given]
    if len(set(names)) < len(names) or "" in names:
        raise InputError(f"functions to record need distinct names, or a mapping from names to functions; got {names}")
    return dict(zip(names, measures, strict=True))


class _FrameBuffer:
    """The frames to keep, filled in during the flight."""

    def __init__(self, steps: int, keep_every: int | None, shape: tuple[int, int, int], body_state: BodyState) -> None:
        # Raise an error with a hint here, rather than let the system run out of memory in the middle of a flight.
        interval = keep_every or max(steps, 1)
        count = -(-steps // interval) + 1
        body_bytes = sum(array.nbytes for array in body_state.values())
        size = count * (3 * 8 * math.prod(shape) + math.prod(shape[:2]) + body_bytes)
        advice = "raise keep_every, or set it to None and record what you need"
        check_fits_memory(f"keeping {count:,} frames", size, advice)
        # The steps of the frames, always including the first and the last.
        self.frame_steps = np.append(np.arange(0, steps, interval), steps)
        self.frames_filled = 0
        self.positions, self.velocities = (np.empty((count, *shape)) for _ in range(2))
        self.conditions = np.empty((count, *shape[:2]), np.int8)
        # No acceleration follows the last frame.
        self.accelerations: Vectors = np.zeros((count - 1, *shape))
        self.body_state = {name: np.empty((count, *array.shape), array.dtype) for name, array in body_state.items()}

    @property
    def next_step(self) -> int:
        """The step of the next frame to keep."""
        return int(self.frame_steps[self.frames_filled])

    def add(self, moment: Moment) -> None:
        """Store the moment if its step is that of the next frame, and its accelerations unless it is the last frame."""
        if self.frames_filled < len(self.frame_steps) and moment.step == self.frame_steps[self.frames_filled]:
            self._write_frame(moment)
            if self.frames_filled < len(self.frame_steps):
                self.accelerations[self.frames_filled - 1] = moment.accelerations

    def fill_rest(self, moment: Moment) -> None:
        """Repeat the last moment in all frames that are still empty; their accelerations stay zero."""
        while self.frames_filled < len(self.frame_steps):
            self._write_frame(moment)

    def _write_frame(self, moment: Moment) -> None:
        """Write state, conditions and body state of the moment into the next frame."""
        self.positions[self.frames_filled] = moment.flock.positions
        self.velocities[self.frames_filled] = moment.flock.velocities
        self.conditions[self.frames_filled] = moment.flock.conditions
        for name, values in self.body_state.items():
            values[self.frames_filled] = moment.body_state[name]
        self.frames_filled += 1


class _SeriesBuffer:
    """The values of the functions to record, filled in during the flight."""

    def __init__(self, steps: int, flocks: int, record: Iterable[Measure | str] | Mapping[str, Measure | str]) -> None:
        self.measures = _name_measures(record)
        size = 8 * (steps + 1) * flocks * len(self.measures)
        check_fits_memory(f"recording {steps:,} steps", size, "shorten the flight, or raise time_step")
        self.values = {name: np.empty((steps + 1, flocks)) for name in self.measures}
        # A function may be given for the metric that was registered from it.
        two_moments = {metric.function for metric in METRICS.parts.values() if metric.uses_last_step}
        self.uses_last_step = any(
            measure in two_moments or getattr(measure, "uses_last_step", False) for measure in self.measures.values()
        )
        """Whether a measure needs `Moment.last_step`."""
        self._changed = np.ones(flocks, bool)
        """Flocks that flew to the present moment: each is measured for the last time at the step at which it ends."""

    def add(self, moment: Moment) -> None:
        """Evaluate the measures at the moment, in the flocks that had not ended before; others keep their values."""
        for name, measure in self.measures.items():
            values = self.values[name]
            if not self._changed.all():
                values[moment.step] = values[moment.step - 1]
            measured = np.asarray(measure(_select_flocks(moment, self._changed)))
            flocks = np.count_nonzero(self._changed)
            if measured.dtype.kind not in "biuf" or measured.shape not in ((), (flocks,)):
                received = f"{measured.dtype} of shape {measured.shape}"
                raise InputError(f"the measure {name!r} must return a number per flock, ({flocks},); got {received}")
            values[moment.step, self._changed] = measured
        self._changed = moment.flying

    def fill_rest(self, moment: Moment) -> None:
        """Repeat the values of the last moment until the end."""
        for values in self.values.values():
            values[moment.step + 1 :] = values[moment.step]


def _select_flocks(moment: Moment, which: Bool[np.ndarray, " B"]) -> Moment:
    """Return the moment with only the flocks for which `which` is true."""
    if which.all():
        return moment
    compute_message_graph, last_step = moment.compute_message_graph, moment.last_step
    return replace(
        moment,
        flock=moment.flock[which],
        observations=moment.observations[which],
        accelerations=moment.accelerations[which],
        flying=moment.flying[which],
        outcomes=moment.outcomes[which],
        start_steps=moment.start_steps[which],
        body_state={name: array[which] for name, array in moment.body_state.items()},
        compute_message_graph=None
        if compute_message_graph is None
        else lambda: compute_message_graph().select_flocks(which),
        last_step=None if last_step is None else LastStep(*(array[which] for array in last_step)),
        safety_states=None if moment.safety_states is None else moment.safety_states[which],
    )
