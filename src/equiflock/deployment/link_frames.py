"""The link between the host of a swarm and its robots: zenoh sessions, frames, and the robots' reports.

Robot processes import this file, so it has few imports. Robot i has two zenoh keys: `KEY_PREFIX/to/i` for frames to the
robot and `KEY_PREFIX/from/i` for frames to the host. A frame is a letter, the step as uint32, and its content,
little-endian; on the wire a sequence number and a tag follow (see `equiflock.deployment.frame_authentication`):

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

import json
import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

SENSOR, RADIO, RADIO_LAST, END, HELLO, MESSAGE, COMMAND, REPORT = (ord(letter) for letter in "SRLXHAMZ")
MESSAGE_HEADER = struct.Struct("<2sBBII")
"""Header of an agent's message: EF, version, group, sender, step (see `equiflock.deployment.wire_format`)."""
COMPACT_VERSION = 2
"""Version of messages whose sender and step have 16 bits, at bytes 4 and 6."""
_FRAME_HEADER = struct.Struct("<BI")
_LINK_HEADER = struct.Struct("<II")


def open_session(role: Literal["listen", "connect"], endpoint: str) -> Any:
    """Open a zenoh session: the host listens at the endpoint, robots connect to it and listen nowhere.

    There is no discovery of peers, and no shared memory, whose files would outlive a killed process.
    """
    import zenoh

    config = {
        "mode": "peer",
        # By default zenoh listens on all interfaces.
        "listen": {"endpoints": []},
        "connect": {"endpoints": []},
        "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": False}},
        "transport": {"shared_memory": {"enabled": False}},
    }
    config[role] = {"endpoints": [endpoint]}
    return zenoh.open(zenoh.Config.from_json5(json.dumps(config)))


def declare_publisher(session: Any, key: str) -> Any:
    """Return a publisher that sends at once, and blocks rather than drops frames if the receiver is slow."""
    import zenoh

    return session.declare_publisher(key, congestion_control=zenoh.CongestionControl.BLOCK, express=True)


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


def read_sender(message: bytes, step: int) -> tuple[int, int] | None:
    """Return the sender of a message that arrived at `step`, and the step at which it was sent; None if it is short."""
    if len(message) < MESSAGE_HEADER.size:
        return None
    if message[2] == COMPACT_VERSION:
        sender, sent = struct.unpack_from("<HH", message, 4)
        return sender, step - (step - sent) % 2**16
    _, _, _, sender, sent = MESSAGE_HEADER.unpack_from(message)
    return sender, sent


def pack_messages(messages: Iterable[tuple[int, bytes]]) -> bytes:
    """Return the content of a radio frame for (link, message) pairs; `link` is the sender's number."""
    return b"".join(_LINK_HEADER.pack(link, len(message)) + message for link, message in messages)


def unpack_messages(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the (link, message) pairs of a radio frame.

    A truncated last message is yielded as it is; fewer bytes than a link header are ignored.
    """
    offset = 0
    while offset + _LINK_HEADER.size <= len(content):
        link, length = _LINK_HEADER.unpack_from(content, offset)
        offset += _LINK_HEADER.size
        yield link, content[offset : offset + length]
        offset += length


@dataclass(frozen=True)
class RobotReport:
    """Statistics that a robot sends to its host at the end of the flight."""

    dropped: dict[str, int]
    """Dropped messages by reason."""
    rejected: dict[str, int]
    """Frames that were not authentic and new, by reason."""
    ages: dict[str, int]
    """Used messages by age in steps."""
    seconds: list[float]
    """Computing times of the steps."""
    peak_memory_kib: int
    received_sha256: str
    """SHA-256 of all accepted frames, without sequence numbers and tags, as hexadecimal digits."""

    def to_json(self) -> bytes:
        """Return the report as JSON."""
        return json.dumps(asdict(self)).encode()


def parse_report(content: bytes) -> RobotReport | None:
    """Return the report that a robot sent, or None if it is not JSON with valid values in exactly these fields."""
    try:
        report = RobotReport(**json.loads(content))
        is_valid = (
            all(map(_is_count, [*report.dropped.values(), *report.rejected.values(), *report.ages.values()]))
            and _is_count(report.peak_memory_kib)
            and all(age.isdecimal() for age in report.ages)
            and all(isinstance(each, float) and math.isfinite(each) for each in report.seconds)
            and isinstance(report.received_sha256, str)
        )
    # A broken robot may send invalid UTF-8, invalid JSON, other fields, or values of other types.
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return report if is_valid else None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
