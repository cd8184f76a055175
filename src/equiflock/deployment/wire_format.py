"""The message that one agent sends another, as bytes.

All numbers are little-endian; with K hops, C channels and D dimensions a message has 12 + 8 D + 4 (K - 1) C D bytes:

    byte    what                                                                          type
    0-1     the letters EF                                                                2 bytes
    2       version of this format, 1                                                     uint8
    3       group of the sender, 0 unless it has one; 255 says that it is an obstacle     uint8
    4-7     number of the sender                                                          uint32
    8-11    step at which it was sent, counted by the sender                              uint32
    12-     position r_j, in the units of the robots                                      D x float32
            velocity v_j, in the units of the robots                                      D x float32
            z_j^1 .. z_j^(K-1) of the step before, hop by hop, channel by channel, in     (K - 1) C D x float32
            the units of the controller (see `equiflock.controllers.unit_scaling`)

Positions are in one frame that all agents share. Of older hops the receiver makes the mean over all whom it hears, so
nothing else is needed: not the degree of the sender, nor who reached it. Leaders and obstacle agents, who hear nobody,
send zeros there.

A step of an agent has three parts, in this order: it says its message, of where it is now and of what it knew a step
before; it hears those of others; and it makes observations of them, which it keeps for the next message, and acts.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from jaxtyping import Float32

from equiflock.features import Senses
from equiflock.runtime.checks import InputError, check_count, shorten_repr

MAGIC = b"EF"
VERSION = 1
OBSTACLE_GROUP = 255
"""In place of a group: the sender is an obstacle agent, which is in none."""
MAX_STATE = 1e8
"""Positions and velocities beyond this are refused: their fourth powers would leave the range of float32."""
MAX_OBSERVATION = 1e18
"""Observations beyond this are refused: their squares would leave the range of float32."""

_HEADER = struct.Struct("<2sBBII")

Vector: TypeAlias = Float32[np.ndarray, " D"]
Hops: TypeAlias = Float32[np.ndarray, "K-1 C D"]


@dataclass(frozen=True, eq=False)
class Message:
    """What one agent sends another.

    Attributes:
        sender: its number, from 0 to 2^32 - 1.
        step: how many steps it had made when it sent this, from 0 to 2^32 - 1.
        position: (D,), in the units of the robots.
        velocity: (D,), in the units of the robots.
        hops: (K - 1, C, D), the first K - 1 hops of its observations of the step before.
        group: its group, from 0 to 254, or 255 for an obstacle agent.
    """

    sender: int
    step: int
    position: Vector
    velocity: Vector
    hops: Hops = field(repr=False)
    group: int = 0

    @property
    def is_obstacle(self) -> bool:
        """Whether the sender is an obstacle agent."""
        return self.group == OBSTACLE_GROUP


def count_message_bytes(senses: Senses, dimensions: int) -> int:
    """How many bytes a message has."""
    return int(_HEADER.size + 4 * (2 * dimensions + (senses.hops - 1) * senses.width * dimensions))


def encode_message(message: Message) -> bytes:
    """The message as bytes; an error if its numbers do not fit."""
    for name, most in (("sender", 2**32 - 1), ("step", 2**32 - 1), ("group", OBSTACLE_GROUP)):
        if check_count(name, getattr(message, name), least=0) > most:
            raise InputError(
                f"{name} of a message must be at most {most:,}; got {shorten_repr(getattr(message, name))}"
            )
    parts = (np.asarray(part, "<f4").ravel() for part in (message.position, message.velocity, message.hops))
    return (
        _HEADER.pack(MAGIC, VERSION, message.group, message.sender, message.step) + np.concatenate([*parts]).tobytes()
    )


def decode_message(data: bytes, senses: Senses, dimensions: int) -> Message | str:
    """The message in these bytes, or in a few words why they are none. Nothing in them is executed."""
    size, D = count_message_bytes(senses, dimensions), dimensions
    if len(data) != size:
        return f"{len(data)} bytes in place of {size}"
    magic, version, group, sender, step = _HEADER.unpack_from(data)
    if magic != MAGIC:
        return "it does not begin with EF"
    if version != VERSION:
        return f"version {version} in place of {VERSION}"
    numbers = np.frombuffer(data, "<f4", offset=_HEADER.size).astype(np.float32)
    # A comparison with what is no number is false.
    if not (np.abs(numbers[: 2 * D]) <= MAX_STATE).all() or not (np.abs(numbers[2 * D :]) <= MAX_OBSERVATION).all():
        return "a number in it is not finite, or too large"
    hops = numbers[2 * D :].reshape(senses.hops - 1, senses.width, D)
    return Message(sender, step, numbers[:D], numbers[D : 2 * D], hops, group)


def make_zero_hops(senses: Senses, dimensions: int) -> Hops:
    """What those who hear nobody pass on, and all at the first step: zeros, (K - 1, C, D)."""
    return np.zeros((senses.hops - 1, senses.width, dimensions), np.float32)
