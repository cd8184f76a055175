"""The world of a swarm: a flight of the simulator in which robots act, and what each of them is told of it.

States are rounded to float32 after every step, so that robots and simulator see the same numbers, and differ by their
arithmetic alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int64
from numpy.typing import NDArray

from equiflock.deployment.link_frames import (
    RADIO,
    RADIO_LAST,
    SENSOR,
    pack_floats,
    pack_frame,
    pack_messages,
    unpack_floats,
)
from equiflock.deployment.message_delivery import MessageDelivery
from equiflock.deployment.wire_format import OBSTACLE_GROUP, Message, encode_message, make_zero_hops
from equiflock.flock import FOLLOWER, OBSTACLE, STOPPED, Condition, Flock, Roles, Vectors
from equiflock.protocols import AnyBody, Controller, StatefulBody
from equiflock.senses.radio import Radio
from equiflock.simulation.flight_builder import flight


class Float32Body:
    """A body whose states are numbers that float32 can hold."""

    def __init__(self, body: AnyBody) -> None:
        self.body = body

    def init_state(self, flock: Flock) -> dict[str, NDArray[Any]]:
        """What the body remembers."""
        return self.body.init_state(flock) if isinstance(self.body, StatefulBody) else {}

    def advance(
        self,
        positions: Vectors,
        velocities: Vectors,
        roles: Roles,
        accelerations: Vectors,
        time_step: float,
        active: Int64[np.ndarray, " active"],
        state: Mapping[str, NDArray[Any]],
        step: int,
        agent_ids: Int64[np.ndarray, " N"] | None = None,
    ) -> None:
        """Move the active flocks, and round where they are."""
        moved = positions, velocities, roles, accelerations, time_step, active
        if isinstance(self.body, StatefulBody):
            self.body.advance(*moved, state, step, agent_ids)
        else:
            self.body.advance(*moved)
        for array in (positions, velocities):
            array[:] = array.astype(np.float32)


class SwarmHost:
    """Robots in flight: `sensors`, `air`, `commands` and `advance` at every step, in this order.

    Args:
        start: a single flock at t = 0.
        controller: what the robots fly by, of which the world knows the senses.
        time_step: dt, in seconds.
        radio: how messages travel.
        body: what a commanded acceleration does.
        flight_options: further arguments of `flight`, such as failures and the technique for obstacles.
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
        """Where agents were at every step, in float32, which holds it."""
        self.sent_bytes = self.delivered_bytes = self.delivered_count = 0
        self._delivery = MessageDelivery(radio, controller.senses)
        self._sent_messages: dict[int, dict[int, bytes]] = {}

    @property
    def robots(self) -> list[int]:
        """The numbers of the agents that are processes: followers. The world speaks for leaders and obstacle agents."""
        return [int(number) for number in np.flatnonzero(self.start.roles[0] == FOLLOWER)]

    @property
    def failed_robots(self) -> list[int]:
        """The robots that have stopped by now."""
        return [int(number) for number in np.flatnonzero(self.moment.flock.conditions[0] == STOPPED)]

    def sensors(self) -> dict[int, bytes]:
        """What each robot that works measures of itself now."""
        flock, step, gone = self.moment.flock, self.moment.step, set(self.failed_robots)
        told = np.concatenate([flock.positions[0], flock.velocities[0]], axis=1)
        return {
            number: pack_frame(SENSOR, step, pack_floats(told[number])) for number in self.robots if number not in gone
        }

    def begin_delivery(self) -> list[tuple[int, int, int]]:
        """The links of this step, as (receiver, sender, the step at which the message was sent)."""
        step = self.moment.step
        self._sent_messages[step] = self._encode_host_messages()
        self._sent_messages.pop(step - self._delivery.radio.memory - 1, None)
        return sorted(self._delivery.compute_arrivals(self.moment.flock))

    def add_messages(self, messages: Mapping[int, bytes]) -> None:
        """Take note of what robots send now."""
        self._sent_messages[self.moment.step] |= messages
        self.sent_bytes += sum(map(len, messages.values()))

    def make_radio_frames(self, messages: Mapping[int, bytes]) -> dict[int, bytes]:
        """What reaches each robot at this step, as the last of it, when these have been sent."""
        arrivals = self.begin_delivery()
        self.add_messages(messages)
        found = {number: pack_frame(RADIO_LAST, self.moment.step) for number in self.sensors()}
        for receiver, some in groupby(arrivals, key=lambda link: link[0]):
            if receiver in found:
                found[receiver] += self.pack_delivered([link[1:] for link in some])
        return found

    def pack_delivered(self, sent: list[tuple[int, int]]) -> bytes:
        """The messages of these senders and steps as a robot receives them, as far as they were sent."""
        said = [(sender, self._sent_messages.get(step, {}).get(sender)) for sender, step in sent]
        messages = [(sender, message) for sender, message in said if message is not None]
        self.delivered_count += len(messages)
        self.delivered_bytes += sum(len(message) for _, message in messages)
        return pack_messages(messages)

    def make_radio_frame(self, sender: int, step: int) -> bytes | None:
        """A single message as a robot receives it in real time; None if it was not sent yet."""
        passed = self.pack_delivered([(sender, step)])
        return pack_frame(RADIO, self.moment.step, passed) if passed else None

    def commands(self, contents: Mapping[int, bytes]) -> Float64[np.ndarray, "N D"]:
        """What robots command now; zero for those from whom nothing came, or no numbers: they keep their velocity."""
        found = np.zeros(self.start.shape[1:])
        for number, content in contents.items():
            told = np.array(unpack_floats(content))
            if told.shape == found.shape[1:] and np.isfinite(told).all():
                found[number] = told
        return found

    def advance(self, commands: Float64[np.ndarray, "N D"]) -> None:
        """Let a step pass with these commands."""
        self.moment = self.flight.step(commands[None])
        self.position_history.append(self._round_positions())

    def mark_failed(self, marked: Mapping[int, Condition]) -> None:
        """Take note that robots have failed: from the next step on the simulator knows it, too."""
        flock = self.moment.flock
        conditions, velocities = flock.conditions.copy(), flock.velocities.copy()
        for number, condition in marked.items():
            conditions[0, number] = condition
        velocities[conditions == STOPPED] = 0.0
        self.flight.replace(replace(flock, conditions=conditions, velocities=velocities))

    def _round_positions(self) -> Float32[np.ndarray, "N D"]:
        places: Float32[np.ndarray, "N D"] = self.moment.flock.positions[0].astype(np.float32)
        return places

    def _encode_host_messages(self) -> dict[int, bytes]:
        """The messages of leaders and obstacle agents, who need no controller."""
        flock, found = self.moment.flock, {}
        silent = make_zero_hops(self.senses, flock.shape[2])
        for number in np.flatnonzero(flock.roles[0] != FOLLOWER):
            group = OBSTACLE_GROUP if flock.roles[0, number] == OBSTACLE else int(flock.groups[0, number])
            position, velocity = (array[0, number].astype(np.float32) for array in flock.arrays[:2])
            said = Message(int(number), self.moment.step, position, velocity, silent, group)
            found[int(number)] = encode_message(said)
        return found
