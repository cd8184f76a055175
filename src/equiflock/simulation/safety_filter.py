"""The safety limits of agents in a flight: the rules of `controllers/safety_limits.py` for all agents at once.

A `SafetyFilter` observes the flock once per step, with the same radio and hence exactly the messages of the flight's
own senses, and limits the accelerations of that step. Exported agents compute the same from their messages.
"""

from __future__ import annotations

from types import EllipsisType
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float64, Int8, Int64
from numpy.typing import NDArray

from equiflock._runtime.specs import format_spec
from equiflock.controllers.safety_limits import (
    BALANCED_SHARE,
    ROUNDING_SHARE,
    SafetyLimits,
    SafetyState,
    count_microseconds,
)
from equiflock.features import Senses
from equiflock.flock import FOLLOWER, OBSTACLE, Flock, Vectors
from equiflock.graph.radius_graph import Graph
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.observations.radio import Radio
from equiflock.protocols import Moment

States = Int8[np.ndarray, "B N"]


class SafetyFilter:
    """Limits the accelerations of a flock: call `observe` once per step, then `limit`.

    Args:
        limits: the limits of every follower.
        senses: the controller's senses, whose topology and units say who is in range of whom.
        time_step: T, in seconds.
        radio: how messages travel; that of the flight.
    """

    def __init__(self, limits: SafetyLimits, senses: Senses, time_step: float, radio: Radio) -> None:
        self.limits, self.time_step = limits, time_step
        self.braking_time = limits.compute_braking_time(time_step)
        self.states: States = np.zeros((0, 0), np.int8)
        """(B, N), codes of `SafetyState` of the last step that was limited; OK for all but followers."""
        # Corners as exported agents store them; their rounding would be divided by the square of the braking time.
        self._corners = None if limits.fence is None else np.array(limits.fence, np.float32)
        self._sensing = DelayedAggregation(self._make_senses(senses), obstacles="all", radio=radio)
        self._step_microseconds = count_microseconds(time_step)
        self._silence: NDArray[np.int64] = np.zeros((0, 0), np.int64)
        """(B, N), microseconds since the last step with a message of a neighbour in use, or since the start."""
        self._has_message: NDArray[np.bool_] = np.zeros((0, 0), bool)

    def observe(self, flock: Flock, flying: Bool[np.ndarray, " B"] | None = None) -> None:
        """Advance by one time step: compute the forces of rule 2, and count the silence of rule 1."""
        if self.states.shape != flock.shape[:2]:
            self.states = np.zeros(flock.shape[:2], np.int8)
            # The first step has no silence yet.
            self._silence = np.full(flock.shape[:2], -self._step_microseconds)
        self._sensing.observe(flock, flying)
        self._find_messages(flock)
        self._silence = np.where(self._has_message, 0, self._silence + self._step_microseconds)

    def restart(self, flock: Flock, mask: Bool[np.ndarray, " B"], flying: Bool[np.ndarray, " B"]) -> None:
        """Let the flocks of a mask begin anew at the present step; arguments as for `Sensing.restart`."""
        self._sensing.restart(flock, mask, flying)
        self._find_messages(flock)
        # New memory for the states, as the caller may still read the old one.
        self.states = self.states.copy()
        self._silence[mask], self.states[mask] = 0, SafetyState.OK

    def replace(self, flock: Flock, keep: Bool[np.ndarray, " N"]) -> None:
        """Continue with another flock, whose first agents are the kept ones; new agents start without silence."""
        self._sensing.replace(flock, keep)
        states, silence = self.states, self._silence
        self.states = np.zeros(flock.shape[:2], np.int8)
        self._silence = np.full(flock.shape[:2], -self._step_microseconds)
        if len(states):
            self.states[:, : keep.sum()], self._silence[:, : keep.sum()] = states[:, keep], silence[:, keep]

    def limit(
        self, flock: Flock, accelerations: Vectors, which: Bool[np.ndarray, " B"] | EllipsisType = ...
    ) -> Float64[np.ndarray, "B N D"]:
        """Return the limited accelerations of the flock last observed, and store the states of its agents.

        With `which` (B,), flock and accelerations are only the flocks where it is True.
        """
        a, v = np.array(accelerations, np.float64), flock.velocities
        states = np.where(self._has_message[which], SafetyState.OK, SafetyState.ALONE).astype(np.int8)
        # Squares may overflow in a flock that diverges; vectors are then shortened to zero.
        with np.errstate(over="ignore"):
            if self.limits.max_silence is not None:
                is_stale = self._silence[which] >= count_microseconds(self.limits.max_silence)
                a = np.where(is_stale[..., None], -v / self.braking_time, a)
                _raise_states(states, is_stale, SafetyState.STALE)
            a = self._limit_acceleration(a, states)
            if self.limits.min_separation is not None:
                a = self._limit_acceleration(self._evade(a, self._compute_forces()[which], states), states)
            if self._corners is not None:
                a = self._keep_inside(a, flock, self._corners, states)
            if self.limits.max_speed is not None:
                a = self._limit_speed(a, v, self.limits.max_speed, states)
            a = self._limit_acceleration(a, states)
        self.states[which] = np.where(flock.effective_roles == FOLLOWER, states, SafetyState.OK)
        return a

    def compute_magnitude(self, velocities: Float[np.ndarray, "*batch D"]) -> Float64[np.ndarray, "*batch"]:
        """Return |v| / T, the largest term of the rules' differences of velocities; 0 without a speed limit or fence.

        Errors between two implementations are relative to it, as float32 has seven digits.
        """
        uses_differences = self.limits.max_speed is not None or self.limits.fence is not None
        return np.asarray(np.linalg.norm(velocities.astype(np.float64), axis=-1) * (uses_differences / self.time_step))

    def _make_senses(self, senses: Senses) -> Senses:
        """Return senses with the forces of rule 2 as their only channel, in the units of the controller's senses."""
        # Units decide by rounding who is in range, so they must be the same.
        length, time = senses.scales
        distance = (self.limits.min_separation or 0.0) / length
        name = format_spec("evasion", distance=distance, braking_time=self.braking_time / time)
        return Senses(((name, "sum"),), 1, senses.topology, length_scale=length, time_scale=time)

    def _compute_forces(self) -> Float64[np.ndarray, "B N D"]:
        """Return s of rule 2, in the robots' units."""
        length, time = self._sensing.senses.scales
        return self._sensing.observations[:, :, 0, 0].astype(np.float64) * (length / time**2)

    def _find_messages(self, flock: Flock) -> None:
        """Find the agents that use a message of a neighbour at this step; those of obstacle agents do not count.

        A robot writes the messages of obstacle agents itself, from its sensors: they do not show that its radio works.
        """
        graph: Graph = self._sensing.compute_message_graph(flock)
        flocks = graph.rows // flock.shape[1]
        is_neighbour = flock.roles[flocks, graph.senders] != OBSTACLE
        counts = np.bincount(graph.rows[is_neighbour], minlength=flock.roles.size)
        self._has_message = counts.reshape(flock.roles.shape) > 0

    def _evade(self, a: NDArray[Any], s: NDArray[Any], states: States) -> NDArray[Any]:
        """Return accelerations after rule 2, with the forces s (B, N, D)."""
        assert self.limits.min_separation is not None
        norms = np.linalg.norm(s, axis=-1, keepdims=True)
        applies = norms > BALANCED_SHARE * self.limits.min_separation / self.braking_time**2
        u = np.divide(s, norms, out=np.zeros_like(s), where=applies)
        opposed = np.minimum((a * u).sum(axis=-1, keepdims=True), 0.0)
        _raise_states(states, applies[..., 0], SafetyState.TOO_CLOSE)
        return np.where(applies, a - opposed * u + s, a)

    def _keep_inside(self, a: NDArray[Any], flock: Flock, corners: NDArray[Any], states: States) -> NDArray[Any]:
        """Return accelerations after rule 3: the upper walls first, then the lower ones."""
        braking, T_b = self.limits.max_acceleration / 2.0, self.braking_time
        for side, corner in ((1.0, corners[1]), (-1.0, corners[0])):
            x, w, outward = side * (corner - flock.positions), side * flock.velocities, side * a
            allowed = np.copysign(np.minimum(np.sqrt(2.0 * braking * np.abs(x)), np.abs(x) / (4.0 * T_b)), x)
            largest = (allowed - w) / T_b
            a = np.where(outward > largest, side * largest, a)
            excess = (outward - largest).max(axis=-1)
            _raise_states(states, excess > ROUNDING_SHARE * self.limits.max_acceleration, SafetyState.FENCE)
        return a

    def _limit_speed(self, a: NDArray[Any], v: NDArray[Any], max_speed: float, states: States) -> NDArray[Any]:
        """Return accelerations after rule 4."""
        planned = v + a * self.time_step
        is_fast = np.linalg.norm(planned, axis=-1) > max_speed
        limited = np.where(is_fast[..., None], (_shorten(planned, max_speed) - v) / self.time_step, a)
        _raise_states(states, self._is_change(limited - a), SafetyState.LIMITED)
        return limited

    def _limit_acceleration(self, a: NDArray[Any], states: States) -> NDArray[Any]:
        """Return accelerations after rule 5."""
        limited = _shorten(a, self.limits.max_acceleration)
        _raise_states(states, self._is_change(limited - a), SafetyState.LIMITED)
        return limited

    def _is_change(self, difference: NDArray[Any]) -> NDArray[np.bool_]:
        """Return whether accelerations (B, N, D) changed by more than rounding."""
        return np.asarray(np.linalg.norm(difference, axis=-1) > ROUNDING_SHARE * self.limits.max_acceleration)


def describe_states(counts: Int64[np.ndarray, " states"]) -> str:
    """Return the share of each state among `counts`, such as "OK 80%, LIMITED 20%"."""
    shares = counts / max(counts.sum(), 1)
    return ", ".join(f"{state.name} {100 * shares[state]:.3g}%" for state in SafetyState if counts[state])


def count_states(moment: Moment) -> Int64[np.ndarray, " states"]:
    """Return the number of followers in each `SafetyState` in the flying flocks of a moment; zeros without limits."""
    if moment.safety_states is None:
        return np.zeros(len(SafetyState), np.int64)
    counted = (moment.flock.effective_roles == FOLLOWER) & moment.flying[:, None]
    return np.bincount(moment.safety_states[counted], minlength=len(SafetyState))


def _shorten(vectors: NDArray[Any], longest: float) -> NDArray[Any]:
    """Return vectors (B, N, D) of which none is longer than `longest`."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors * (longest / np.maximum(norms, longest)))


def _raise_states(states: States, applies: NDArray[np.bool_], state: SafetyState) -> None:
    """Raise the states of agents to which a rule applies, in place; more severe ones stay."""
    states[applies] = np.maximum(states[applies], state)
