"""The simulation loop: sense, decide, move. `Flight` is the only loop of the package; its parts are arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Int8, Int64
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError, NumericRangeError, check_count, check_positive, shorten_repr
from equiflock._runtime.memory import as_read_only
from equiflock.flock import FOLLOWER, Flock, FlockArrays, Observations, Vectors, check_flock
from equiflock.graph.cell_list import MAX_CELL_INDEX, make_out_of_range_error
from equiflock.outcomes import Outcome
from equiflock.protocols import AnyBody, BodyStep, Ending, FusedStep, Moment, Sensing
from equiflock.simulation.body_motion import BodyState, MovingBody

if TYPE_CHECKING:
    from equiflock.simulation.failures import Failures
    from equiflock.simulation.memory_order import MemoryOrder
    from equiflock.simulation.safety_filter import SafetyFilter

FLYING = int(Outcome.FLYING)
AGENT_STEPS_PER_CALL = 1_000_000
"""Agents times steps of one fused call: a fraction of a second, so that Python can be interrupted."""
DecisionFunction = Callable[[Flock, Observations], NDArray[Any]]
"""Computes accelerations (B, N, D) from the flock and its observations (B, N, K, C, D)."""


class Flight(Iterator[Moment]):
    """A flock in flight: an iterator over its moments, one per step, endless unless all flocks end.

    A moment's observations and accelerations belong to its positions and velocities. `next` executes the step that they
    command, `step` one with other accelerations. Ended flocks stay in the batch, with frozen state and zero
    acceleration, until `restart` lets them begin anew.

    `equiflock.flight` builds a flight from its parts.

    Args:
        start: the flock at t = 0.
        sensing: computes observations of the flock, once per step.
        decide: computes accelerations from observations; None if the caller provides them by `step`.
        body: executes the step that accelerations command.
        body_state: body state at t = 0, as `Moment.body_state`; default: that of the body's `init_state`.
        time_step: dt, in seconds.
        ending: decides at every moment which flocks have ended; None: flights are endless.
        order: keeps a single large flock in cell order in memory; None: agents stay in the caller's order.
        fused: executes whole steps in one call where it can replace the other parts; None: no such step. It does not
            support failed agents.
        failures: failures of agents; None: no agent fails.
        safety: limits the accelerations that `decide` returns, but not those of `step`; None: no limits. It supports
            neither an order nor fused steps.
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
        safety: SafetyFilter | None = None,
    ) -> None:
        if not isinstance(start, Flock) or len(start) == 0:
            raise InputError(f"start must be a Flock of at least one flock; got {shorten_repr(start)}")
        check_ending(ending)
        self.sensing = sensing
        self.safety = safety
        self.ending = ending
        self.time_step = check_positive("time_step", time_step)
        self.comm_radius = start.comm_radius
        self._decide = decide
        self._order = order
        self._fused = fused
        self._failure_schedule = None if failures is None else failures.make_schedule(start, self.time_step)
        # There is no moment yet; the first one, step 0, moves no agent.
        self._step = -1
        self._start_steps = as_read_only(np.zeros(len(start), np.int64))
        self._set_outcomes(np.full(len(start), FLYING, np.int8))
        self._copy_state(start)
        self._moving_body = MovingBody(body, start, body_state)

    @property
    def body(self) -> AnyBody:
        """The body that executes steps; the flight continues with another one once it is set."""
        return self._moving_body.body

    @body.setter
    def body(self, body: AnyBody) -> None:
        self._moving_body = self._moving_body.with_body(body, self._flock)

    @property
    def body_state(self) -> BodyState:
        """The body state now, as `Moment.body_state`."""
        state = self._moving_body.state_view
        if self._order is None:
            return state
        return {name: array[:, self._order.compute_inverse_order()] for name, array in state.items()}

    def __next__(self) -> Moment:
        """Execute the step that the last moment commands, if any, and return the next moment."""
        if len(self._active) == 0:
            raise StopIteration("every flock of the flight has ended: restart(mask, flock) lets flocks begin anew")
        # Sort agents into cell order first, if too many have moved far from it.
        if self._order is not None and (order := self._order.propose_order()) is not None:
            self._reorder(order)
        # An ending reads the state after agents move and before they sense: then only the rest of a step is fused.
        fused, move_first = self._get_fused_step(), self._step >= 0
        if move_first and (fused is None or self.ending is not None):
            self._moving_body.body.advance(self._make_body_step())
            move_first = False
        self._step += 1
        flock, observations = self._flock, None
        if self._failure_schedule is not None and self._failure_schedule.apply_failures(
            self._step, self._flying, self._state
        ):
            self._update_roles()
        # The ending comes before sensing, so that ended flocks cost nothing from this step on.
        if self.ending is not None:
            self._update_outcomes(self.ending, self._flying)
        # Sense Z(t), then decide a(t) from it; if the fused step fails, its parts raise the error.
        if fused is not None and len(self._active) > 0:
            observations = fused.step(flock, self._make_body_step(), move_first)
        if observations is None:
            observations = self.sensing.observe(flock, self._flying, self._agent_ids)
            if self.safety is not None:
                self.safety.observe(flock, self._flying)
            if len(self._active) < len(flock):
                self._accelerations[~self._flying] = 0.0
            self._compute_accelerations(observations, self._flying)
        return self._make_moment(observations)

    def compute_held_accelerations(self) -> Vectors:
        """Return the constant accelerations (B, N, D) that lead to the next positions, to draw the motion in between.

        For a body that executes commands exactly, these are the moment's accelerations, to rounding. No agent moves.
        For ended flocks, which stay in place, it is -2 v / dt.
        """
        held = self._moving_body.compute_held_accelerations(self._make_body_step())
        return held if self._order is None else held[:, self._order.compute_inverse_order()]

    def skip(self, steps: int) -> None:
        """Advance `steps` steps without yielding moments, or until all flocks have ended.

        Before the first moment, the first of these steps is step 0, which moves no agent.
        """
        remaining = check_count("steps", steps, least=0)
        # In few fused calls if no code has to run at every step: no ending, and no subclass with another __next__.
        can_fuse = self.ending is None and type(self).__next__ is Flight.__next__
        can_fuse = can_fuse and len(self._active) == len(self._flock)
        while remaining > 0 and can_fuse and (fused := self._get_fused_step()) is not None:
            count = min(remaining, max(AGENT_STEPS_PER_CALL // self._flock.roles.size, 1))
            if not fused.skip(self._flock, self._make_body_step(), self._step >= 0, count):
                break
            self._step, remaining = self._step + count, remaining - count
        # Otherwise one by one; so, too, if a fused step fails, to raise the error of the right step.
        for _ in islice(self, remaining):
            pass

    def step(self, accelerations: Vectors) -> Moment:
        """Execute a step with these accelerations instead of the controller's, and return the next moment.

        Raise InputError before the first moment, after all flocks have ended, or if the accelerations are not finite.

        Args:
            accelerations: (B, N, D); ignored for leaders, obstacle agents, stopped or drifting agents, and ended
                flocks. The limits of a `Safe` controller do not apply to them.
        """
        if self._step < 0:
            raise InputError("the flight has not started: get its first moment by next(flight) before calling step()")
        if len(self._active) == 0:
            raise InputError("every flock of the flight has ended: there is no step to execute")
        answer = check_step_accelerations(accelerations, self._accelerations.shape)
        # From the caller's order to that in memory.
        if self._order is not None:
            answer = answer[:, self._order.agent_ids]
        # Only effective followers of flying flocks obey.
        obeys = (self._roles == FOLLOWER) & self._flying[:, None]
        self._accelerations[:] = np.where(obeys[..., None], answer, 0.0)
        return next(self)

    def set_controller(self, decide: DecisionFunction, fused: FusedStep | None, order_independent: bool) -> None:
        """Use another controller from the next moment on; the step that is already commanded is still executed.

        The senses do not change: `change_controller` sets both. `fused` is ignored in a flight with failures.

        Args:
            decide: computes accelerations from the observations of the flight's `sensing`.
            fused: as for a new flight.
            order_independent: whether `decide` accepts agents in any order.
        """
        if self._order is not None and not order_independent:
            self._reorder(self._order.compute_inverse_order())
            self._order = None
        self._decide, self._fused = decide, fused if self._failure_schedule is None else None

    def replace(self, flock: Flock, keep: Bool[np.ndarray, " N"] | None = None) -> None:
        """Continue with a changed flock, between two moments.

        Kept agents still execute the step that is already commanded. Raise InputError if B, D or R changes, or if a
        flock has ended: `restart` lets it begin anew.

        Args:
            flock: the same number of flocks in the same space. Its first agents are the kept ones, in their order;
                further agents are new.
            keep: (N,), mask of the present agents that stay, in all flocks; default: all. Kept agents keep their
                messages, body state and failure steps; new agents do not fail.
        """
        if ended := len(self._flock) - len(self._active):
            raise InputError(
                f"replace() needs flocks that fly; {ended} of {len(self._flock)} have ended: restart(mask, flock) lets "
                "them begin anew"
            )
        keep = check_keep_mask(flock, keep, self._accelerations.shape, self.comm_radius)
        self._restore_order(flock)
        # Kept agents keep the accelerations of the next step, which are already decided.
        accelerations = self._accelerations
        self._copy_state(flock)
        self._accelerations[:, : keep.sum()] = accelerations[:, keep]
        if self._failure_schedule is not None:
            self._failure_schedule.replace(flock, keep)
        self.sensing.replace(flock, keep)
        if self.safety is not None:
            self.safety.replace(flock, keep)
        self._moving_body.replace(flock, keep)

    def restart(self, mask: Bool[np.ndarray, " B"], flock: Flock) -> Moment:
        """Let some flocks begin anew now, and return the present moment with them at their start.

        A restarted flock has a new clock (`Moment.flock_steps`), new body state, new failures, and no messages
        in transit; the ending treats it as a flock at t = 0. Its random numbers are new ones, as they depend on the
        step of the flight. No bit of the other flocks changes: in the returned moment they are as in the last one, and
        the next step moves all. Controllers that keep memory are not supported.

        Raise InputError before the first moment, or if the new flocks do not fit or are out of range; the flight is
        then unchanged. After an error of the ending or the controller it cannot go on.

        Args:
            mask: (B,), which flocks begin anew, whether they have ended or not.
            flock: their start, as many flocks as `mask` chooses, in that order; N, D and R are those of the flight.
        """
        if self._step < 0:
            raise InputError("the flight has not started: get its first moment by next(flight) before restart()")
        mask = check_restart(mask, flock, self._flock)
        # The whole batch, in new arrays, as the caller may still read those of the last moment.
        self._restore_order(self._flock)
        arrays = [array.copy() for array in self._state]
        for array, new in zip(arrays, flock.arrays, strict=True):
            array[mask] = new
        accelerations = np.where(mask[:, None, None], 0.0, self._accelerations)
        # What may be refused comes before the first change: the body's new state, then new failures.
        body_state = self._moving_body.make_restarted_state(Flock.view(*arrays, comm_radius=self.comm_radius), mask)
        if self._failure_schedule is not None:
            self._failure_schedule.restart(flock, mask, self._step)
        self._moving_body.store_state(body_state)
        self._store_state(arrays, accelerations)
        self._start_steps = as_read_only(np.where(mask, self._step, self._start_steps))
        self._set_outcomes(np.where(mask, np.int8(FLYING), self._outcomes))
        # The parts of a first step, for these flocks alone: failures, ending, senses, controller.
        if self._failure_schedule is not None and self._failure_schedule.apply_failures(self._step, mask, self._state):
            self._update_roles()
        if self.ending is not None:
            self._update_outcomes(self.ending, mask)
        observations = self.sensing.restart(self._flock, mask, mask & self._flying)
        if self.safety is not None:
            self.safety.restart(self._flock, mask, mask & self._flying)
        self._compute_accelerations(observations, mask & self._flying)
        return self._make_moment(observations)

    def _make_moment(self, observations: Observations) -> Moment:
        """Return the present moment, in the caller's order."""
        moment = Moment(
            self._step,
            # A product, not a sum of steps, so that rounding errors do not accumulate over a long flight.
            self._step * self.time_step,
            self._flock,
            as_read_only(observations),
            self._accelerations_view,
            self._flying,
            self._outcomes,
            self.comm_radius,
            self.time_step,
            self._start_steps,
            self._moving_body.state_view,
            self._compute_message_graph,
            safety_states=None if self.safety is None else as_read_only(self.safety.states),
        )
        return moment if self._order is None else self._order.to_caller_order(moment)

    def _restore_order(self, flock: Flock) -> None:
        """Put the agents back into the caller's order in memory, that of a flock with which the flight continues."""
        if self._order is not None:
            self._reorder(self._order.compute_inverse_order())
            self._order = self._order.rebuild_for(flock)

    def _copy_state(self, flock: Flock) -> None:
        """Store a copy of a flock's arrays, which the body can change in place, and zero accelerations."""
        self._store_state((array.copy() for array in flock.arrays), np.zeros_like(flock.positions))

    def _store_state(self, arrays: Iterable[NDArray[Any]], accelerations: Vectors) -> None:
        """Store the state and a read-only view of it; parts change the state in place, so the view stays valid."""
        self._state = FlockArrays(*(np.ascontiguousarray(array) for array in arrays))
        self._flock = Flock.view(*self._state, comm_radius=self.comm_radius)
        self._accelerations = np.ascontiguousarray(accelerations)
        self._accelerations_view = as_read_only(self._accelerations)
        self._update_roles()
        # The graph of messages is computed on demand; `sensing` need not support it.
        compute_graph = getattr(self.sensing, "compute_message_graph", None)
        self._compute_message_graph = (
            None if compute_graph is None else partial(compute_graph, self._flock, self._agent_ids)
        )

    def _update_roles(self) -> None:
        """Update the effective roles, in which stopped and drifting agents are leaders: they keep their velocity."""
        self._all_working = self._flock.all_working
        self._roles = self._state.roles if self._all_working else self._flock.effective_roles
        self._all_followers = not self._roles.any()

    def _set_outcomes(self, outcomes: Int8[np.ndarray, " B"]) -> None:
        """Store the outcomes of all flocks, and which of them fly."""
        self._outcomes = as_read_only(outcomes)
        self._flying = as_read_only(outcomes == FLYING)
        self._active = np.flatnonzero(self._flying)

    def _update_outcomes(self, ending: Ending, which: Bool[np.ndarray, " B"]) -> None:
        """Update the outcomes of the flocks `which`, all of which fly; the others keep theirs."""
        times = (self._step - self._start_steps) * self.time_step
        outcomes = check_outcomes(ending(times, self._flock, which), len(self._flock))
        updated = np.where(which, outcomes, self._outcomes)
        if (updated != self._outcomes).any():
            self._set_outcomes(updated)

    @property
    def _agent_ids(self) -> Int64[np.ndarray, " N"] | None:
        """The caller's number of each agent in memory; None if they are in the caller's order."""
        return None if self._order is None else self._order.agent_ids

    def _make_body_step(self) -> BodyStep:
        """Return the commanded step as the body takes it."""
        return BodyStep(
            self._state.positions,
            self._state.velocities,
            self._roles,
            self._accelerations,
            self.time_step,
            self._active,
            self._moving_body.state,
            self._step,
            self._agent_ids,
        )

    def _get_fused_step(self) -> FusedStep | None:
        """Return the fused step, or None if there is none, an agent has failed, or it does not fit flock and parts."""
        fused = self._fused
        if fused is None or not self._all_working or not fused.fits(self._flock, self.sensing, self.body):
            return None
        return fused

    def _reorder(self, order: Int64[np.ndarray, " N"]) -> None:
        """Reorder the agents in memory, in all parts of the flight: place s gets the agent of place order[s]."""
        assert self._order is not None
        self._order.reorder(order)
        self._store_state((array[:, order] for array in self._state), self._accelerations[:, order])
        self._moving_body.reorder(order)

    def _compute_accelerations(self, observations: Observations, which: Bool[np.ndarray, " B"]) -> None:
        """Store the accelerations that the controller decides for followers of the flocks `which`; zero for the rest.

        Those of other flocks stay. Without a controller all are zero, as the caller provides them by `step`. Raise
        InputError for a wrong shape, NumericRangeError for NaN or infinity.
        """
        flock, count = self._flock, np.count_nonzero(which)
        is_whole = count == len(flock)
        chosen = ... if is_whole else which
        if self._decide is None or count == 0:
            self._accelerations[chosen] = 0.0
            return
        if not is_whole:
            flock, observations = flock[which], observations[which]
        # A wrong shape is a bug of the controller; NaN or infinity can result from a flight that diverges.
        answer = check_accelerations(self._decide(flock, observations))
        if answer.shape != flock.shape:
            raise InputError(
                f"the controller must return accelerations of shape (B, N, D) = {flock.shape}; got {answer.shape}"
            )
        if not np.isfinite(answer).all():
            time = self._step * self.time_step
            raise NumericRangeError(f"the controller returned NaN or infinity at t = {time:g} s")
        if self.safety is not None:
            answer = self.safety.limit(flock, answer, chosen)
        # Mask the accelerations of agents that are not followers.
        if not self._all_followers:
            answer = np.where((self._roles[chosen] == FOLLOWER)[..., None], answer, 0.0)
        self._accelerations[chosen] = answer


def check_accelerations(answer: Any, expected: str = "the controller must return") -> Vectors:
    """Return accelerations as float64; raise InputError, which begins with `expected`, if they are no real numbers.

    Shape and finiteness are not checked here.
    """
    if getattr(answer, "requires_grad", False):
        raise InputError(f"{expected} numbers without gradients, as a flight records none: use .detach() on the tensor")
    try:
        array = np.asarray(answer)
    except (TypeError, ValueError):  # such as rows of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "fiu":
        received = f"{array.dtype} of shape {array.shape}" if array.shape else shorten_repr(answer)
        raise InputError(f"{expected} an array of real numbers; got {received}")
    return array.astype(np.float64, copy=False)


def check_step_accelerations(given: Any, shape: tuple[int, ...]) -> Vectors:
    """Return the accelerations of a step as float64; raise InputError unless finite and of this shape (B, N, D)."""
    answer = check_accelerations(given, "accelerations must be")
    if answer.shape != shape or not np.isfinite(answer).all():
        received = answer.shape if answer.shape != shape else "NaN or infinity"
        raise InputError(f"accelerations must be finite numbers of shape (B, N, D) = {shape}; got {received}")
    return answer


def check_ending(ending: Ending | None) -> None:
    """Raise InputError if `ending` is a class or not callable; None is fine."""
    if isinstance(ending, type):
        raise InputError(f"ending must be an instance: {ending.__name__}(), not {ending.__name__}")
    if ending is not None and not callable(ending):
        raise InputError(f"ending must be callable, such as equiflock.UntilDisconnected(); got {shorten_repr(ending)}")


def check_outcomes(answer: Any, flocks: int) -> Int8[np.ndarray, " B"]:
    """Return an ending's result as outcome codes (B,); True becomes ENDED and False FLYING.

    Raise InputError if it is not one known outcome or boolean for each flock.
    """
    try:
        outcomes = np.asarray(answer)
    except ValueError:  # such as rows of different lengths
        outcomes = np.asarray(None)
    # True ends a flock without a more specific outcome.
    if outcomes.dtype == bool:
        outcomes = np.where(outcomes, int(Outcome.ENDED), FLYING)
    valid = outcomes.dtype.kind in "iu" and np.isin(outcomes, [int(outcome) for outcome in Outcome.all()]).all()
    if outcomes.shape != (flocks,) or not valid:
        raise InputError(
            f"the ending must return one Outcome, or True or False, for each flock, ({flocks},); "
            f"got {shorten_repr(answer)}"
        )
    return outcomes.astype(np.int8)


def check_keep_mask(
    flock: Flock, keep: Bool[np.ndarray, " N"] | None, shape: tuple[int, ...], comm_radius: float
) -> Bool[np.ndarray, " N"]:
    """Return the mask of agents that a flight of that shape (B, N, D) keeps in a changed flock; default: all.

    Raise InputError if they do not fit into the new flock, or if it changes B, D or R of the flight.
    """
    check_flock(flock)
    B, N, D = shape
    keep = np.ones(N, bool) if keep is None else np.asarray(keep)
    if keep.shape != (N,) or keep.dtype != bool:
        raise InputError(f"keep must be booleans of shape ({N},); got {keep.dtype} of shape {keep.shape}")
    if (flock.shape[0], flock.shape[2]) != (B, D) or flock.shape[1] < keep.sum():
        raise InputError(f"the new flock must be {B} flocks of at least {keep.sum()} agents, D = {D}; got {flock!r}")
    if flock.comm_radius != comm_radius:
        raise InputError(
            f"the new flock must have comm_radius = {comm_radius:g}, that of the flight; got {flock.comm_radius:g}"
        )
    return keep


def check_restart(mask: Bool[np.ndarray, " B"], flock: Flock, present: Flock) -> Bool[np.ndarray, " B"]:
    """Return the mask of flocks that begin anew.

    Raise InputError if it is no mask of the present flocks, chooses none, or the new flocks do not fit or are out of
    the range of the kernels.
    """
    check_flock(flock)
    mask, (B, N, D) = np.asarray(mask), present.shape
    if mask.shape != (B,) or mask.dtype != bool or not mask.any():
        raise InputError(
            f"mask must be booleans of shape ({B},), at least one of them True; got {mask.dtype} of shape {mask.shape}"
        )
    if flock.shape != (mask.sum(), N, D):
        raise InputError(f"the new start must be {mask.sum()} flocks of {N} agents, D = {D}; got {flock!r}")
    if flock.comm_radius != present.comm_radius:
        raise InputError(
            f"the new start must have comm_radius = {present.comm_radius:g}, that of the flight; "
            f"got {flock.comm_radius:g}"
        )
    if (np.abs(flock.positions) > MAX_CELL_INDEX * flock.comm_radius).any():
        raise make_out_of_range_error()
    return mask
