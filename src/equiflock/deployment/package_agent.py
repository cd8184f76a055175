"""An agent that runs the package's senses and controller on a robot; it works for every local controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from equiflock._runtime.checks import InputError
from equiflock.controllers import load
from equiflock.controllers.safety_limits import get_safety_limits
from equiflock.deployment.wire_format import Message, decode_message, encode_message, make_zero_hops
from equiflock.flock import FOLLOWER, NO_GROUP, OBSTACLE, Flock
from equiflock.graph.radius_graph import Graph
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.observations.orbit import Orbit
from equiflock.protocols import Controller
from equiflock.simulation.flight_builder import make_decision_function


class PackageAgent:
    """An `Agent` that builds a flock from itself and the senders of its messages, and computes its observations.

    `controller` is a local controller or its name, `orbit` the arguments of `Orbit`, or None for no orbit technique.
    Raise InputError for a `Safe` controller: only exported agents keep limits.
    """

    def __init__(
        self,
        controller: str | Controller,
        *,
        number: int,
        group: int = 0,
        period: float,
        dimensions: int = 2,
        comm_radius: float = 1.0,
        orbit: Mapping[str, Any] | None = None,
    ) -> None:
        loaded = load(controller) if isinstance(controller, str) else controller
        if get_safety_limits(loaded) is not None:
            raise InputError("agents of kind package have no limits: use kind numpy or c, or leave out the limits")
        self.number, self.group, self.step = number, group, 0
        self._senses, self._dimensions, self._comm_radius = loaded.senses, dimensions, comm_radius
        self._orbit = None if orbit is None else Orbit(**orbit)
        self._decide, _ = make_decision_function(loaded, period)
        self._relayed_hops = make_zero_hops(loaded.senses, dimensions)
        self._received: dict[int, Message] = {}

    def begin(self, position: Sequence[float], velocity: Sequence[float]) -> bytes:
        """Begin a step and return the message."""
        r, v = np.array(position, np.float32), np.array(velocity, np.float32)
        self._own_message = Message(self.number, self.step, r, v, self._relayed_hops, self.group)
        self._received = {}
        return encode_message(self._own_message)

    def receive(self, message: bytes) -> str | None:
        """Store the first message of each sender at this step. Return None, or why the message was dropped."""
        decoded = decode_message(message, self._senses, self._dimensions)
        if isinstance(decoded, str):
            return decoded
        if decoded.sender == self.number:
            return "sender has this agent's own number"
        if decoded.sender in self._received:
            return "not newer than the last message of its sender"
        self._received[decoded.sender] = decoded
        return None

    def end(self) -> list[float]:
        """End the step and return the acceleration; keep the observations for the next message."""
        # Sorted by sender, so that sums do not depend on the order of arrival.
        messages = [self._own_message, *(self._received[sender] for sender in sorted(self._received))]
        flock = _build_flock(messages, self._comm_radius)
        # Agent 0, the robot, receives from all others; they receive nothing.
        N, others = len(messages), len(messages) - 1
        sensing = DelayedAggregation(replace(self._senses, topology="fixed"), orbit=self._orbit)
        sensing.fixed_graph = Graph(np.array([0] + [others] * N), np.arange(1, N), (1, N))
        sensing.load_memory(flock, np.stack([message.hops for message in messages])[None])
        observations = sensing.observe(flock)[:, :1]
        self._relayed_hops = observations[0, 0, :-1].copy()
        self.step += 1
        acceleration = self._decide(flock, np.ascontiguousarray(observations))
        return [float(number) for number in np.asarray(acceleration)[0, 0].astype(np.float32)]


def compile_kernels(controller: str | Controller, **settings: Any) -> None:
    """Compile all kernels of a `PackageAgent` with these arguments, by running one step with one neighbour."""
    D = settings["dimensions"]
    nearby, zero = [0.1 * settings["comm_radius"]] * D, [0.0] * D
    agent = PackageAgent(controller, **settings)
    other = PackageAgent(controller, **{**settings, "number": settings["number"] + 1})
    agent.begin(zero, zero)
    agent.receive(other.begin(nearby, zero))
    agent.end()


def _build_flock(messages: list[Message], comm_radius: float) -> Flock:
    """Return the senders of messages as a single flock, in this order; all but obstacle agents are followers."""
    is_obstacle = np.array([message.is_obstacle for message in messages])
    groups = np.where(is_obstacle, NO_GROUP, [message.group for message in messages])
    return Flock(
        np.array([[message.position for message in messages]], np.float64),
        np.array([[message.velocity for message in messages]], np.float64),
        np.where(is_obstacle, OBSTACLE, FOLLOWER)[None],
        groups=groups[None],
        comm_radius=comm_radius,
    )
