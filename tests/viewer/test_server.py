"""The server, run on a real port."""

from __future__ import annotations

import errno
import gc
import json
import re
import socket
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.viewer.protocol import MAX_REQUEST_BYTES
from equiflock.viewer.server import MAX_SESSIONS, open_listening_socket
from equiflock.viewer.setting import Setting
from tests.viewer.servers import HOST, Running, get, wait_until


def test_the_page_is_served_with_all_its_files_and_nothing_from_elsewhere(server: Running) -> None:
    status, headers, content = get(server, "")
    assert status == 200
    assert headers["Content-Security-Policy"].startswith("default-src 'self'")
    assert b"http://" not in content
    assert b"https://" not in content
    for name in ("main.js", "player/scene.js", "player/theme.css", "icon.svg"):
        assert get(server, name)[0] == 200
    assert get(server, "../server.py")[0] == 404
    assert get(server, "%2e%2e/server.py")[0] == 404
    assert get(server, "saved/anything/film.mp4")[0] == 404


def test_the_browser_is_told_all_modules_of_the_page_at_once(server: Running) -> None:
    links = get(server, "")[1]["Link"].split(", ")
    paths = [link.removesuffix(">; rel=modulepreload").removeprefix("</") for link in links]
    assert paths[0] == "main.js"
    assert {"view.js", "player/scene.js", "player/software_lines.js"} < set(paths)
    for path in paths:
        imports = re.findall(r'from "\./(.+)"', get(server, path)[2].decode())
        assert {f"player/{name}" if path.startswith("player/") else name for name in imports} <= set(paths)
    # Small answers are sent at once: asyncio sets TCP_NODELAY if the protocol is given.
    with open_listening_socket(HOST, 9480, lambda port: None) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_a_page_of_another_origin_is_refused(server: Running) -> None:
    elsewhere = "http://evil.example", f"https://127.0.0.1:{server.port}", "http://127.0.0.1:1", "null", ""
    for origin in elsewhere:
        with pytest.raises(InvalidStatus) as refusal, server.page(origin=origin):
            pass
        assert refusal.value.response.status_code == 403
    assert not server.sessions


def test_a_foreign_host_header_is_refused(server: Running) -> None:
    for name in ("evil.example", f"evil.example:{server.port}", "[::1", f"127.0.0.1.evil.example:{server.port}"):
        assert get(server, "", Host=name)[0] == 400
    for name in (f"localhost:{server.port}", "localhost", "LOCALHOST:80", f"[::1]:{server.port}"):
        assert get(server, "", Host=name)[0] == 200


def test_a_tunnel_may_have_another_port(server: Running) -> None:
    assert get(server, "", Host="localhost:9000")[0] == 200
    for origin, host, accepted in (
        ("http://localhost:9000", "localhost:9000", True),
        ("http://localhost:9001", "localhost:9000", False),
        ("http://evil.example:9000", "evil.example:9000", False),
    ):
        with socket.create_connection((HOST, server.port)) as connection:
            lines = ["GET /flight HTTP/1.1", f"Host: {host}", f"Origin: {origin}", "Connection: Upgrade"]
            lines += ["Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
            connection.sendall("\r\n".join([*lines, "", ""]).encode())
            assert connection.recv(100).startswith(b"HTTP/1.1 101" if accepted else b"HTTP/1.1 403")


def test_a_too_long_message_closes_only_its_connection(server: Running) -> None:
    with server.page() as page, server.page() as other:
        other.start()
        page.connection.send("x" * (MAX_REQUEST_BYTES + 1))
        with pytest.raises(ConnectionClosed) as closed:
            page.read()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
        assert other.ask("advance", steps=1).step == 1


@pytest.mark.slow
def test_a_closed_page_frees_its_flight(server: Running) -> None:
    with server.page() as page:
        page.start()
        (session,) = server.sessions
        live_simulation = weakref.ref(session.current)
        del session
        assert live_simulation() is not None
    wait_until(lambda: not server.sessions)

    def freed() -> bool:
        gc.collect()
        return live_simulation() is None

    wait_until(freed)


def test_a_broken_connection_frees_its_flight(server: Running) -> None:
    with server.page() as page:
        page.start()
        page.connection.socket.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: not server.sessions)


@pytest.mark.slow
def test_the_number_of_pages_is_limited(server: Running) -> None:
    opened = [server.page() for _ in range(MAX_SESSIONS)]
    for each in opened:
        each.__enter__()
    try:
        with pytest.raises(ConnectionClosed) as closed, server.page():
            pass
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1013
        assert "close one" in closed.value.rcvd.reason
    finally:
        for each in opened:
            each.__exit__(None, None, None)
    wait_until(lambda: not server.sessions)


def test_large_flocks_in_two_pages_do_not_affect_each_other(server: Running) -> None:
    barrier = threading.Barrier(2)

    def fly(seed: int) -> np.ndarray:
        with server.page() as page:
            page.start(agents=4000, controller="etdagnn", seed=seed)
            barrier.wait(60)
            while (frame := page.ask("advance", steps=1)).step < 15:
                pass
            return frame.panels[0].positions

    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(fly, (0, 1)))
    for seed, positions in enumerate(together):
        start = Setting(agents=4000, seed=seed).draw()
        alone = ef.simulate(start, ef.load("etdagnn"), duration=0.15)
        assert np.allclose(positions, alone.positions[-1, 0], atol=1e-4)


def test_a_page_that_does_not_read_does_not_block_others(server: Running) -> None:
    with server.page() as lazy, server.page() as other:
        lazy.start(agents=2000)
        for _ in range(200):
            lazy.connection.send(json.dumps({"command": "advance", "steps": 1}))
        other.start()
        assert other.fly(5).step == 5


def test_a_port_in_use_is_reported_and_the_next_one_used() -> None:
    busy: list[int] = []
    with open_listening_socket(HOST, 9480, busy.append) as first:
        taken = first.getsockname()[1]
        busy.clear()
        with open_listening_socket(HOST, taken, busy.append) as second:
            assert busy[0] == taken
            assert second.getsockname()[1] > taken
            assert second.getsockname()[0] == HOST


@pytest.mark.parametrize("host", ["0.0.0.0", "", "0", "::", "::ffff:0.0.0.0", "::FFFF:0:0", "0::0"])
def test_wildcard_addresses_are_refused(host: str) -> None:
    with pytest.raises(InputError, match="must be a single address"):
        open_listening_socket(host, 9480, lambda port: None)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(InputError, match="not an address of this machine"):
        open_listening_socket("192.0.2.1", 9480, lambda port: None)


def test_an_error_is_raised_if_all_ports_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object) -> None:
        raise OSError(errno.EADDRINUSE, "in use")

    monkeypatch.setattr(socket.socket, "bind", busy)
    with pytest.raises(InputError, match="all in use"):
        open_listening_socket(HOST, 9480, lambda port: None)
