"""Closes connections on which a request, or a message, was begun and does not end within a while.

Uvicorn limits the time between two requests, but not that of one.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

MOST_SECONDS = 10.0
"""From the first byte of a request or message to its last, or from the beginning of a connection."""
LENGTH_BYTES = {126: 2, 127: 8}
"""A frame whose 7-bit length is one of these has its true length in so many bytes after it."""
FIRST_CONTROL = 8
"""The first operation code of frames that are no part of a message, such as a ping."""


class Deadline:
    """Closes a connection when a time is over, unless it was met."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start the timer unless it runs already, so that whoever sends byte by byte gets no more time."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(MOST_SECONDS, self._transport.abort)

    def meet(self) -> None:
        """Stop the timer: what was awaited is there."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def follow(self, met: bool) -> None:
        """Stop the timer if what was awaited is there, else start it."""
        if met:
            self.meet()
        else:
            self.begin()


class TimedHttp(H11Protocol):
    """HTTP where a request must be there in time."""

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = Deadline(transport)
        self._deadline.begin()

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        upgraded = self.transport.get_protocol() is not self
        self._deadline.follow(upgraded or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY))

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.meet()
        super().connection_lost(exc)


class TimedWebSocket(WebSocketsSansIOProtocol):
    """A websocket where a message must be there in time once it was begun. Without one it may stay open for ever."""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._deadline = Deadline(self.transport)
        self._meter = FrameMeter()

    @override
    def data_received(self, data: bytes) -> None:
        if self.handshake_initiated:
            self._meter.feed(data)
        super().data_received(data)
        self._deadline.follow(self._meter.between_messages)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.meet()
        super().connection_lost(exc)


class FrameMeter:
    """Follows a stream of websocket frames (RFC 6455, section 5.2) so far as to know where messages end."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._left = 0
        """Bytes of the frame that are still to come, after its header."""
        self._unfinished = False
        """Whether a message lacks frames."""

    @property
    def between_messages(self) -> bool:
        """Whether nothing that was begun is to be continued."""
        return not (self._header or self._left or self._unfinished)

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        at = 0
        while at < len(data):
            if self._left:
                taken = min(self._left, len(data) - at)
                self._left -= taken
                at += taken
                continue
            self._header.append(data[at])
            at += 1
            if len(self._header) >= 2 and len(self._header) == self._header_size():
                self._begin_frame()

    def _header_size(self) -> int:
        masked, length = self._header[1] & 0x80, self._header[1] & 0x7F
        return 2 + LENGTH_BYTES.get(length, 0) + (4 if masked else 0)

    def _begin_frame(self) -> None:
        final, code = bool(self._header[0] & 0x80), self._header[0] & 0x0F
        length = self._header[1] & 0x7F
        more = LENGTH_BYTES.get(length, 0)
        self._left = int.from_bytes(self._header[2 : 2 + more], "big") if more else length
        if code < FIRST_CONTROL:
            self._unfinished = not final
        self._header.clear()


PROTOCOLS: dict[str, Any] = {"http": TimedHttp, "ws": TimedWebSocket}
"""The two protocols as options of uvicorn."""
