"""What moves the agents of a flight: a body, with what it remembers of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int64
from numpy.typing import NDArray

from equiflock.flock import Flock, Roles, Vectors
from equiflock.protocols import AnyBody, Body, StatefulBody
from equiflock.runtime.arrays import ReadOnlyDict, as_read_only
from equiflock.runtime.checks import InputError, shorten_repr

BodyState = Mapping[str, NDArray[Any]]
"""What a body remembers: arrays (B, N, ..) by name."""


class BodyStep(NamedTuple):
    """A step that was decided on, as bodies take it: the arguments of `StatefulBody.advance`, but for the state."""

    positions: Vectors
    velocities: Vectors
    roles: Roles
    accelerations: Vectors
    time_step: float
    active: Int64[np.ndarray, " active"]
    step: int
    agent_ids: Int64[np.ndarray, " N"] | None


class MovingBody:
    """A body in flight.

    Args:
        body: any body, with a state or without.
        flock: the agents that it begins with.
        state: what it remembers of them, if it has flown before; as `init_state` says if left out.
    """

    def __init__(self, body: AnyBody, flock: Flock, state: BodyState | None = None) -> None:
        self.body = check_body(body)
        # Asked once, as looking at a protocol takes longer than a step of a small flock.
        self._stateful = body if isinstance(body, StatefulBody) else None
        self._stateless = None if isinstance(body, StatefulBody) else body
        fresh = _make_state(body, flock)
        self._store_state(fresh if state is None else _check_state(body, fresh, state))

    def advance(self, body_step: BodyStep) -> None:
        """Move the active flocks."""
        self._advance(body_step, self._state)

    def compute_held_accelerations(self, body_step: BodyStep) -> Vectors:
        """The accelerations (B, N, D) that, held, lead where the next step leads; nobody is moved."""
        # The body makes the step with copies, so this is by its own law, whatever that is.
        positions, velocities = body_step.positions, body_step.velocities
        copied = body_step._replace(positions=positions.copy(), velocities=velocities.copy())
        self._advance(copied, {name: array.copy() for name, array in self._state.items()})
        return compute_acceleration_between(positions, velocities, copied.positions, body_step.time_step)

    def _advance(self, body_step: BodyStep, state: BodyState) -> None:
        positions, velocities, roles, accelerations, time_step, active, step, agent_ids = body_step
        arguments = positions, velocities, roles, accelerations, time_step, active
        if self._stateful is not None:
            self._stateful.advance(*arguments, state, step, agent_ids)
        elif self._stateless is not None:
            self._stateless.advance(*arguments)

    def reorder(self, order: Int64[np.ndarray, " N"]) -> None:
        """Put agents into another order in memory."""
        self._store_state({name: array[:, order] for name, array in self._state.items()})

    def replace(self, flock: Flock, keep: Bool[np.ndarray, " N"]) -> None:
        """Go on with another flock: its first agents are the kept ones, of which the body remembers what it did."""
        fresh = _make_state(self.body, flock)
        for name, array in fresh.items():
            array[:, : keep.sum()] = self._state[name][:, keep]
        self._store_state(fresh)

    def with_body(self, body: AnyBody, flock: Flock) -> MovingBody:
        """Another body for the same agents; one of the same kind with other numbers goes on with what is remembered."""
        other = MovingBody(body, flock)
        if type(body) is type(self.body):
            other._store_state({name: self._state.get(name, array) for name, array in other._state.items()})
        return other

    def _store_state(self, state: BodyState) -> None:
        """Keep the state, and one read-only view of it: the body changes the state in place, so the view stays true."""
        self._state = {name: np.ascontiguousarray(array) for name, array in state.items()}
        self.state_view: BodyState = ReadOnlyDict({name: as_read_only(array) for name, array in self._state.items()})


def check_body(body: object) -> AnyBody:
    """`body` if it is one, else a clear error."""
    if isinstance(body, type) or not isinstance(body, Body):
        such = "equiflock.DoubleIntegrator() or equiflock.make_body('unicycle')"
        raise InputError(f"body must be an object with advance(), such as {such}; got {shorten_repr(body)}")
    return body


def compute_acceleration_between(positions: Vectors, velocities: Vectors, later: Vectors, time: float) -> Vectors:
    """The accelerations that, held for that time, lead from positions and velocities to later positions.

    a = 2 (r(t + time) - r(t) - v(t) time) / time^2: that of the double integrator, if it was one.
    """
    held: Vectors = 2.0 * ((later - positions) / time - velocities) / time
    return held


def _make_state(body: AnyBody, flock: Flock) -> dict[str, NDArray[Any]]:
    """What a body remembers of agents that are new; nothing if it has no memory."""
    if not isinstance(body, StatefulBody):
        return {}
    found: Any = body.init_state(flock)
    agents = flock.shape[:2]
    if not isinstance(found, Mapping) or any(
        not (isinstance(name, str) and name.isidentifier())
        or not (isinstance(array, np.ndarray) and array.shape[:2] == agents and array.dtype.kind in "fiub")
        for name, array in found.items()
    ):
        raise InputError(
            f"begin() of {type(body).__name__} must return arrays of numbers of shape (B, N, ..) by name, here "
            f"B, N = {agents[0]}, {agents[1]}; got {shorten_repr(found)}"
        )
    # Copies, as one array may stand under two names, and the arrays are the flight's own from here on.
    return {name: array.copy() for name, array in found.items()}


def _check_state(body: AnyBody, fresh: BodyState, state: BodyState) -> dict[str, NDArray[Any]]:
    """A state that was given, if it is one of this body and these agents."""
    if not isinstance(state, Mapping):
        raise InputError(
            f"body_state must be a mapping such as Trajectory.body_state_at returns; got {shorten_repr(state)}"
        )
    given = {name: np.asarray(array) for name, array in state.items()}
    needed, came = _format_shapes(fresh), _format_shapes(given)
    if needed != came:
        raise InputError(f"body_state does not fit {shorten_repr(body)}, which remembers {needed}; got {came}")
    for name, array in given.items():
        if array.dtype.kind not in "fiub" or not np.isfinite(array).all():
            raise InputError(f"body_state must be finite numbers; got {shorten_repr(array)} as {name!r}")
    return {name: given[name].astype(array.dtype) for name, array in fresh.items()}


def _format_shapes(state: BodyState) -> str:
    """Names and shapes in a few words."""
    return ", ".join(f"{name!r} of shape {state[name].shape}" for name in sorted(state)) or "nothing"
