"""Servers on free ports, and clients that stand in for pages."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from typing import Any

from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from equiflock.viewer.flight_archive import FlightArchive
from equiflock.viewer.server import address, make_server, open_listening_socket
from equiflock.viewer.viewer_config import ViewerConfig
from tests.plotting.player.frame_reader import ReadFrame, read_frame

HOST = "127.0.0.1"


class Running:
    """A server that runs in a thread."""

    def __init__(self, viewer_config: ViewerConfig, port: int) -> None:
        listening = open_listening_socket(HOST, port, lambda port: None)
        self.port = listening.getsockname()[1]
        self.address = address(HOST, self.port)
        self.server = make_server(viewer_config, HOST)
        self.app: Any = self.server.config.app
        self._thread = threading.Thread(target=self.server.run, args=([listening],))
        self._thread.start()
        wait_until(lambda: self.server.started)

    @property
    def sessions(self) -> set[Any]:
        return self.app.state.sessions

    @property
    def archive(self) -> FlightArchive:
        return self.app.state.archive

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive()

    @contextmanager
    def page(self, origin: str | None = None) -> Iterator[Page]:
        given = Origin(self.address.rstrip("/") if origin is None else origin)
        url = f"ws://{HOST}:{self.port}/flight"
        with connect(url, origin=given, max_size=None, compression=None) as connection:
            yield Page(connection)


class Page:
    """Sends requests and reads the answers."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.welcome = self.read()

    def read(self) -> Any:
        answer = self.connection.recv(timeout=60)
        if isinstance(answer, bytes):
            return read_frame(answer)
        message = json.loads(answer)
        return self.read() if message == {"event": "working"} else message

    def ask(self, command: str, **fields: Any) -> Any:
        self.connection.send(json.dumps({"command": command, **fields}))
        return self.read()

    def start(self, **setting: Any) -> ReadFrame:
        answer = self.ask("start", setting={"controller": "tanner", "agents": 20, **setting})
        assert answer["event"] == "started", answer
        return self.fly(0)

    def fly(self, steps: int) -> ReadFrame:
        """Advance to a step, in several requests if the machine is slow."""
        frame: ReadFrame = self.ask("advance", steps=0)
        while frame.step < steps:
            frame = self.ask("advance", steps=int(steps - frame.step))
        return frame


@contextmanager
def running(viewer_config: ViewerConfig | None = None, port: int = 9400) -> Iterator[Running]:
    server = Running(viewer_config or ViewerConfig(), port)
    try:
        yield server
    finally:
        server.stop()


def wait_until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.01)


def get(server: Running, path: str, **headers: str) -> tuple[int, Message, bytes]:
    request = urllib.request.Request(server.address + path, headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()
