"""The wire format of messages between agents.

All numbers are little-endian. With K hops, C channels and D dimensions a message has 12 + 8 D + 4 (K - 1) C D bytes:

    byte    meaning                                                                       type
    0-1     the letters EF                                                                2 bytes
    2       version of this format, 1                                                     uint8
    3       group of the sender, 0 if there are no groups; 255 for obstacle agents        uint8
    4-7     number of the sender                                                          uint32
    8-11    step at which it was sent, counted by the sender                              uint32
    12-     position r_j, in the robots' units                                            D x float32
            velocity v_j, in the robots' units                                            D x float32
            observations z_j^1 .. z_j^(K-1) of the previous step, hop by hop, channel     (K - 1) C D x float32
            by channel, in the controller's units (`equiflock.controllers.unit_scaling`)

Positions are in a frame that all agents share. The receiver averages the older hops over all its neighbours, so a
message needs neither the degree nor the neighbours of its sender. Leaders and obstacle agents, which receive nothing,
send zeros as observations.

A step of an agent has three parts: it sends a message with its current state and its observations of the previous step;
it receives messages; it computes its observations, keeps them for the next message, and acts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from jaxtyping import Float32

from equiflock._runtime.checks import InputError, check_count, shorten_repr
from equiflock.deployment.link_frames import MESSAGE_HEADER
from equiflock.features import Senses
from equiflock.flock import OBSTACLE, Flock

MAGIC = b"EF"
VERSION = 1
OBSTACLE_GROUP = 255
"""Group field of obstacle agents, which have no group."""
MAX_STATE = 1e8
"""Largest position or velocity of a valid message: fourth powers of larger ones would leave the range of float32."""
MAX_OBSERVATION = 1e18
"""Largest observation of a valid message: squares of larger ones would leave the range of float32."""

Vector: TypeAlias = Float32[np.ndarray, " D"]
Hops: TypeAlias = Float32[np.ndarray, "K-1 C D"]


@dataclass(frozen=True, eq=False)
class Message:
    """A message of one agent; position and velocity are in the robots' units."""

    sender: int
    step: int
    position: Vector
    velocity: Vector
    hops: Hops = field(repr=False)
    """(K - 1, C, D), the first K - 1 hops of the sender's observations at the previous step."""
    group: int = 0
    """From 0 to 254, or 255 for an obstacle agent."""

    @property
    def is_obstacle(self) -> bool:
        """Whether the sender is an obstacle agent."""
        return self.group == OBSTACLE_GROUP


def count_message_bytes(senses: Senses, dimensions: int) -> int:
    """Return the size of a message in bytes."""
    return int(MESSAGE_HEADER.size + 4 * (2 * dimensions + (senses.hops - 1) * senses.width * dimensions))


def encode_message(message: Message) -> bytes:
    """Return a message as bytes. Raise InputError if sender, step or group is negative or too large."""
    for name, largest in (("sender", 2**32 - 1), ("step", 2**32 - 1), ("group", OBSTACLE_GROUP)):
        if check_count(name, getattr(message, name), least=0) > largest:
            raise InputError(
                f"{name} of a message must be at most {largest:,}, got {shorten_repr(getattr(message, name))}"
            )
    header = MESSAGE_HEADER.pack(MAGIC, VERSION, message.group, message.sender, message.step)
    parts = (np.asarray(part, "<f4").tobytes() for part in (message.position, message.velocity, message.hops))
    return header + b"".join(parts)


def encode_agent_message(flock: Flock, agent: int, step: int, hops: Hops) -> bytes:
    """Return the message of an agent of a single flock; `hops` are its observations of the previous step."""
    position, velocity = (array[0, agent].astype(np.float32) for array in flock.arrays[:2])
    group = OBSTACLE_GROUP if flock.roles[0, agent] == OBSTACLE else int(flock.groups[0, agent])
    return encode_message(Message(agent, step, position, velocity, hops, group))


def decode_message(data: bytes, senses: Senses, dimensions: int) -> Message | str:
    """Return the message, or why the data is not a valid one. Nothing in the data is executed."""
    size, D = count_message_bytes(senses, dimensions), dimensions
    if len(data) != size:
        return f"expected {size} bytes, got {len(data)}"
    magic, version, group, sender, step = MESSAGE_HEADER.unpack_from(data)
    if magic != MAGIC:
        return "does not begin with EF"
    if version != VERSION:
        return f"expected version {VERSION}, got {version}"
    numbers = np.frombuffer(data, "<f4", offset=MESSAGE_HEADER.size).astype(np.float32)
    # Comparisons with NaN are false.
    if not (np.abs(numbers[: 2 * D]) <= MAX_STATE).all() or not (np.abs(numbers[2 * D :]) <= MAX_OBSERVATION).all():
        return "a value is not finite or too large"
    hops = numbers[2 * D :].reshape(senses.hops - 1, senses.width, D)
    return Message(sender, step, numbers[:D], numbers[D : 2 * D], hops, group)


def make_zero_hops(senses: Senses, dimensions: int) -> Hops:
    """Return zeros (K - 1, C, D): observations sent by leaders and obstacle agents, and by all at the first step."""
    return np.zeros((senses.hops - 1, senses.width, dimensions), np.float32)


def round_to_float32(flock: Flock) -> Flock:
    """Return the flock with its state rounded to float32, but still float64: messages represent it exactly."""
    positions, velocities = (array.astype(np.float32).astype(np.float64) for array in flock.arrays[:2])
    return replace(flock, positions=positions, velocities=velocities)
