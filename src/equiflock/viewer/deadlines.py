"""Protocols that close a connection if a request or message is not complete within TIMEOUT_SECONDS."""

from __future__ import annotations

import asyncio

import h11
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

TIMEOUT_SECONDS = 10.0
"""Time allowed from the first byte of a request or message to its last, and from connecting to the first byte."""
EXTENDED_LENGTH_BYTES = {126: 2, 127: 8}
"""Size in bytes of the extended payload length, by the value of the 7-bit length field."""
FIRST_CONTROL_OPCODE = 8
"""First opcode of control frames, such as pings, which are not part of a message."""


class Deadline:
    """A timer on the running event loop that aborts a connection after TIMEOUT_SECONDS unless it is cancelled."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._timer: asyncio.TimerHandle | None = None

    def update(self, is_complete: bool) -> None:
        """Stop the timer if the request or message is complete, else start it.

        A running timer continues, so a client that sends byte by byte gets no extra time.
        """
        if not is_complete and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TIMEOUT_SECONDS, self._transport.abort)
        elif is_complete and self._timer is not None:
            self._timer.cancel()
            self._timer = None


class TimeoutHttpProtocol(H11Protocol):
    """HTTP protocol that aborts a connection if a request is not complete within TIMEOUT_SECONDS.

    Uvicorn limits the time between two requests, but not the duration of one.
    """

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # Start the timer at once, for a client that sends nothing.
        super().connection_made(transport)
        self._deadline = Deadline(transport)
        self._deadline.update(is_complete=False)

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # After an upgrade the websocket has a separate deadline. A request is complete once head and body are received.
        upgraded = self.transport.get_protocol() is not self
        self._deadline.update(upgraded or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY))

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.update(is_complete=True)
        super().connection_lost(exc)


class TimeoutWebSocketProtocol(WebSocketsSansIOProtocol):
    """Websocket protocol that aborts a connection if a message is not complete within TIMEOUT_SECONDS.

    No timer runs between messages, so an idle connection stays open.
    """

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._deadline = Deadline(self.transport)
        self._boundaries = MessageBoundaryTracker()

    @override
    def data_received(self, data: bytes) -> None:
        # Before the handshake the data are the HTTP request for the upgrade, not frames.
        if self.handshake_initiated:
            self._boundaries.feed(data)
        super().data_received(data)
        self._deadline.update(self._boundaries.is_between_messages)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.update(is_complete=True)
        super().connection_lost(exc)


class MessageBoundaryTracker:
    """Parses a stream of websocket frames (RFC 6455, section 5.2) as far as needed to find the ends of messages."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._remaining_bytes = 0
        """Missing bytes of the current frame's payload."""
        self._is_message_incomplete = False
        """Whether the current message continues in another frame."""

    @property
    def is_between_messages(self) -> bool:
        """Whether no frame or message is incomplete after the bytes so far; True at the start."""
        return not (self._header or self._remaining_bytes or self._is_message_incomplete)

    def feed(self, data: bytes) -> None:
        """Process the next bytes of the stream, which may start and end anywhere in a frame; payloads are skipped."""
        at = 0
        while at < len(data):
            # Payload: skip what is available.
            if self._remaining_bytes:
                skipped = min(self._remaining_bytes, len(data) - at)
                self._remaining_bytes -= skipped
                at += skipped
                continue
            # Header: collect it byte by byte, as its second byte determines its size.
            self._header.append(data[at])
            at += 1
            if len(self._header) >= 2 and len(self._header) == self._compute_header_size():
                self._parse_header()

    def _compute_header_size(self) -> int:
        """Return the size of the header in bytes: 2, plus 2 or 8 for an extended length, plus 4 for a mask."""
        masked, length = self._header[1] & 0x80, self._header[1] & 0x7F
        return 2 + EXTENDED_LENGTH_BYTES.get(length, 0) + (4 if masked else 0)

    def _parse_header(self) -> None:
        """Set the payload's length and whether the message continues after this frame; then clear the header."""
        final, opcode = bool(self._header[0] & 0x80), self._header[0] & 0x0F
        length = self._header[1] & 0x7F
        extended = EXTENDED_LENGTH_BYTES.get(length, 0)
        self._remaining_bytes = int.from_bytes(self._header[2 : 2 + extended], "big") if extended else length
        # Control frames may occur between the frames of a message, and do not end it.
        if opcode < FIRST_CONTROL_OPCODE:
            self._is_message_incomplete = not final
        self._header.clear()
