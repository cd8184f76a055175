"""Authentication of frames between the host of a swarm and its robots: sequence numbers and HMAC-SHA-256 tags.

A signed frame is the frame, its sequence number as uint64, and a tag of 16 bytes, little-endian. Each robot has two
keys, one per direction, which the host derives from the random key of the run. A robot knows only its own two, so it
can forge neither frames of the host to other robots nor frames of other robots. Keys are new in every run and sequence
numbers increase, so a recorded frame is rejected when it is sent again.

Robot processes import this file, so it has few imports.
"""

from __future__ import annotations

import hmac
import struct
import threading
from collections import Counter
from typing import NamedTuple

TAG_SIZE = 16
"""Bytes of HMAC-SHA-256 that are sent."""
_SEQUENCE_NUMBER = struct.Struct("<Q")
OVERHEAD = _SEQUENCE_NUMBER.size + TAG_SIZE
"""Bytes that authentication adds to a frame."""


class LinkKeys(NamedTuple):
    """The keys of a robot's link."""

    to_robot: bytes
    to_host: bytes


def derive_keys(run_key: bytes, number: int) -> LinkKeys:
    """Return the keys of a robot's link, HMAC-SHA-256 of direction and robot number with the key of the run."""
    return LinkKeys(
        hmac.digest(run_key, f"to robot {number}".encode(), "sha256"),
        hmac.digest(run_key, f"to host from robot {number}".encode(), "sha256"),
    )


class FrameSigner:
    """Signs the frames of one direction of a link. Not thread-safe."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._sequence_number = 0

    def sign(self, frame: bytes) -> bytes:
        """Return the frame with the next sequence number and its tag."""
        self._sequence_number += 1
        body = frame + _SEQUENCE_NUMBER.pack(self._sequence_number)
        return body + _compute_tag(self._key, body)


class FrameVerifier:
    """Verifies the frames of one direction of a link. Thread-safe, as zenoh has a thread per connection."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._last_sequence_number = 0
        self._lock = threading.Lock()
        self.rejected: Counter[str] = Counter()
        """Number of rejected frames by reason."""

    def verify(self, data: bytes) -> bytes | None:
        """Return the frame without sequence number and tag, or None, and count it, if it is not authentic and new."""
        reason = None
        with self._lock:
            if len(data) < OVERHEAD:
                reason = "too short"
            elif not hmac.compare_digest(_compute_tag(self._key, data[:-TAG_SIZE]), data[-TAG_SIZE:]):
                reason = "wrong authentication tag"
            else:
                (sequence_number,) = _SEQUENCE_NUMBER.unpack_from(data, len(data) - OVERHEAD)
                if sequence_number <= self._last_sequence_number:
                    reason = "replayed or out of order"
                else:
                    self._last_sequence_number = sequence_number
            if reason is not None:
                self.rejected[reason] += 1
        return None if reason is not None else data[:-OVERHEAD]


def _compute_tag(key: bytes, body: bytes) -> bytes:
    return hmac.digest(key, body, "sha256")[:TAG_SIZE]
