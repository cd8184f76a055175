"""What the world of a swarm and its robots tell each other, as bytes. Robots import this file, so it imports little.

A robot of number i has two keys: `RUN/to/i`, on which the world tells it what it measures and what reaches it by radio,
and `RUN/from/i`, on which it tells the world. A frame is a letter, the number of a step as uint32, and what belongs to
it, little-endian:

    S  sensor   to a robot     position and velocity, 2 D x float32
    R  radio    to a robot     messages, each after the number of the link it came by and its length, 2 x uint32
    L  last     to a robot     the same, and there is no more for this step (in lockstep)
    X  end      to a robot     nothing: it sends its report
    H  hello    to the world   nothing: it is there
    A  air      to the world   its message, as it sends it
    M  motor    to the world   its acceleration, D x float32
    Z  report   to the world   JSON, with what it counted
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

SENSOR, RADIO, RADIO_LAST, END, HELLO, MESSAGE, COMMAND, REPORT = (ord(letter) for letter in "SRLXHAMZ")
_FRAME_HEADER = struct.Struct("<BI")
_LINK_HEADER = struct.Struct("<II")


def pack_frame(kind: int, step: int = 0, content: bytes = b"") -> bytes:
    """A frame."""
    return _FRAME_HEADER.pack(kind, step) + content


def unpack_frame(data: bytes) -> tuple[int, int, bytes]:
    """The kind of a frame, its step and its content; kind 0 for what is none."""
    if len(data) < _FRAME_HEADER.size:
        return 0, 0, b""
    kind, step = _FRAME_HEADER.unpack_from(data)
    return kind, step, data[_FRAME_HEADER.size :]


def pack_floats(values: Iterable[float]) -> bytes:
    """Numbers as float32."""
    packed = tuple(values)
    return struct.pack(f"<{len(packed)}f", *packed)


def unpack_floats(content: bytes) -> Sequence[float]:
    """The numbers in a frame; none if it is no row of float32."""
    return struct.unpack(f"<{len(content) // 4}f", content) if len(content) % 4 == 0 else ()


def pack_messages(messages: Iterable[tuple[int, bytes]]) -> bytes:
    """Messages with the numbers of the links that they came by."""
    return b"".join(_LINK_HEADER.pack(link, len(message)) + message for link, message in messages)


def unpack_messages(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The messages in a frame of the radio, with the numbers of their links."""
    at = 0
    while at + _LINK_HEADER.size <= len(content):
        link, length = _LINK_HEADER.unpack_from(content, at)
        at += _LINK_HEADER.size
        yield link, content[at : at + length]
        at += length
