"""The loop: sense, decide, move. Everything that flies a flock reads this one generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Bool, Int8, Int64

from equiflock.checks import InputError, OffScaleError, check_positive, short
from equiflock.controllers.bridge import as_numpy_function, read_only
from equiflock.controllers.compiled import CompiledNetwork
from equiflock.graph import SMALL_FLOCK, Graph
from equiflock.messages import DelayedAggregation, Obstacles
from equiflock.orbit import Orbit
from equiflock.types import Controller, Ending, Flock, Messages, Moment, Outcome, Role, Vectors, check_flock
from equiflock.world import advance

# As plain numbers: looking an enum's member up takes microseconds, and this loop has some tens of them.
FLYING, FOLLOWER = int(Outcome.FLYING), int(Role.FOLLOWER)

FAR_IN_MEMORY = 20_000
"""Agents that many places apart are not in the processor's near memory together."""
MOST_STRAYS = 0.2
"""The share of agents that stand far in memory from the one next to them in space, from which on all close up."""


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
        radius: float | None = None,
        ending: Ending | None = None,
        orbit: Orbit | None = None,
        obstacles: Obstacles = "nearest",
    ) -> None:
        if not isinstance(start, Flock) or len(start) == 0:
            raise InputError(f"start must be a Flock of at least one flock; got {short(start)}")
        check_controller(pilot)
        self.pilot = pilot
        self._ask = as_numpy_function(pilot)
        self.time_step = check_positive("time_step", time_step)
        self.radius = start.comm_radius if radius is None else check_positive("radius", radius)
        self.ending = ending
        _check_ending(ending)
        self._senses = DelayedAggregation(
            radius=self.radius,
            hops=pilot.hops,
            one_hop=pilot.one_hop,
            neighbourhood=getattr(pilot, "neighbourhood", "moving"),
            orbit=orbit,
            obstacles=obstacles,
        )
        self._step = -1
        self._outcomes = np.full(len(start), FLYING, np.int8)
        self._ranks: Int64[np.ndarray, " N"] | None = None
        """The caller's number of every agent, if they may stand in another order here."""
        self._take(start)

    def __next__(self) -> Moment:
        """Make the step that the last moment decided on, if any, and return the moment after it."""
        flying = self._outcomes == FLYING
        if not flying.any():
            raise StopIteration
        self._close_up()
        if self._step >= 0:
            state = self._positions, self._velocities, self._roles, self._accelerations
            advance(*state, self.time_step, np.flatnonzero(flying))
        self._step += 1
        time = self._step * self.time_step
        flock = Flock.view(self._positions, self._velocities, self._roles, self._obstacles, comm_radius=self.radius)
        if self.ending is not None:
            outcomes = _checked_outcomes(self.ending(time, flock, flying), len(flock))
            self._outcomes = np.where(flying, outcomes, self._outcomes)
            flying = self._outcomes == FLYING
        messages = self._senses.hear(flock, flying, self._ranks)
        self._decide(flock, messages, flying, time)
        ends = read_only(flying), read_only(self._outcomes), self.radius
        if self._ranks is not None:
            stored = flock, messages, self._accelerations
            return _MomentInCellOrder.of(self._step, time, stored, ends, self._ranks)
        return Moment(self._step, time, flock, read_only(messages), read_only(self._accelerations), *ends)

    @property
    def fixed_graph(self) -> Graph | None:
        """Who hears whom for ever, if the pilot's neighbourhood is frozen; None if that changes with every step."""
        return self._senses.fixed_graph

    @property
    def orbit(self) -> Orbit | None:
        """The technique by which followers avoid obstacles, if they do; it may change between two moments."""
        return self._senses.orbit

    @orbit.setter
    def orbit(self, orbit: Orbit | None) -> None:
        self._senses.orbit = orbit

    def replace(self, flock: Flock, keep: Bool[np.ndarray, " N"] | None = None) -> None:
        """Go on with a changed flock, between two moments.

        Args:
            flock: the same number of flocks in the same space. Its first agents are the kept ones, in their order;
                any more are new.
            keep: (N,), which of the agents so far stay, in all flocks; all of them if left out. Histories of what
                was heard follow the agents that stay.
        """
        check_flock(flock)
        B, N, D = self._positions.shape
        keep = np.ones(N, bool) if keep is None else np.asarray(keep)
        if keep.shape != (N,) or keep.dtype != bool:
            raise InputError(f"keep must be booleans of shape ({N},); got {keep.dtype} of shape {keep.shape}")
        if (flock.shape[0], flock.shape[2]) != (B, D) or flock.shape[1] < keep.sum():
            raise InputError(
                f"the new flock must be {B} flocks of at least {keep.sum()} agents, D = {D}; got {flock!r}"
            )
        if flock.comm_radius != self.radius:
            raise InputError(
                f"the new flock must have comm_radius = {self.radius:g}, that of the flight; got {flock.comm_radius:g}"
            )
        if self._ranks is not None:
            self._stand(np.argsort(self._ranks))  # as the caller knows them
        # What agents do next was decided before the change: it follows those that stay.
        decided = self._accelerations
        self._take(flock)
        self._accelerations[:, : keep.sum()] = decided[:, keep]
        self._senses.replace(flock, keep)

    def _take(self, flock: Flock) -> None:
        self._positions, self._velocities = flock.positions.copy(), flock.velocities.copy()
        self._roles, self._obstacles = flock.roles.copy(), flock.obstacles.copy()
        self._accelerations = np.zeros_like(self._positions)
        # Only a network that was compiled here is sure not to care for the order, and nobody else looks at every step.
        free = isinstance(self._ask, CompiledNetwork) and self.ending is None
        self._ranks = np.arange(flock.shape[1]) if free and len(flock) == 1 and flock.shape[1] > SMALL_FLOCK else None

    def _close_up(self) -> None:
        """Let the agents of a large flock stand in memory as they do in space, if they do not any more."""
        order = self._senses.order
        if self._ranks is not None and order is not None:
            strays = np.count_nonzero(np.abs(np.diff(order)) > FAR_IN_MEMORY)
            if strays > len(order) * MOST_STRAYS:
                self._stand(order.copy())

    def _stand(self, order: Int64[np.ndarray, " N"]) -> None:
        """Put agents into another order in memory."""
        assert self._ranks is not None
        self._ranks = self._ranks[order]
        self._positions, self._velocities = self._positions[:, order], self._velocities[:, order]
        self._roles, self._obstacles = self._roles[:, order], self._obstacles[:, order]
        self._accelerations = self._accelerations[:, order]
        self._senses.renumber(order)

    def _decide(self, flock: Flock, messages: Messages, flying: Bool[np.ndarray, " B"], time: float) -> None:
        """Ask the pilot, for flocks still flying only, and check its answer."""
        everyone = bool(flying.all())
        if not everyone:
            self._accelerations[~flying] = 0.0
            if not flying.any():
                return
            flock, messages = flock[flying], messages[flying]
        answer = self._ask(flock, messages) if getattr(self.pilot, "privileged", False) else self._ask(messages)
        answer = _real_numbers(answer)
        if answer.shape != flock.shape:
            raise InputError(
                f"the controller must return accelerations of shape (B, N, D) = {flock.shape}; got {answer.shape}"
            )
        if not np.isfinite(answer).all():
            raise OffScaleError(f"the controller returned NaN or infinity at t = {time:g} s")
        if flock.roles.any():
            answer = np.where((flock.roles == FOLLOWER)[..., None], answer, 0.0)
        self._accelerations[... if everyone else flying] = answer


class _MomentInCellOrder(Moment):
    """A moment whose arrays are copied into the caller's order when somebody first looks at them."""

    @classmethod
    def of(
        cls,
        step: int,
        time: float,
        stored: tuple[Flock, Messages, Vectors],
        ends: tuple[Bool[np.ndarray, " B"], Int8[np.ndarray, " B"], float],
        ranks: Int64[np.ndarray, " N"],
    ) -> _MomentInCellOrder:
        """The moment of a flight that stores flock, messages and accelerations in the order of `ranks`."""
        moment = cls.__new__(cls)
        known = dict(zip(("flying", "outcomes", "radius"), ends, strict=True))
        for name, value in {"step": step, "time": time, "_stored": stored, "_ranks": ranks, **known}.items():
            object.__setattr__(moment, name, value)  # a moment is frozen
        return moment

    def __getattr__(self, name: str) -> Any:
        """One of the arrays that nobody looked at so far."""
        if name not in ("flock", "messages", "accelerations"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        flock, messages, accelerations = self._stored
        found: Any
        if name == "flock":
            arrays = flock.positions, flock.velocities, flock.roles, flock.obstacles
            found = Flock.view(*map(self._in_order, arrays), comm_radius=flock.comm_radius)
        else:
            found = read_only(self._in_order(messages if name == "messages" else accelerations))
        object.__setattr__(self, name, found)
        return found

    def _in_order(self, array: Any) -> Any:
        found = np.empty_like(array)
        found[:, self._ranks] = array
        return found


def flight(
    start: Flock,
    pilot: Controller,
    *,
    time_step: float = 0.01,
    radius: float | None = None,
    ending: Ending | None = None,
    orbit: Orbit | None = None,
    obstacles: Obstacles = "nearest",
) -> Flight:
    """Fly a flock: `for moment in flight(start, pilot): ...`, endless unless the ending ends every flock.

    Args:
        start: the flock at t = 0.
        pilot: a controller, such as `load("tanner")`.
        time_step: dt, in seconds.
        radius: the communication radius R, if it shall be another than that of `start`.
        ending: decides at every moment which flocks have ended; None lets them fly for ever.
        orbit: the technique by which followers avoid obstacles; None if obstacle agents just stand still.
        obstacles: which obstacle agents within R a follower hears, the "nearest" or "all".
    """
    return Flight(start, pilot, time_step=time_step, radius=radius, ending=ending, orbit=orbit, obstacles=obstacles)


def _real_numbers(answer: Any) -> Vectors:
    """What a controller returned, if that is an array of real numbers."""
    try:
        array = np.asarray(answer)
    except (TypeError, ValueError):  # such as rows of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "fiu":
        came = f"{array.dtype} of shape {array.shape}" if array.shape else short(answer)
        raise InputError(f"the controller must return an array of real numbers; got {came}")
    return array.astype(np.float64, copy=False)


def _check_ending(ending: Ending | None) -> None:
    if isinstance(ending, type):
        raise InputError(f"ending must be an instance: {ending.__name__}(), not {ending.__name__}")
    if ending is not None and not callable(ending):
        raise InputError(f"ending must be callable, such as equiflock.UntilDisconnected(); got {short(ending)}")


def _checked_outcomes(answer: Any, flocks: int) -> Int8[np.ndarray, " B"]:
    """What an ending returned, if it is one outcome per flock, or whether each has ended."""
    try:
        outcomes = np.asarray(answer)
    except ValueError:  # such as rows of different lengths
        outcomes = np.asarray(None)
    if outcomes.dtype == bool:
        outcomes = np.where(outcomes, int(Outcome.ENDED), FLYING)
    if outcomes.shape != (flocks,) or outcomes.dtype.kind not in "iu" or not np.isin(outcomes, list(Outcome)).all():
        raise InputError(
            f"the ending must return one Outcome, or True or False, for each flock, ({flocks},); got {short(answer)}"
        )
    return outcomes.astype(np.int8)


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
    if isinstance(pilot, type):
        raise InputError(f"pilot must be an instance: {pilot.__name__}(), not {pilot.__name__}")
