"""The loop: sense, decide, move. Everything that flies a flock reads this one generator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import numpy as np
from jaxtyping import Bool, Float64
from numpy.typing import NDArray

from equiflock.messages import DelayedAggregation
from equiflock.trajectory import Trajectory
from equiflock.types import (
    Controller,
    Ending,
    Flock,
    InputError,
    LocalController,
    Messages,
    Moment,
    Outcome,
    PrivilegedController,
    Role,
    Vectors,
    check_count,
    check_positive,
)
from equiflock.version import __version__
from equiflock.world import advance

# As plain numbers: looking an enum's member up takes microseconds, and this loop has some tens of them.
FLYING, FOLLOWER = int(Outcome.FLYING), int(Role.FOLLOWER)

Measure = Callable[[Moment], Float64[np.ndarray, " B"]]
"""A number per flock of a moment: any function in `equiflock.metrics`, or one's own."""


class Flight(Iterator[Moment]):
    """A flock in flight: iterate over it to let time pass, one `Moment` per step, endless unless all flocks end.

    Each moment's messages and accelerations belong to its positions and velocities; the step they lead to is made
    when the next moment is asked for. Ended flocks keep their place: state frozen, acceleration zero.
    """

    def __init__(
        self,
        start: Flock,
        pilot: Controller,
        *,
        time_step: float = 0.01,
        radius: float = 1.0,
        ending: Ending | None = None,
    ) -> None:
        check_controller(pilot)
        self.pilot = pilot
        self.time_step = check_positive("time_step", time_step)
        self.radius = check_positive("radius", radius)
        self.ending = ending
        self._senses = DelayedAggregation(
            radius=radius,
            hops=pilot.hops,
            one_hop=pilot.one_hop,
            neighbourhood=getattr(pilot, "neighbourhood", "moving"),
        )
        self._step = -1
        self._outcomes = np.full(len(start), FLYING, np.int8)
        self._take(start)

    def __next__(self) -> Moment:
        """Make the step that the last moment decided on, if any, and return the moment after it."""
        flying = self._outcomes == FLYING
        if not flying.any():
            raise StopIteration
        if self._step >= 0:
            state = self._positions, self._velocities, self._roles, self._accelerations
            advance(*state, self.time_step, np.flatnonzero(flying))
        self._step += 1
        time = self._step * self.time_step
        flock = Flock.view(self._positions, self._velocities, self._roles)
        if self.ending is not None:
            self._outcomes = np.where(flying, self.ending(time, flock, flying), self._outcomes).astype(np.int8)
            flying = self._outcomes == FLYING
        messages = _read_only(self._senses.hear(flock, flying))
        self._decide(flock, messages, flying, time)
        accelerations = _read_only(self._accelerations)
        return Moment(self._step, time, flock, messages, accelerations, flying, self._outcomes.copy(), self.radius)

    def replace(self, flock: Flock, keep: Bool[np.ndarray, " N"] | None = None) -> None:
        """Go on with a changed flock, between two moments.

        Args:
            flock: the same number of flocks in the same space. Its first agents are the kept ones, in their order;
                any more are new.
            keep: (N,), which of the agents so far stay, in all flocks; all of them if left out. Histories of what
                was heard follow the agents that stay.
        """
        B, N, D = self._positions.shape
        keep = np.ones(N, bool) if keep is None else np.asarray(keep)
        if keep.shape != (N,) or keep.dtype != bool:
            raise InputError(f"keep must be booleans of shape ({N},); got {keep.dtype} of shape {keep.shape}")
        if (flock.shape[0], flock.shape[2]) != (B, D) or flock.shape[1] < keep.sum():
            raise InputError(
                f"the new flock must be {B} flocks of at least {keep.sum()} agents, D = {D}; got {flock!r}"
            )
        # What agents do next was decided before the change: it follows those that stay.
        decided = self._accelerations
        self._take(flock)
        self._accelerations[:, : keep.sum()] = decided[:, keep]
        self._senses.replace(flock, keep)

    def _take(self, flock: Flock) -> None:
        self._positions, self._velocities = flock.positions.copy(), flock.velocities.copy()
        self._roles = flock.roles.copy()
        self._accelerations = np.zeros_like(self._positions)

    def _decide(self, flock: Flock, messages: Messages, flying: Bool[np.ndarray, " B"], time: float) -> None:
        """Ask the pilot, for flocks still flying only, and check its answer."""
        everyone = bool(flying.all())
        if not everyone:
            self._accelerations[~flying] = 0.0
            if not flying.any():
                return
            flock, messages = flock[flying], messages[flying]
        if getattr(self.pilot, "privileged", False):
            answer = cast(PrivilegedController, self.pilot)(flock, messages)
        else:
            answer = cast(LocalController, self.pilot)(messages)
        answer = np.asarray(answer, dtype=np.float64)
        if answer.shape != flock.shape:
            raise InputError(
                f"the controller must return accelerations of shape (B, N, D) = {flock.shape}; got {answer.shape}"
            )
        if not np.isfinite(answer).all():
            raise InputError(f"the controller returned NaN or infinity at t = {time:g} s")
        if flock.roles.any():
            answer = np.where((flock.roles == FOLLOWER)[..., None], answer, 0.0)
        self._accelerations[... if everyone else flying] = answer


def flight(
    start: Flock,
    pilot: Controller,
    *,
    time_step: float = 0.01,
    radius: float = 1.0,
    ending: Ending | None = None,
) -> Flight:
    """Fly a flock: `for moment in flight(start, pilot): ...`, endless unless the ending ends every flock.

    Args:
        start: the flock at t = 0.
        pilot: a controller, such as `load("tanner")`.
        time_step: dt, in seconds.
        radius: the communication radius R.
        ending: decides at every moment which flocks have ended; None lets them fly for ever.
    """
    return Flight(start, pilot, time_step=time_step, radius=radius, ending=ending)


def simulate(
    start: Flock,
    pilot: Controller,
    *,
    time_step: float = 0.01,
    duration: float = 2.0,
    radius: float = 1.0,
    ending: Ending | None = None,
    keep_every: int | None = 1,
    record: Iterable[Measure] = (),
    on_step: Callable[[Moment], object] | None = None,
    config: dict[str, Any] | None = None,
) -> Trajectory:
    """Fly for a while and keep what happened.

    Args:
        start: the flock at t = 0.
        pilot: a controller, such as `load("tanner")`.
        time_step: dt, in seconds.
        duration: in seconds; T = duration / time_step, rounded, steps are made.
        radius: the communication radius R.
        ending: decides at every moment which flocks have ended; None lets them fly the whole time.
        keep_every: keep every so many-th frame; None keeps none. The first and the last are always kept.
        record: functions of a moment to evaluate at every step, such as `metrics.velocity_variance`; their values
            stand in `series` under the functions' names, whatever frames are kept.
        on_step: called with every moment, for progress.
        config: more settings to keep with the trajectory.
    """
    check_positive("time_step", time_step)
    if not (math.isfinite(duration) and duration >= 0):
        raise InputError(f"duration must be a finite number of at least 0; got {duration!r}")
    steps = round(duration / time_step)
    if keep_every is not None:
        check_count("keep_every", keep_every)
    loop = flight(start, pilot, time_step=time_step, radius=radius, ending=ending)
    kept = sorted({0, steps} | (set(range(0, steps, keep_every)) if keep_every else set()))
    frames = _Frames(kept, start.shape)
    measures = {measure.__name__: measure for measure in record}
    series = {name: np.empty((steps + 1, len(start))) for name in measures}
    flown = np.zeros(len(start), np.int64)

    for moment in loop:
        frames.add(moment)
        for name, measure in measures.items():
            series[name][moment.step] = measure(moment)
        if on_step is not None:
            on_step(moment)
        if moment.step == steps or not moment.flying.any():
            break
        flown[moment.flying] = moment.step + 1
    # If all flocks ended early, what remains of the time repeats their last states.
    frames.fill(moment)
    for values in series.values():
        values[moment.step + 1 :] = values[moment.step]

    settings = {
        "controller": getattr(pilot, "name", type(pilot).__name__),
        "time_step": time_step,
        "duration": duration,
        "radius": radius,
        "keep_every": keep_every,
        "equiflock": __version__,
    }
    return Trajectory(
        times=np.array(kept, np.float64) * time_step,
        positions=frames.positions,
        velocities=frames.velocities,
        accelerations=frames.accelerations,
        roles=start.roles.copy(),
        steps=flown,
        outcomes=np.where(moment.flying, Outcome.TIME_UP, moment.outcomes).astype(np.int8),
        time_step=float(time_step),
        radius=float(radius),
        series=series,
        config=settings | (config or {}),
    )


class _Frames:
    """The frames that are kept, filled in as the flight goes on."""

    def __init__(self, kept: list[int], shape: tuple[int, int, int]) -> None:
        self.kept = kept
        self.filled = 0
        self.positions = np.empty((len(kept), *shape))
        self.velocities = np.empty_like(self.positions)
        self.accelerations: Vectors = np.zeros((len(kept) - 1, *shape))

    def add(self, moment: Moment) -> None:
        if self.filled < len(self.kept) and moment.step == self.kept[self.filled]:
            self._put(moment)
            if self.filled < len(self.kept):
                self.accelerations[self.filled - 1] = moment.accelerations

    def fill(self, moment: Moment) -> None:
        while self.filled < len(self.kept):
            self._put(moment)

    def _put(self, moment: Moment) -> None:
        self.positions[self.filled] = moment.flock.positions
        self.velocities[self.filled] = moment.flock.velocities
        self.filled += 1


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.setflags(write=False)
    return view


def check_controller(pilot: Controller) -> None:
    """Raise a clear error unless `pilot` is a controller."""
    if isinstance(pilot, str):
        raise InputError(f"pilot must be a controller, not its name: use equiflock.load({pilot!r})")
    missing = [name for name in ("hops", "one_hop") if not hasattr(pilot, name)]
    if not callable(pilot) or missing:
        raise InputError(
            "pilot must be callable and declare hops and one_hop (see LocalController); "
            f"got {type(pilot).__name__}" + (f" without {' and '.join(missing)}" if missing else "")
        )
