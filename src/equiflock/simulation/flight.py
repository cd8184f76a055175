"""The loop: sense, decide, move. Everything that flies a flock reads this one generator; its parts are handed to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Int8, Int64
from numpy.typing import NDArray

from equiflock.flock import FOLLOWER, Flock, Observations, Vectors
from equiflock.protocols import AnyBody, Ending, FusedStep, Moment, Sensing
from equiflock.runtime.arrays import as_read_only
from equiflock.runtime.checks import InputError, NumericRangeError, check_count, check_positive, shorten_repr
from equiflock.simulation.body_motion import BodyState, BodyStep, MovingBody
from equiflock.simulation.flight_checks import (
    FLYING,
    check_accelerations,
    check_ending,
    check_keep_mask,
    check_outcomes,
)

if TYPE_CHECKING:
    from equiflock.simulation.failures import Failures
    from equiflock.simulation.memory_order import MemoryOrder

AGENT_STEPS_PER_CALL = 1_000_000
"""So much is flown in one call, a fraction of a second, before Python can be interrupted again."""
DecisionFunction = Callable[[Flock, Observations], NDArray[Any]]
"""Accelerations (B, N, D) from the flock and its observations (B, N, K, C, D)."""


class Flight(Iterator[Moment]):
    """A flock in flight: iterate over it to let time pass, one `Moment` per step, endless unless all flocks end.

    Each moment's observations and accelerations belong to its positions and velocities; the step they lead to is made
    when the next moment is asked for, or `step` makes another. Ended flocks keep their place: state frozen,
    acceleration zero.

    `equiflock.flight` puts the parts together.

    Args:
        start: the flock at t = 0.
        sensing: makes observations of the flock, once per step.
        decide: makes accelerations of observations; None if an outsider acts, by `step`.
        body: makes the step that accelerations command.
        body_state: what the body remembers at t = 0, as `Moment.body_state`; as its `make_schedule` says if left out.
        time_step: dt, in seconds.
        ending: decides at every moment which flocks have ended; None lets them fly for ever.
        order: keeps a single large flock in cell order in memory; None leaves agents where they are.
        fused: makes whole steps in one call where it can stand for the other parts; None if there is none. It knows
            nothing of agents that have failed.
        failures: who fails, how and when; None if nobody does.
    """

    def __init__(
        self,
        start: Flock,
        sensing: Sensing,
        decide: DecisionFunction | None,
        body: AnyBody,
        *,
        time_step: float,
        body_state: BodyState | None = None,
        ending: Ending | None = None,
        order: MemoryOrder | None = None,
        fused: FusedStep | None = None,
        failures: Failures | None = None,
    ) -> None:
        if not isinstance(start, Flock) or len(start) == 0:
            raise InputError(f"start must be a Flock of at least one flock; got {shorten_repr(start)}")
        check_ending(ending)
        self.sensing = sensing
        self.ending = ending
        self.time_step = check_positive("time_step", time_step)
        self.comm_radius = start.comm_radius
        self._decide = decide
        self._order = order
        self._fused = fused
        self._failure_schedule = None if failures is None else failures.make_schedule(start, self.time_step)
        # No moment was made yet; the first one, step 0, moves nobody.
        self._step = -1
        self._set_outcomes(np.full(len(start), FLYING, np.int8))
        self._copy_state(start)
        self._moving_body = MovingBody(body, start, body_state)

    @property
    def body(self) -> AnyBody:
        """What makes the step; set it to another one and the flight goes on with that."""
        return self._moving_body.body

    @body.setter
    def body(self, body: AnyBody) -> None:
        self._moving_body = self._moving_body.with_body(body, self._flock)

    @property
    def body_state(self) -> BodyState:
        """What the body remembers now, as `Moment.body_state`."""
        state_view, order = self._moving_body.state_view, self._order
        return (
            state_view
            if order is None
            else {name: array[:, order.compute_inverse_order()] for name, array in state_view.items()}
        )

    def __next__(self) -> Moment:
        """Make the step that the last moment decided on, if any, and return the moment after it."""
        if len(self._active) == 0:
            raise StopIteration
        # Agents are put into cell order first, if they have strayed far.
        if self._order is not None and (order := self._order.propose_order()) is not None:
            self._reorder(order)
        # The ending has to see agents when they have moved and not yet sensed: then only the rest of a step is fused.
        fused, move_first = self._get_fused_step(), self._step >= 0
        if move_first and (fused is None or self.ending is not None):
            self._moving_body.advance(self._make_body_step())
            move_first = False
        # A product, not a sum of steps: rounding does not pile up over a long flight.
        self._step += 1
        time = self._step * self.time_step
        flock, observations = self._flock, None
        if self._failure_schedule is not None and self._failure_schedule.apply_failures(
            self._step, self._flying, self._state
        ):
            self._update_roles()
        # The ending sees the state before anybody senses, so ended flocks cost nothing from this step on.
        if self.ending is not None:
            self._update_outcomes(check_outcomes(self.ending(time, flock, self._flying), len(flock)))
        # Sense Z(t), then decide a(t) from it; where the fused step fails, its parts say why.
        if fused is not None and len(self._active) > 0:
            observations = fused.step(flock, self._state, self._accelerations, self.time_step, self._active, move_first)
        if observations is None:
            observations = self.sensing.observe(
                flock, self._flying, None if self._order is None else self._order.agent_ids
            )
            self._compute_accelerations(flock, observations, time)
        ends = self._flying, self._outcomes, self.comm_radius
        if self._order is not None:
            stored = flock, observations, self._accelerations, self._moving_body.state_view, self._compute_message_graph
            return self._order.make_moment(self._step, time, stored, ends)
        rest = self._moving_body.state_view, self._compute_message_graph
        return Moment(self._step, time, flock, as_read_only(observations), self._accelerations_view, *ends, *rest)

    def compute_held_accelerations(self) -> Vectors:
        """The accelerations (B, N, D) that, held, lead where the body leads by the next step: to draw what is between.

        Where the body does all that it is commanded, these are the moment's accelerations, to rounding.
        """
        held = self._moving_body.compute_held_accelerations(self._make_body_step())
        return held if self._order is None else held[:, self._order.compute_inverse_order()]

    def skip(self, steps: int) -> None:
        """Let so many moments pass that nobody looks at; `next` returns the one after them, as if all had been made.

        It stops where all flocks have ended.
        """
        left = check_count("steps", steps, least=0)
        # In one call where nothing has to be asked at every step, neither an ending nor the author of another flight.
        whole = self.ending is None and type(self).__next__ is Flight.__next__ and len(self._active) == len(self._flock)
        while left > 0 and whole and (fused := self._get_fused_step()) is not None:
            some = min(left, max(AGENT_STEPS_PER_CALL // self._flock.roles.size, 1))
            state = self._flock, self._state, self._accelerations
            if not fused.skip(*state, self.time_step, self._step >= 0, some):
                break
            self._step, left = self._step + some, left - some
        # One by one otherwise, and where a step fails: the error is then that of the step.
        for _ in islice(self, left):
            pass

    def step(self, accelerations: Vectors) -> Moment:
        """Make the step that these accelerations command, in place of those decided on, and return the moment after it.

        Args:
            accelerations: (B, N, D); leaders, obstacle agents, agents that stopped or drift, and flocks that have
                ended do not obey.
        """
        if self._step < 0:
            raise InputError("the flight has not begun: ask for its first moment, next(flight), before stepping it")
        if len(self._active) == 0:
            raise InputError("every flock of the flight has ended: there is no step to make")
        # An outsider's accelerations are checked like a controller's, since they enter the state.
        answer = check_accelerations(accelerations)
        shape = self._accelerations.shape
        if answer.shape != shape or not np.isfinite(answer).all():
            raise InputError(
                f"accelerations must be finite numbers of shape (B, N, D) = {shape}; got {shorten_repr(answer)}"
            )
        # The caller counts agents in its own order, the state stands in that of memory.
        if self._order is not None:
            answer = answer[:, self._order.agent_ids]
        # Only followers that hear, of flocks that fly, obey.
        obeys = (self._roles == FOLLOWER) & self._flying[:, None]
        self._accelerations[:] = np.where(obeys[..., None], answer, 0.0)
        return next(self)

    def set_controller(self, decide: DecisionFunction, fused: FusedStep | None, order_independent: bool) -> None:
        """Let another decide from the next moment on; what this one has decided is still done.

        Args:
            decide: makes accelerations of observations, which the senses must make already.
            fused: as for a new flight.
            order_independent: whether it takes agents in any order.
        """
        if self._order is not None and not order_independent:
            self._reorder(self._order.compute_inverse_order())
            self._order = None
        self._decide, self._fused = decide, fused if self._failure_schedule is None else None

    def replace(self, flock: Flock, keep: Bool[np.ndarray, " N"] | None = None) -> None:
        """Go on with a changed flock, between two moments.

        Args:
            flock: the same number of flocks in the same space. Its first agents are the kept ones, in their order;
                any more are new.
            keep: (N,), which of the agents so far stay, in all flocks; all of them if left out. Histories of what
                was heard, what bodies remember, and when agents will fail, follow those that stay; new agents do not
                fail.
        """
        keep = check_keep_mask(flock, keep, self._accelerations.shape, self.comm_radius)
        # The new flock is in the caller's order, so the state is brought back to it first.
        if self._order is not None:
            self._reorder(self._order.compute_inverse_order())
            self._order = self._order.rebuild_for(flock)
        # What agents do next was decided before the change: it follows those that stay.
        decided = self._accelerations
        self._copy_state(flock)
        self._accelerations[:, : keep.sum()] = decided[:, keep]
        if self._failure_schedule is not None:
            self._failure_schedule.replace(flock, keep)
        self.sensing.replace(flock, keep)
        self._moving_body.replace(flock, keep)

    def _copy_state(self, flock: Flock) -> None:
        """Copy the state of a flock, which the body may then change in place."""
        self._store_state((array.copy() for array in flock.arrays), np.zeros_like(flock.positions))

    def _store_state(self, arrays: Iterable[NDArray[Any]], accelerations: Vectors) -> None:
        """Keep the state, and one read-only view of it: parts change the state in place, so the view stays true."""
        self._state = tuple(np.ascontiguousarray(array) for array in arrays)
        self._flock = Flock.view(*self._state, comm_radius=self.comm_radius)
        self._accelerations = np.ascontiguousarray(accelerations)
        self._accelerations_view = as_read_only(self._accelerations)
        self._update_roles()
        # Whoever looks at who heard whom asks the senses; they need not be able to tell.
        tell = getattr(self.sensing, "compute_message_graph", None)
        agent_ids = None if self._order is None else self._order.agent_ids
        self._compute_message_graph = None if tell is None else partial(tell, self._flock, agent_ids)

    def _update_roles(self) -> None:
        """Keep the roles by which agents move and obey: stopped and drifting ones keep their velocity, as leaders."""
        self._all_working = self._flock.all_working
        self._roles = self._state[2] if self._all_working else self._flock.effective_roles
        self._all_followers = not self._roles.any()

    def _set_outcomes(self, outcomes: Int8[np.ndarray, " B"]) -> None:
        """Keep the outcomes of all flocks, and which of them fly."""
        self._outcomes = as_read_only(outcomes)
        self._flying = as_read_only(outcomes == FLYING)
        self._active = np.flatnonzero(self._flying)

    def _update_outcomes(self, outcomes: Int8[np.ndarray, " B"]) -> None:
        """Take note of how the flocks that fly stand now."""
        # An outcome is final: flocks that ended earlier keep theirs.
        now = np.where(self._flying, outcomes, self._outcomes)
        if (now != self._outcomes).any():
            self._set_outcomes(now)

    def _make_body_step(self) -> BodyStep:
        """The step that was decided on, as the body takes it."""
        agent_ids = None if self._order is None else self._order.agent_ids
        positions, velocities, *_ = self._state
        told = self._accelerations, self.time_step, self._active, self._step, agent_ids
        return BodyStep(positions, velocities, self._roles, *told)

    def _get_fused_step(self) -> FusedStep | None:
        """The fused step, if it stands for the parts that the flight has now."""
        fused = self._fused
        if fused is None or not self._all_working or not fused.fits(self._flock, self.sensing, self.body):
            return None
        return fused

    def _reorder(self, order: Int64[np.ndarray, " N"]) -> None:
        """Put agents into another order in memory."""
        assert self._order is not None
        self._order.reorder(order)
        self._store_state((array[:, order] for array in self._state), self._accelerations[:, order])
        self._moving_body.reorder(order)

    def _compute_accelerations(self, flock: Flock, observations: Observations, time: float) -> None:
        """Ask the controller, for flocks still flying only, and check its answer."""
        # Ended flocks, and all flocks if an outsider acts by `step`, are not asked: their acceleration is zero.
        flying, everyone = self._flying, len(self._active) == len(flock)
        if self._decide is None or not everyone:
            self._accelerations[... if self._decide is None else ~flying] = 0.0
            if self._decide is None or len(self._active) == 0:
                return
            flock, observations = flock[flying], observations[flying]
        # A wrong shape is the author's mistake; NaN or infinity comes of a flight that diverged.
        answer = check_accelerations(self._decide(flock, observations))
        if answer.shape != flock.shape:
            raise InputError(
                f"the controller must return accelerations of shape (B, N, D) = {flock.shape}; got {answer.shape}"
            )
        if not np.isfinite(answer).all():
            raise NumericRangeError(f"the controller returned NaN or infinity at t = {time:g} s")
        # With nobody but followers, whose role is 0, there is nothing to mask.
        if not self._all_followers:
            obeys = self._roles == FOLLOWER if everyone else self._roles[flying] == FOLLOWER
            answer = np.where(obeys[..., None], answer, 0.0)
        self._accelerations[... if everyone else flying] = answer
