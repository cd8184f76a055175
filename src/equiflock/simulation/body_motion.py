"""Motion of the agents of a flight: a body and its state."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError, shorten_repr
from equiflock._runtime.memory import ReadOnlyDict, as_read_only
from equiflock.flock import Flock, Vectors
from equiflock.protocols import AnyBody, Body, BodyStep, StatefulBody

BodyState = Mapping[str, NDArray[Any]]
"""State of a body beyond positions and velocities: arrays (B, N, ..) by name."""


class MovingBody:
    """A body and its state during a flight.

    Args:
        body: any body, with state or without.
        flock: the agents at the start.
        state: body state at the start, such as that of an earlier flight; default: that of `init_state`, for a flock
            that the body's `check_start` accepts, if it has one.
    """

    def __init__(self, body: AnyBody, flock: Flock, state: BodyState | None = None) -> None:
        self.body = check_body(body)
        if state is None:
            _check_start(body, flock)
        fresh = _make_state(body, flock)
        self.store_state(fresh if state is None else _check_state(body, fresh, state))

    def compute_held_accelerations(self, step: BodyStep) -> Vectors:
        """Return the constant accelerations (B, N, D) that lead to the positions after a step; move no agent.

        Flocks that are not active stay in place, for which it is -2 v / dt.
        """
        # The body advances copies, so this holds for any body.
        copied = step._replace(
            positions=step.positions.copy(),
            velocities=step.velocities.copy(),
            state={name: array.copy() for name, array in step.state.items()},
        )
        self.body.advance(copied)
        return compute_acceleration_between(step.positions, step.velocities, copied.positions, step.time_step)

    def reorder(self, order: Int64[np.ndarray, " N"]) -> None:
        """Reorder the agents of the body state: the new agent s is the old agent order[s]."""
        self.store_state({name: array[:, order] for name, array in self.state.items()})

    def replace(self, flock: Flock, keep: Bool[np.ndarray, " N"]) -> None:
        """Continue with another flock, whose first agents are those in the mask `keep` (N,) of present agents.

        Kept agents keep their body state; new agents have that of `init_state`.
        """
        fresh = _make_state(self.body, flock)
        for name, array in fresh.items():
            array[:, : keep.sum()] = self.state[name][:, keep]
        self.store_state(fresh)

    def make_restarted_state(self, flock: Flock, mask: Bool[np.ndarray, " B"]) -> BodyState:
        """Return the body state in which the flocks of a mask have that of `init_state`; `flock` has all flocks."""
        _check_start(self.body, flock[mask])
        fresh = _make_state(self.body, flock)
        for name, array in fresh.items():
            array[~mask] = self.state[name][~mask]
        return fresh

    def with_body(self, body: AnyBody, flock: Flock) -> MovingBody:
        """Return a `MovingBody` of another body for the same agents.

        A body of the same type, with other parameters, takes over the arrays of the body state; another type starts
        with that of `init_state`. This is no start, which `check_start` could refuse.
        """
        result = MovingBody(body, flock, _make_state(check_body(body), flock))
        if type(body) is type(self.body):
            result.store_state({name: self.state.get(name, array) for name, array in result.state.items()})
        return result

    def store_state(self, state: BodyState) -> None:
        """Store the state and a read-only view of it; the body changes the state in place, so the view stays valid."""
        self.state: BodyState = {name: np.ascontiguousarray(array) for name, array in state.items()}
        self.state_view: BodyState = ReadOnlyDict({name: as_read_only(array) for name, array in self.state.items()})


def check_body(body: object) -> AnyBody:
    """Return `body`. Raise InputError unless it is an object with advance(step)."""
    if isinstance(body, type) or not isinstance(body, Body):
        examples = "equiflock.DoubleIntegrator() or equiflock.make_body('unicycle')"
        raise InputError(f"body must be an object with advance(), such as {examples}; got {shorten_repr(body)}")
    try:
        inspect.signature(body.advance).bind(None)
    except TypeError:
        raise InputError(
            f"advance() of {type(body).__name__} must take one argument, an equiflock.BodyStep; "
            f"got advance{inspect.signature(body.advance)}"
        ) from None
    return body


def compute_acceleration_between(positions: Vectors, velocities: Vectors, later: Vectors, time: float) -> Vectors:
    """Return the constant accelerations that lead from positions and velocities to later positions in that time.

    a = 2 (r(t + time) - r(t) - v(t) time) / time^2, which is the command itself for an ideal double integrator.
    """
    accelerations: Vectors = 2.0 * ((later - positions) / time - velocities) / time
    return accelerations


def _check_start(body: AnyBody, flock: Flock) -> None:
    """Raise InputError if the body has `check_start` and refuses the flock, such as drones that start below ground."""
    check = getattr(body, "check_start", None)
    if check is not None:
        check(flock)


def _make_state(body: AnyBody, flock: Flock) -> dict[str, NDArray[Any]]:
    """Return a copy of the initial body state of new agents; empty if the body has no state.

    Raise InputError if `init_state` does not return arrays of numbers (B, N, ..) by name.
    """
    if not isinstance(body, StatefulBody):
        return {}
    state: Any = body.init_state(flock)
    agents = flock.shape[:2]
    if not isinstance(state, Mapping) or any(
        not (isinstance(name, str) and name.isidentifier())
        or not (isinstance(array, np.ndarray) and array.shape[:2] == agents and array.dtype.kind in "fiub")
        for name, array in state.items()
    ):
        raise InputError(
            f"init_state() of {type(body).__name__} must return arrays of numbers of shape (B, N, ..) by name, here "
            f"B, N = {agents[0]}, {agents[1]}; got {shorten_repr(state)}"
        )
    # Copy, since two names may share one array, and the flight changes the arrays from here on.
    return {name: array.copy() for name, array in state.items()}


def _check_state(body: AnyBody, fresh: BodyState, state: BodyState) -> dict[str, NDArray[Any]]:
    """Return a copy of a given state with the dtypes of a fresh one.

    Raise InputError if names or shapes are not those of the fresh state, or a value is not finite.
    """
    if not isinstance(state, Mapping):
        raise InputError(
            f"body_state must be a mapping, such as Trajectory.body_state_at() returns; got {shorten_repr(state)}"
        )
    given = {name: np.asarray(array) for name, array in state.items()}
    expected, actual = _format_shapes(fresh), _format_shapes(given)
    if expected != actual:
        raise InputError(f"body_state does not fit {shorten_repr(body)}, whose state is {expected}; got {actual}")
    for name, array in given.items():
        if array.dtype.kind not in "fiub" or not np.isfinite(array).all():
            raise InputError(f"body_state must have finite numbers; got {shorten_repr(array)} as {name!r}")
    return {name: given[name].astype(array.dtype) for name, array in fresh.items()}


def _format_shapes(state: BodyState) -> str:
    """Return names and shapes of the arrays as text."""
    return ", ".join(f"{name!r} of shape {state[name].shape}" for name in sorted(state)) or "empty"
