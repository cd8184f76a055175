"""The wire format of messages between agents, in two versions.

All numbers are little-endian. A step of an agent has three parts: it sends a message with its current state and its
observations of the previous step; it receives messages; it computes its observations, keeps them for the next message,
and acts. The receiver averages the older hops over all its neighbours, so a message needs neither the degree nor the
neighbours of its sender. Leaders and obstacle agents, which receive nothing, send zeros as observations. Positions are
in a frame that all agents share, unless the receiver measures the frames of its neighbours.

**Version 1, float32.** With K hops, C channels and D dimensions a message has 12 + 8 D + 4 (K - 1) C D bytes:

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

**Version 2, compact** (`CompactFormat`). A message is P packets of 10 + 2 D (1 + V) bytes. Its vectors are the
position, the velocity, and the first H <= K - 1 hops, C vectors each. Every packet has the position and
V = ceil((1 + H C) / P) of the others, in this order; zeros fill the last packet:

    byte    meaning                                                                       type
    0-1     the letters EF                                                                2 bytes
    2       version of this format, 2                                                     uint8
    3       group of the sender, as in version 1                                          uint8
    4-5     number of the sender                                                          uint16
    6-7     step at which it was sent, modulo 2^16                                        uint16
    8       16 n + P for packet n = 0 .. P - 1; 0 if the sender has no valid state        uint8
    9       layout: CRC-32 of the settings of the format, modulo 256                      uint8
    10-     position r_j                                                                  D x uint16
            V vectors: velocity v_j, as uint16, and observations, as float16              V D x uint16 or float16

A position is sent as round(r / q) modulo 2^16 with q = 16 R / 2^16, a velocity likewise with q = 64 (R / tau) / 2^16,
where R is the communication radius in the robots' units and tau the number of the robots' seconds per second of the
controller. The receiver takes the multiple of q that is nearest to its own state. So the arena and a common velocity
are unlimited, but every component of r_ij must be below 8 R, and of v_ij below 32 R / tau: what a radio carries from
farther away appears at another place, modulo 16 R, and a faster neighbour at another velocity. Observations are rounded
to the nearest float16, ties to even, and limited to +-65504. Hops that are not sent are zero at the receiver, which
uses a message once all its packets of one step have arrived; a packet of a newer step discards those of an older one.
If each packet is lost with probability p, a message is lost with probability 1 - (1 - p)^P.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError, check_count, shorten_repr
from equiflock.deployment.link_frames import COMPACT_VERSION, MESSAGE_HEADER
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
COMPACT_HEADER = struct.Struct("<2sBBHHBB")
"""Header of a packet of version 2: EF, version, group, sender, step, packet, layout."""
MAX_PACKETS = 15
"""Most packets of a message of version 2."""
WINDOW, SPEED_WINDOW = 16.0, 64.0
"""Periods of version 2: of positions in units of R, of velocities in units of R / tau."""
MAX_FLOAT16 = 65504.0

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
    """Return the message of `make_agent_message` as bytes."""
    return encode_message(make_agent_message(flock, agent, step, hops))


def make_agent_message(flock: Flock, agent: int, step: int, hops: Hops) -> Message:
    """Return the message of an agent of a single flock; `hops` are its observations of the previous step."""
    position, velocity = (array[0, agent].astype(np.float32) for array in flock.arrays[:2])
    group = OBSTACLE_GROUP if flock.roles[0, agent] == OBSTACLE else int(flock.groups[0, agent])
    return Message(agent, step, position, velocity, hops, group)


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


def quantize(values: Any, quantum: Any) -> NDArray[np.uint16]:
    """Return round(x / q) modulo 2^16 for finite positions or velocities; float32 arithmetic, as in C."""
    return np.mod(_round_to_multiples(values, quantum), 2**16).astype(np.uint16)


def dequantize(words: NDArray[np.uint16], own: Any, quantum: float) -> NDArray[np.float32]:
    """Return the multiples of q nearest to the receiver's `own` state that are `words` modulo 2^16."""
    nearest = _round_to_multiples(own, quantum)
    ahead = np.mod(words - nearest + 2**15, 2**16) - 2**15
    return np.asarray(np.float32(quantum) * (nearest + ahead).astype(np.float32))


def _round_to_multiples(values: Any, quantum: Any) -> NDArray[np.float64]:
    """Return round(x / q), computed in float32."""
    multiples = np.rint(np.asarray(values, np.float32) * np.float32(1.0 / np.asarray(quantum)))
    return np.asarray(multiples, np.float64)


def round_to_float16(observations: Any) -> NDArray[np.float16]:
    """Return observations as float16: the nearest, ties to even, at most 65504 in absolute value."""
    return np.clip(np.asarray(observations, np.float32), -MAX_FLOAT16, MAX_FLOAT16).astype(np.float16)


@dataclass(frozen=True)
class CompactFormat:
    """Version 2 of the format for one controller."""

    senses: Senses
    dimensions: int
    comm_radius: float
    """R in the robots' units."""
    relayed_hops: int
    """H <= K - 1, the number of hops in a message."""
    packets: int = 1
    """P."""

    @property
    def vectors_per_packet(self) -> int:
        """V, the number of vectors in a packet besides the position."""
        return -(-(1 + self.relayed_hops * self.senses.width) // self.packets)

    @property
    def packet_bytes(self) -> int:
        """Size of a packet in bytes."""
        return COMPACT_HEADER.size + 2 * self.dimensions * (1 + self.vectors_per_packet)

    @property
    def quanta(self) -> tuple[float, float]:
        """Quantum q of positions and of velocities, in the robots' units."""
        return WINDOW * self.comm_radius / 2**16, 2.0 * self.speed_reach / 2**16

    @property
    def speed_reach(self) -> float:
        """Bound of each component of v_ij, in the robots' units."""
        return SPEED_WINDOW / 2.0 * self.comm_radius / self.senses.time_scale

    @cached_property
    def layout(self) -> int:
        """Byte that differs, mostly, between formats of different sizes, channels or units."""
        channels = " ".join(f"{name} {aggregation}" for name, aggregation in self.senses.channels)
        counts = f"{self.dimensions} {self.senses.hops} {self.relayed_hops} {self.packets}"
        text = f"{counts} {self.comm_radius:.6g} {self.senses.time_scale:.6g} {channels}"
        return zlib.crc32(text.encode()) % 256

    def encode(self, message: Message) -> list[bytes]:
        """Return the packets of a message. Raise InputError if the sender or the group is negative or too large."""
        for name, largest in (("sender", 2**16 - 1), ("group", OBSTACLE_GROUP)):
            if check_count(name, number := getattr(message, name), least=0) > largest:
                raise InputError(f"{name} of a compact message must be at most {largest:,}, got {number:,}")
        state = np.stack([message.position, message.velocity])
        # Comparisons with NaN are false.
        is_valid = bool((np.abs(state) <= MAX_STATE).all())
        words = quantize(state if is_valid else np.zeros_like(state), np.array(self.quanta)[:, None])
        relayed = round_to_float16(message.hops[: self.relayed_hops]).view(np.uint16)
        others = np.concatenate([words[1], relayed.ravel()])
        size = self.vectors_per_packet * self.dimensions
        others = np.pad(others, (0, self.packets * size - len(others))).reshape(self.packets, size)
        names = MAGIC, COMPACT_VERSION, message.group, message.sender, message.step % 2**16
        return [
            COMPACT_HEADER.pack(*names, 16 * n + self.packets if is_valid else 0, self.layout)
            + np.concatenate([words[0], part]).astype("<u2").tobytes()
            for n, part in enumerate(others)
        ]

    def decode(self, packets: Sequence[bytes], position: Vector, velocity: Vector) -> Message | str:
        """Return the message that a receiver with this finite state decodes from all packets, or why it is invalid.

        The packets must be of one sender and step; their order does not matter.
        """
        D, C, parts = self.dimensions, self.senses.width, {}
        for packet in packets:
            if (reason := self._find_fault(packet)) is not None:
                return reason
            _, _, group, sender, step, number, _ = COMPACT_HEADER.unpack_from(packet)
            words = np.frombuffer(packet, "<u2", offset=COMPACT_HEADER.size).astype(np.uint16)
            parts[number // 16] = words[D:]
        if len(parts) != self.packets:
            return f"expected {self.packets} packets, got {len(parts)}"
        others = np.concatenate([parts[n] for n in range(self.packets)])
        hops = make_zero_hops(self.senses, D)
        hops[: self.relayed_hops] = others[D:][: self.relayed_hops * C * D].view(np.float16).reshape(-1, C, D)
        if not np.isfinite(hops).all():
            return "a value is not finite or too large"
        r, v = (
            dequantize(sent, own, quantum)
            for sent, own, quantum in zip((words[:D], others[:D]), (position, velocity), self.quanta, strict=True)
        )
        return Message(sender, step, r, v, hops, group)

    def _find_fault(self, packet: bytes) -> str | None:
        """Return why bytes are not a packet of this format, or None."""
        if len(packet) != self.packet_bytes:
            return f"expected {self.packet_bytes} bytes, got {len(packet)}"
        magic, version, _, _, _, number, layout = COMPACT_HEADER.unpack_from(packet)
        if magic != MAGIC:
            return "does not begin with EF"
        if version != COMPACT_VERSION:
            return f"expected version {COMPACT_VERSION}, got {version}"
        if layout != self.layout:
            return f"expected layout {self.layout}, got {layout}"
        if number % 16 != self.packets or number // 16 >= self.packets:
            return "is not a packet of a valid state"
        return None
