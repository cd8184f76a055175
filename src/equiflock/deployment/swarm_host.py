"""The environment of a swarm: a simulation whose accelerations come from robots, and the frames that robots receive.

States are rounded to float32 after every step, so that robots and simulator use the same numbers and differ only in
their arithmetic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError, shorten_repr
from equiflock.controllers.safety_limits import get_safety_limits
from equiflock.deployment.link_frames import (
    RADIO,
    RADIO_LAST,
    SENSOR,
    pack_floats,
    pack_frame,
    pack_messages,
    unpack_floats,
)
from equiflock.deployment.wire_format import (
    CompactFormat,
    encode_agent_message,
    make_agent_message,
    make_zero_hops,
    round_to_float32,
)
from equiflock.features import Senses
from equiflock.flock import FOLLOWER, STOPPED, WORKING, Condition, Flock
from equiflock.graph.radius_graph import Graph, radius_graph
from equiflock.observations.delayed_messages import build_message_graph
from equiflock.observations.message_buffer import MessageBuffer
from equiflock.observations.orbit import Orbit
from equiflock.observations.radio import Radio
from equiflock.protocols import AnyBody, BodyStep, Controller, StatefulBody
from equiflock.simulation.environment import Environment
from equiflock.simulation.flight_builder import flight


class MessageDelivery:
    """Decides which messages arrive, by the same radio, with the same hash, as in the simulator.

    Receivers decide for how long they use messages (`last_known`). Units and topology of the senses define who is in
    range. Raise InputError for a radio with noise or quantization, which would change messages.
    """

    def __init__(self, radio: Radio, senses: Senses) -> None:
        for name in ("noise", "quantization"):
            if getattr(radio, name):
                raise InputError(f"a swarm delivers messages unchanged: {name} is for equiflock simulate only")
        self.radio = replace(radio, last_known=0)
        self._senses = senses
        self._message_buffer = MessageBuffer(self.radio)
        self._recent_flocks: deque[Flock] = deque(maxlen=self.radio.memory + 1)
        self._initial_graph: Graph | None = None

    def compute_arrivals(self, flock: Flock) -> Iterator[tuple[int, int, int]]:
        """Advance one step and yield the messages that arrive, as (receiver, sender, step at which it was sent).

        Call this once per step and exhaust the iterator. Only followers receive; stopped agents do not send either.
        """
        # Only stopped agents, whose processes are gone, have failed here.
        stopped = np.where(flock.conditions == STOPPED, flock.conditions, np.int8(WORKING))
        arrays = flock.arrays._replace(conditions=stopped)
        flock = self._senses.scale_flock(Flock.view(*arrays, comm_radius=flock.comm_radius))
        no_values = np.zeros((*flock.shape[:2], 0), np.float32)
        self._message_buffer.begin_step(flock, no_values)
        # A message's range is checked when it is sent; later failures do not matter.
        working, positions = np.zeros_like(flock.conditions), flock.positions.copy()
        arrays = flock.arrays._replace(positions=positions, roles=flock.effective_roles, conditions=working)
        sent = Flock.view(*arrays, comm_radius=flock.comm_radius)
        self._recent_flocks.append(sent)
        if self._senses.topology == "fixed" and self._initial_graph is None:
            self._initial_graph = radius_graph(sent)
        # The current step, not the step of sending, enters the hash.
        now, radio_args = self._message_buffer.step, self._message_buffer.make_radio_args_now(flock)
        receives, unranked = flock.effective_roles == FOLLOWER, np.empty(0, np.int64)
        for step in range(max(now - self.radio.memory, 0), now - self.radio.delay + 1):
            graph = build_message_graph(receives, range(step, step + 1), self._get_reach_graph, radio_args, unranked)
            for receiver, sender in graph.edges(0):
                yield int(receiver), int(sender), step

    def _get_reach_graph(self, step: int) -> Graph:
        """Return who was in range of whom at a step; at step 0 if the topology is fixed."""
        if self._initial_graph is not None:
            return self._initial_graph
        return radius_graph(self._recent_flocks[step - self._message_buffer.step - 1])


class Float32Body:
    """A body that rounds its state to float32."""

    def __init__(self, body: AnyBody) -> None:
        self.body = body

    def init_state(self, flock: Flock) -> dict[str, NDArray[Any]]:
        """Return the initial state of the wrapped body; empty if it has none."""
        return self.body.init_state(flock) if isinstance(self.body, StatefulBody) else {}

    def advance(self, step: BodyStep) -> None:
        """Advance the active flocks and round their positions and velocities."""
        self.body.advance(step)
        for array in (step.positions, step.velocities):
            array[:] = array.astype(np.float32)


def list_followers(start: Flock) -> list[int]:
    """Return the numbers of the followers, which are the robots. Raise InputError if `start` is not a single flock."""
    if not isinstance(start, Flock) or len(start) != 1:
        raise InputError(f"a swarm is a single flock, got {shorten_repr(start)}")
    return [int(number) for number in np.flatnonzero(start.roles[0] == FOLLOWER)]


class SwarmHost:
    """Simulation of a swarm, a single flock.

    Call `make_sensor_frames`, `make_radio_frames`, `parse_commands` and `advance` at every step, in this order. The
    host uses only the senses and the limits of the controller. With `compact` the agents' messages have that format, in
    one packet.
    """

    def __init__(
        self,
        start: Flock,
        controller: Controller,
        time_step: float,
        environment: Environment,
        orbit: Orbit | None,
        compact: CompactFormat | None = None,
    ) -> None:
        self.start, self.senses, self.radio = round_to_float32(start), controller.senses, environment.radio
        self.robots = list_followers(start)
        """Numbers of the agents that are processes: the followers. The host sends for leaders and obstacle agents."""
        rounded = replace(environment, body=Float32Body(environment.body))
        self.flight = flight(
            self.start,
            None,
            senses=self.senses,
            time_step=time_step,
            environment=rounded,
            orbit=orbit,
            safety=get_safety_limits(controller),
        )
        self.moment = next(self.flight)
        self.position_history = [self.moment.flock.positions[0].astype(np.float32)]
        """Positions (N, D) float32 at every step."""
        self.sent_bytes = self.delivered_bytes = 0
        self._delivery = MessageDelivery(environment.radio, controller.senses)
        self._sent_messages: dict[int, dict[int, bytes]] = {}
        self._compact = compact

    @property
    def failed_robots(self) -> list[int]:
        """Numbers of the agents that have stopped; other failed agents fly on."""
        return [int(number) for number in np.flatnonzero(self.moment.flock.conditions[0] == STOPPED)]

    def make_sensor_frames(self) -> dict[int, bytes]:
        """Return a frame with position and velocity for each robot that has not stopped, by robot."""
        flock, step, failed = self.moment.flock, self.moment.step, set(self.failed_robots)
        states = np.concatenate([flock.positions[0], flock.velocities[0]], axis=1)
        return {n: pack_frame(SENSOR, step, pack_floats(states[n])) for n in self.robots if n not in failed}

    def begin_delivery(self) -> list[tuple[int, int, int]]:
        """Begin the delivery of a step: add the host's own messages and delete those too old to arrive.

        Return the arrivals, sorted, as (receiver, sender, step at which it was sent).
        """
        step = self.moment.step
        self._sent_messages[step] = self._encode_host_messages()
        self._sent_messages.pop(step - self._delivery.radio.memory - 1, None)
        return sorted(self._delivery.compute_arrivals(self.moment.flock))

    def add_messages(self, messages: Mapping[int, bytes]) -> None:
        """Store the messages that robots send at this step, and count their bytes."""
        self._sent_messages[self.moment.step] |= messages
        self.sent_bytes += sum(map(len, messages.values()))

    def make_radio_frames(self, messages: Mapping[int, bytes]) -> dict[int, bytes]:
        """Deliver the messages that robots sent at this step. Return the RADIO_LAST frame of each working robot."""
        arrivals = self.begin_delivery()
        self.add_messages(messages)
        frames = {number: pack_frame(RADIO_LAST, self.moment.step) for number in self.make_sensor_frames()}
        for receiver, group in groupby(arrivals, key=lambda arrival: arrival[0]):
            if receiver in frames:
                frames[receiver] += self.pack_delivered([arrival[1:] for arrival in group])
        return frames

    def pack_delivered(self, sent: list[tuple[int, int]]) -> bytes:
        """Return the packed messages of (sender, step) pairs, and count them; leave out those that were not sent."""
        candidates = [(sender, self._sent_messages.get(step, {}).get(sender)) for sender, step in sent]
        messages = [(sender, message) for sender, message in candidates if message is not None]
        self.delivered_bytes += sum(len(message) for _, message in messages)
        return pack_messages(messages)

    def make_radio_frame(self, sender: int, step: int) -> bytes | None:
        """Return a RADIO frame with a single message, for real time, or None if it has not been sent."""
        content = self.pack_delivered([(sender, step)])
        return pack_frame(RADIO, self.moment.step, content) if content else None

    def parse_commands(self, contents: Mapping[int, bytes]) -> Float64[np.ndarray, "N D"]:
        """Return the accelerations commanded by these frame contents; zero if a command is missing or invalid."""
        commands = np.zeros(self.start.shape[1:])
        for number, content in contents.items():
            acceleration = np.array(unpack_floats(content))
            if acceleration.shape == commands.shape[1:] and np.isfinite(acceleration).all():
                commands[number] = acceleration
        return commands

    def advance(self, commands: Float64[np.ndarray, "N D"]) -> None:
        """Advance the simulation one step with these commands."""
        self.moment = self.flight.step(commands[None])
        self.position_history.append(self.moment.flock.positions[0].astype(np.float32))

    def mark_failed(self, failed: Mapping[int, Condition]) -> None:
        """Set the conditions of failed robots in the simulator, and the velocity of stopped ones to zero."""
        flock = self.moment.flock
        conditions, velocities = flock.conditions.copy(), flock.velocities.copy()
        for number, condition in failed.items():
            conditions[0, number] = condition
        velocities[conditions == STOPPED] = 0.0
        self.flight.replace(replace(flock, conditions=conditions, velocities=velocities))

    def _encode_host_messages(self) -> dict[int, bytes]:
        """Return the messages of leaders and obstacle agents, by number; their observations are zero."""
        flock, step = self.moment.flock, self.moment.step
        zero_hops = make_zero_hops(self.senses, flock.shape[2])
        numbers = np.flatnonzero(flock.roles[0] != FOLLOWER)
        if self._compact is None:
            return {int(number): encode_agent_message(flock, int(number), step, zero_hops) for number in numbers}
        messages = {int(number): make_agent_message(flock, int(number), step, zero_hops) for number in numbers}
        return {number: self._compact.encode(message)[0] for number, message in messages.items()}
