"""The host of a swarm: a simulation whose accelerations come from robots, and the frames that robots receive.

The host rounds states to float32 after every step, so that robots and simulator use the same numbers and differ only in
their arithmetic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError
from equiflock.deployment.link_frames import (
    RADIO,
    RADIO_LAST,
    SENSOR,
    pack_floats,
    pack_frame,
    pack_messages,
    unpack_floats,
)
from equiflock.deployment.wire_format import OBSTACLE_GROUP, Message, encode_message, make_zero_hops
from equiflock.features import Senses
from equiflock.flock import FOLLOWER, OBSTACLE, STOPPED, WORKING, Condition, Flock
from equiflock.graph.radius_graph import Graph, radius_graph
from equiflock.observations.delayed_messages import build_message_graph
from equiflock.observations.message_buffer import MessageBuffer
from equiflock.observations.radio import Radio
from equiflock.protocols import AnyBody, BodyStep, Controller, StatefulBody
from equiflock.simulation.flight_builder import flight

# Delivery of a swarm's messages: the same radio, with the same hash, as in the simulator.


class MessageDelivery:
    """Decides which messages arrive, step by step. Receivers decide for how long they use them (`last_known`).

    Raise InputError for a radio with noise or quantization, which would change messages.

    Args:
        radio: model of communication.
        senses: senses of the controller; their units and topology define who is in range.
    """

    def __init__(self, radio: Radio, senses: Senses) -> None:
        # The host delivers bytes unchanged, so it cannot apply noise or quantization.
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

        Call this once per step and exhaust the iterator. Only followers receive; stopped agents neither send nor
        receive.
        """
        flock = self._senses.scale_flock(_clear_other_failures(flock))
        no_values = np.zeros((*flock.shape[:2], 0), np.float32)
        self._message_buffer.begin_step(flock, no_values)
        # A message's range is checked when it is sent; later failures do not matter.
        _, velocities, _, obstacles, groups, conditions = flock.arrays
        attributes = flock.effective_roles, obstacles, groups, np.zeros_like(conditions)
        sent = Flock.view(flock.positions.copy(), velocities, *attributes, comm_radius=flock.comm_radius)
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
        """Return the graph of agents that were in range of each other at a step; at step 0 if the topology is fixed."""
        if self._initial_graph is not None:
            return self._initial_graph
        return radius_graph(self._recent_flocks[step - self._message_buffer.step - 1])


def _clear_other_failures(flock: Flock) -> Flock:
    """Return the flock in which all failed agents work except STOPPED ones, whose processes are gone."""
    if flock.all_working:
        return flock
    positions, velocities, roles, obstacles, groups, conditions = flock.arrays
    stopped_only = np.where(conditions == STOPPED, conditions, np.int8(WORKING))
    return Flock.view(positions, velocities, roles, obstacles, groups, stopped_only, comm_radius=flock.comm_radius)


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


class SwarmHost:
    """Simulation of a swarm.

    Call `make_sensor_frames`, `make_radio_frames`, `parse_commands` and `advance` at every step, in this order.

    Args:
        start: a single flock at t = 0.
        controller: controller of the robots; the host uses only its senses.
        time_step: dt, in seconds.
        radio: model of communication.
        body: model of motion.
        flight_options: further arguments of `flight`, such as failures and the orbit technique.
    """

    def __init__(
        self, start: Flock, controller: Controller, time_step: float, radio: Radio, body: AnyBody, **flight_options: Any
    ) -> None:
        positions, velocities = (array.astype(np.float32).astype(float) for array in start.arrays[:2])
        start = replace(start, positions=positions, velocities=velocities)
        self.start, self.senses, self.radio = start, controller.senses, radio
        self.flight = flight(
            start,
            None,
            senses=controller.senses,
            time_step=time_step,
            radio=radio,
            body=Float32Body(body),
            **flight_options,
        )
        self.moment = next(self.flight)
        self.position_history = [self._round_positions()]
        """Positions (N, D) float32 at every step."""
        self.sent_bytes = self.delivered_bytes = self.delivered_count = 0
        self._delivery = MessageDelivery(radio, controller.senses)
        self._sent_messages: dict[int, dict[int, bytes]] = {}

    @property
    def robots(self) -> list[int]:
        """Numbers of the agents that are processes: followers. The host sends for leaders and obstacle agents."""
        return [int(number) for number in np.flatnonzero(self.start.roles[0] == FOLLOWER)]

    @property
    def failed_robots(self) -> list[int]:
        """Numbers of the agents that have stopped; other failed agents are not included."""
        return [int(number) for number in np.flatnonzero(self.moment.flock.conditions[0] == STOPPED)]

    def make_sensor_frames(self) -> dict[int, bytes]:
        """Return a frame with position and velocity for each robot that has not stopped, by robot."""
        flock, step, failed = self.moment.flock, self.moment.step, set(self.failed_robots)
        states = np.concatenate([flock.positions[0], flock.velocities[0]], axis=1)
        return {n: pack_frame(SENSOR, step, pack_floats(states[n])) for n in self.robots if n not in failed}

    def begin_delivery(self) -> list[tuple[int, int, int]]:
        """Begin the delivery of a step, once per step: add the messages of leaders and obstacle agents.

        Return the arrivals, sorted, as (receiver, sender, step at which it was sent). Messages too old to arrive are
        deleted.
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
        """Begin the delivery of a step and return the RADIO_LAST frame of each robot that has not stopped.

        `messages` are those that robots sent at this step. A frame has all messages that arrive at this step; it may be
        empty.
        """
        arrivals = self.begin_delivery()
        self.add_messages(messages)
        frames = {number: pack_frame(RADIO_LAST, self.moment.step) for number in self.make_sensor_frames()}
        for receiver, group in groupby(arrivals, key=lambda arrival: arrival[0]):
            if receiver in frames:
                frames[receiver] += self.pack_delivered([arrival[1:] for arrival in group])
        return frames

    def pack_delivered(self, sent: list[tuple[int, int]]) -> bytes:
        """Return the packed messages of (sender, step) pairs, and count them; those that were not sent are left out."""
        candidates = [(sender, self._sent_messages.get(step, {}).get(sender)) for sender, step in sent]
        messages = [(sender, message) for sender, message in candidates if message is not None]
        self.delivered_count += len(messages)
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
        self.position_history.append(self._round_positions())

    def mark_failed(self, failed: Mapping[int, Condition]) -> None:
        """Set the conditions of failed robots in the simulator, and the velocity of stopped ones to zero."""
        flock = self.moment.flock
        conditions, velocities = flock.conditions.copy(), flock.velocities.copy()
        for number, condition in failed.items():
            conditions[0, number] = condition
        velocities[conditions == STOPPED] = 0.0
        self.flight.replace(replace(flock, conditions=conditions, velocities=velocities))

    def _round_positions(self) -> Float32[np.ndarray, "N D"]:
        """Return the current positions (N, D) as float32."""
        positions: Float32[np.ndarray, "N D"] = self.moment.flock.positions[0].astype(np.float32)
        return positions

    def _encode_host_messages(self) -> dict[int, bytes]:
        """Return the messages of leaders and obstacle agents, by number; their observations are zero."""
        flock, messages = self.moment.flock, {}
        zero_hops = make_zero_hops(self.senses, flock.shape[2])
        for number in np.flatnonzero(flock.roles[0] != FOLLOWER):
            group = OBSTACLE_GROUP if flock.roles[0, number] == OBSTACLE else int(flock.groups[0, number])
            position, velocity = (array[0, number].astype(np.float32) for array in flock.arrays[:2])
            message = Message(int(number), self.moment.step, position, velocity, zero_hops, group)
            messages[int(number)] = encode_message(message)
        return messages
