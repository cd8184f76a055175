"""Closes connections on which a request, or a message, was begun but is not complete within MOST_SECONDS.

Uvicorn limits the time between two requests, but not that of one.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

TIMEOUT_SECONDS = 10.0
"""The longest time from the first byte of a request or message to its last, or from connecting to the first byte."""
EXTENDED_LENGTH_BYTES = {126: 2, 127: 8}
"""Two values of a frame's 7-bit length field say that its true length follows, in this many bytes."""
FIRST_CONTROL_OPCODE = 8
"""The first operation code of frames that are no part of a message, such as a ping."""


class Deadline:
    """A timer that closes a connection after MOST_SECONDS, unless what was awaited has come."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the timer unless it runs already, so that whoever sends byte by byte gets no more time."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TIMEOUT_SECONDS, self._transport.abort)

    def cancel(self) -> None:
        """Stop the timer: what was awaited is there."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def update(self, is_complete: bool) -> None:
        """Stop the timer if what was awaited is there, else start it."""
        if is_complete:
            self.cancel()
        else:
            self.start()


class TimeoutHttpProtocol(H11Protocol):
    """HTTP where a connection is closed if a request is not complete in time."""

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = Deadline(transport)
        self._deadline.start()

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # A websocket has a deadline of its own. A request is complete when its sender owes neither head nor body.
        upgraded = self.transport.get_protocol() is not self
        self._deadline.update(upgraded or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY))

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)


class TimeoutWebSocketProtocol(WebSocketsSansIOProtocol):
    """A websocket where a message must be complete in time once it was begun; without one it may stay open for ever."""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._deadline = Deadline(self.transport)
        self._boundaries = MessageBoundaryTracker()

    @override
    def data_received(self, data: bytes) -> None:
        # What comes before is the HTTP request that asks for the websocket, not frames.
        if self.handshake_initiated:
            self._boundaries.feed(data)
        super().data_received(data)
        self._deadline.update(self._boundaries.is_between_messages)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)


class MessageBoundaryTracker:
    """Follows a stream of websocket frames (RFC 6455, section 5.2), only to know where messages end."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._remaining_bytes = 0
        """Bytes of the present frame's payload that are still to come."""
        self._is_message_incomplete = False
        """Whether the present message has more frames to come."""

    @property
    def is_between_messages(self) -> bool:
        """Whether no frame and no message is incomplete."""
        return not (self._header or self._remaining_bytes or self._is_message_incomplete)

    def feed(self, data: bytes) -> None:
        """Follow the next bytes of the stream, which may end anywhere in a frame."""
        at = 0
        while at < len(data):
            # Payload: skip as much of it as is there.
            if self._remaining_bytes:
                taken = min(self._remaining_bytes, len(data) - at)
                self._remaining_bytes -= taken
                at += taken
                continue
            # Header: collect it byte by byte, as its second byte says how long it is.
            self._header.append(data[at])
            at += 1
            if len(self._header) >= 2 and len(self._header) == self._compute_header_size():
                self._parse_header()

    def _compute_header_size(self) -> int:
        """Two bytes, those of a longer length, and four of the mask if there is one."""
        masked, length = self._header[1] & 0x80, self._header[1] & 0x7F
        return 2 + EXTENDED_LENGTH_BYTES.get(length, 0) + (4 if masked else 0)

    def _parse_header(self) -> None:
        """Read a complete header: how long the payload is, and whether the message goes on after this frame."""
        final, code = bool(self._header[0] & 0x80), self._header[0] & 0x0F
        length = self._header[1] & 0x7F
        more = EXTENDED_LENGTH_BYTES.get(length, 0)
        self._remaining_bytes = int.from_bytes(self._header[2 : 2 + more], "big") if more else length
        # Control frames may come between the frames of a message and end none.
        if code < FIRST_CONTROL_OPCODE:
            self._is_message_incomplete = not final
        self._header.clear()


PROTOCOLS: dict[str, Any] = {"http": TimeoutHttpProtocol, "ws": TimeoutWebSocketProtocol}
"""The two protocols as options of uvicorn."""
