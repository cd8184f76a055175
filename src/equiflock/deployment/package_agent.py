"""One robot's controller by the package's own senses and controller, for any that is not privileged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from equiflock.controllers import load
from equiflock.deployment.wire_format import OBSTACLE_GROUP, Message, decode_message, encode_message, make_zero_hops
from equiflock.flock import FOLLOWER, NO_GROUP, OBSTACLE, Flock
from equiflock.protocols import Controller
from equiflock.senses.aggregation import DelayedAggregation
from equiflock.senses.graph import Graph
from equiflock.senses.orbit import Orbit
from equiflock.simulation.flight_builder import make_decision_function


class PackageAgent:
    """A flock of one that hears: the robot itself, and those whose messages came.

    Args:
        controller: a local controller, or its name.
        number: that of the robot, in its messages.
        group: its group.
        dimensions: D.
        comm_radius: R, in the robots' unit of length.
        orbit: the numbers of the technique for obstacles, if there is one.
    """

    def __init__(
        self,
        controller: str | Controller,
        *,
        number: int,
        group: int = 0,
        dimensions: int = 2,
        comm_radius: float = 1.0,
        orbit: Mapping[str, Any] | None = None,
    ) -> None:
        made = load(controller) if isinstance(controller, str) else controller
        self.number, self.group, self.step = number, group, 0
        self._senses, self._dimensions, self._comm_radius = made.senses, dimensions, comm_radius
        self._orbit = None if orbit is None else Orbit(**orbit)
        self._decide, _ = make_decision_function(made)
        self._relayed_hops = make_zero_hops(made.senses, dimensions)
        self._received: dict[int, Message] = {}

    def begin(self, position: Sequence[float], velocity: Sequence[float]) -> bytes:
        """Begin a step; the message to send now."""
        here, motion = np.array(position, np.float32), np.array(velocity, np.float32)
        self._own_message = Message(self.number, self.step, here, motion, self._relayed_hops, self.group)
        self._received = {}
        return encode_message(self._own_message)

    def receive(self, message: bytes) -> str | None:
        """Take in a message; None, or why it was dropped."""
        found = decode_message(message, self._senses, self._dimensions)
        if isinstance(found, str):
            return found
        if found.sender == self.number:
            return "from this agent's own number"
        if found.sender in self._received:
            return "not newer than what its sender said before"
        self._received[found.sender] = found
        return None

    def end(self) -> list[float]:
        """The acceleration."""
        # In the order of numbers, so that sums do not depend on which message came first.
        told = [self._own_message, *(self._received[sender] for sender in sorted(self._received))]
        flock = _build_flock(told, self._comm_radius)
        # The robot hears all the others, who hear nobody.
        others = len(told) - 1
        sensing = DelayedAggregation(replace(self._senses, topology="fixed"), orbit=self._orbit)
        sensing.fixed_graph = Graph(np.array([0] + [others] * len(told)), np.arange(1, len(told)), (1, len(told)))
        # What they knew a step before came with their messages.
        before, _ = sensing.swap_buffers(self._senses.scale_flock(flock))
        before[0, :, : self._relayed_hops.size] = [message.hops.ravel() for message in told]
        sensing.swap_buffers(self._senses.scale_flock(flock))
        observations = sensing.observe(flock)[:, :1]
        self._relayed_hops = observations[0, 0, :-1].copy()
        self.step += 1
        acceleration = self._decide(flock, np.ascontiguousarray(observations))
        return [float(number) for number in np.asarray(acceleration)[0, 0].astype(np.float32)]


def compile_kernels(controller: str | Controller, **settings: Any) -> None:
    """Make a step of an agent that hears another, so that whatever is compiled at its first use is there in flight."""
    D = settings["dimensions"]
    place, rest = [0.1 * settings["comm_radius"]] * D, [0.0] * D
    agent = PackageAgent(controller, **settings)
    other = PackageAgent(controller, **{**settings, "number": settings["number"] + 1})
    agent.begin(rest, rest)
    agent.receive(other.begin(place, rest))
    agent.end()


def _build_flock(told: list[Message], comm_radius: float) -> Flock:
    """The senders of these messages as a flock."""
    rim = np.array([message.group == OBSTACLE_GROUP for message in told])
    groups = np.where(rim, NO_GROUP, [message.group for message in told])
    return Flock(
        np.array([[message.position for message in told]], np.float64),
        np.array([[message.velocity for message in told]], np.float64),
        np.where(rim, OBSTACLE, FOLLOWER)[None],
        groups=groups[None],
        comm_radius=comm_radius,
    )
