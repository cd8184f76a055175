"""Connections with incomplete requests or messages are closed in time."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from equiflock.viewer import deadlines
from equiflock.viewer.deadlines import MessageBoundaryTracker
from equiflock.viewer.setting import Setting
from equiflock.viewer.viewer_config import ViewerConfig
from tests.viewer.servers import HOST, Running, running

LIMIT = 0.6


@pytest.fixture(scope="module")
def impatient() -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deadlines, "TIMEOUT_SECONDS", LIMIT)
        with running(ViewerConfig(Setting(agents=10, controller="tanner"))) as server:
            yield server


def seconds_until_closed(connection: socket.socket, most: float = 8.0) -> float:
    """Read a connection until the server closes it; return the seconds that took."""
    begun = time.monotonic()
    connection.settimeout(most)
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return time.monotonic() - begun


def connect(server: Running) -> socket.socket:
    return socket.create_connection((HOST, server.port))


def whole(server: Running) -> bytes:
    return f"GET /icon.svg HTTP/1.1\r\nHost: {HOST}:{server.port}\r\n\r\n".encode()


def handshake(server: Running) -> bytes:
    name = f"{HOST}:{server.port}"
    lines = ["GET /flight HTTP/1.1", f"Host: {name}", f"Origin: http://{name}", "Connection: Upgrade"]
    lines += ["Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.mark.parametrize(
    "begun", ["", "G", "GET / HTTP/1.1\r\nHost: 127", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\nhalf"]
)
def test_an_incomplete_request_times_out(impatient: Running, begun: str) -> None:
    with connect(impatient) as connection:
        connection.sendall(begun.encode())
        assert 0.5 * LIMIT < seconds_until_closed(connection) < LIMIT + 2


def test_sending_byte_by_byte_gives_no_extra_time(impatient: Running) -> None:
    begun = time.monotonic()
    with connect(impatient) as connection:
        with pytest.raises(OSError):
            for byte in b"GET / HTTP/1.1\r\nX: " + b"x" * 100:
                connection.sendall(bytes([byte]))
                time.sleep(0.1)
        assert time.monotonic() - begun < LIMIT + 2


def test_an_incomplete_second_request_times_out(impatient: Running) -> None:
    with connect(impatient) as connection:
        connection.sendall(whole(impatient))
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        time.sleep(1.5 * LIMIT)  # uvicorn limits the time between two requests
        connection.sendall(whole(impatient)[:20])
        assert seconds_until_closed(connection) < LIMIT + 2


def test_an_incomplete_handshake_times_out(impatient: Running) -> None:
    with connect(impatient) as connection:
        connection.sendall(handshake(impatient)[:-4])
        assert seconds_until_closed(connection) < LIMIT + 2


@pytest.mark.parametrize("part", [1, 2, 5, 7, -1])
def test_an_incomplete_message_times_out(impatient: Running, part: int) -> None:
    frame = Frame(Opcode.TEXT, b'{"command": "cancel"}').serialize(mask=True)
    with connect(impatient) as connection:
        connection.sendall(handshake(impatient))
        assert connection.recv(65536).startswith(b"HTTP/1.1 101")
        time.sleep(1.5 * LIMIT)
        connection.sendall(frame)
        connection.sendall(frame[:part])
        assert seconds_until_closed(connection) < LIMIT + 2


def test_an_idle_page_stays_connected(impatient: Running) -> None:
    with impatient.page() as page:
        page.start()
        time.sleep(3 * LIMIT)
        assert page.fly(2).step == 2


FRAMES = st.lists(
    st.one_of(
        st.builds(lambda data, fin: Frame(Opcode.BINARY, data, fin), st.binary(max_size=300), st.booleans()),
        st.builds(lambda fin: Frame(Opcode.CONT, b"more", fin), st.booleans()),
        st.just(Frame(Opcode.BINARY, bytes(70_000))),
        st.just(Frame(Opcode.PING, b"there?")),
    ),
    max_size=5,
)


@given(frames=FRAMES, mask=st.booleans(), cut=st.integers(1, 4000))
def test_message_boundaries_are_found_for_any_split_of_the_bytes(frames: list[Frame], mask: bool, cut: int) -> None:
    meter, unfinished = MessageBoundaryTracker(), False
    for frame in frames:
        content = frame.serialize(mask=mask)
        for at in range(0, len(content), cut):
            if at:
                assert not meter.is_between_messages
            meter.feed(content[at : at + cut])
        if frame.opcode is not Opcode.PING:
            unfinished = not frame.fin
        assert meter.is_between_messages is not unfinished
