"""Frames between the host of a swarm and its robots. Robot processes import this file, so it has few imports.

Robot i has two zenoh keys: `KEY_PREFIX/to/i` for frames to the robot and `KEY_PREFIX/from/i` for frames to the host. A
frame is a letter, the step as uint32, and its content, little-endian:

    S  SENSOR      to a robot   measured position and velocity, 2 D x float32
    R  RADIO       to a robot   received messages, each after its link number and length, 2 x uint32
    L  RADIO_LAST  to a robot   the same; no more messages follow in this step (lockstep)
    X  END         to a robot   empty: the robot answers with its report
    H  HELLO       to the host  empty: the robot is ready
    A  MESSAGE     to the host  the robot's message
    M  COMMAND     to the host  the robot's acceleration, D x float32
    Z  REPORT      to the host  statistics of the flight as JSON
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

SENSOR, RADIO, RADIO_LAST, END, HELLO, MESSAGE, COMMAND, REPORT = (ord(letter) for letter in "SRLXHAMZ")
_FRAME_HEADER = struct.Struct("<BI")
_LINK_HEADER = struct.Struct("<II")


def pack_frame(kind: int, step: int = 0, content: bytes = b"") -> bytes:
    """Return a frame; `kind` is a letter's code, such as SENSOR."""
    return _FRAME_HEADER.pack(kind, step) + content


def unpack_frame(data: bytes) -> tuple[int, int, bytes]:
    """Return the kind, step and content of a frame; kind 0 for data that is too short."""
    if len(data) < _FRAME_HEADER.size:
        return 0, 0, b""
    kind, step = _FRAME_HEADER.unpack_from(data)
    return kind, step, data[_FRAME_HEADER.size :]


def pack_floats(values: Iterable[float]) -> bytes:
    """Return numbers as little-endian float32."""
    packed = tuple(values)
    return struct.pack(f"<{len(packed)}f", *packed)


def unpack_floats(content: bytes) -> Sequence[float]:
    """Return the float32 numbers of a content; empty if its length is not a multiple of 4."""
    return struct.unpack(f"<{len(content) // 4}f", content) if len(content) % 4 == 0 else ()


def pack_messages(messages: Iterable[tuple[int, bytes]]) -> bytes:
    """Return the content of a radio frame for (link, message) pairs."""
    return b"".join(_LINK_HEADER.pack(link, len(message)) + message for link, message in messages)


def unpack_messages(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the (link, message) pairs of a radio frame; `link` is the sender's number.

    A truncated last message is yielded as it is; fewer bytes than a link header are ignored.
    """
    offset = 0
    while offset + _LINK_HEADER.size <= len(content):
        link, length = _LINK_HEADER.unpack_from(content, offset)
        offset += _LINK_HEADER.size
        yield link, content[offset : offset + length]
        offset += length
