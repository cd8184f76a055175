"""The search for initial conditions does not block other requests, and ends when its page no longer waits."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest
from websockets.exceptions import ConnectionClosed

from equiflock._runtime.checks import InputError
from equiflock.viewer.session import CLOSE_POLICY_VIOLATION, MAX_PENDING_REQUESTS
from equiflock.viewer.setting import Setting
from tests.viewer.servers import Page, Running, wait_until

HOPELESS = {"controller": "tanner", "agents": 3, "comm_radius": 0.1}
"""No three agents are within R of each other and at least 0.1 apart."""
LONG = 20.0
"""Seconds that a hopeless search takes in these tests unless it is cancelled."""
SOON = 2.0


class Searches:
    """Events of a search: begun and ended."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Searches:
    """Prolongs hopeless searches by repeating them."""
    found = Searches()
    draw_once = Setting.draw

    def draw(self: Setting, *stop: object) -> object:
        end = time.monotonic() + LONG
        found.begun.set()
        try:
            while True:
                try:
                    return draw_once(self, *stop)
                except InputError as error:
                    if "no initial conditions found" not in str(error) or time.monotonic() > end:
                        raise
        finally:
            found.ended.set()

    monkeypatch.setattr(Setting, "draw", draw)
    return found


def send(page: Page, command: str, **fields: object) -> None:
    """Send a request without waiting for the answer."""
    page.connection.send(json.dumps({"command": command, **fields}))


def send_search(page: Page, searches: Searches) -> None:
    """Request a start that does not exist, and wait until the search runs."""
    searches.begun.clear()
    searches.ended.clear()
    send(page, "start", setting=HOPELESS)
    assert searches.begun.wait(20)


def test_a_cancelled_search_ends_at_once_and_each_request_is_answered(page: Page, searches: Searches) -> None:
    page.start(agents=20)
    page.fly(3)
    send_search(page, searches)
    asked = time.monotonic()
    send(page, "advance", steps=0)
    send(page, "cancel")
    answers = [page.read() for _ in range(3)]
    assert time.monotonic() - asked < SOON
    assert answers[0] == {"event": "cancelled", "text": "the search was cancelled"}
    assert (answers[1].step, len(answers[1].panels[0].roles)) == (3, 20)  # what flew before flies on
    assert answers[2] == {"event": "done"}
    assert searches.ended.wait(1)
    assert page.ask("cancel") == {"event": "done"}  # with nothing to cancel
    assert page.fly(5).step == 5


def test_another_start_cancels_the_previous_search(page: Page, searches: Searches) -> None:
    send_search(page, searches)
    asked = time.monotonic()
    assert page.ask("start", setting={"controller": "tanner"})["event"] == "cancelled"
    assert page.read()["event"] == "started"
    assert time.monotonic() - asked < SOON
    assert page.fly(2).step == 2


def test_an_invalid_start_does_not_cancel_a_search(page: Page, searches: Searches) -> None:
    send_search(page, searches)
    send(page, "start", setting={"agents": -1})
    send(page, "fly")
    assert not searches.ended.wait(0.3)
    send(page, "cancel")
    assert [page.read()["event"] for _ in range(4)] == ["cancelled", "refused", "refused", "done"]


def test_a_closed_page_ends_its_session_and_its_search_at_once(server: Running, searches: Searches) -> None:
    for how in ("closed", "broken"):
        with server.page() as page:
            send_search(page, searches)
            assert len(server.sessions) == 1
            if how == "broken":
                page.connection.socket.shutdown(socket.SHUT_RDWR)
            else:
                page.connection.close()
            wait_until(lambda: not server.sessions, SOON)
            assert searches.ended.wait(SOON)


def test_a_page_with_too_many_pending_requests_is_disconnected(server: Running, searches: Searches) -> None:
    with server.page() as page:
        send_search(page, searches)
        with pytest.raises(ConnectionClosed) as closed:
            for _ in range(MAX_PENDING_REQUESTS + 1):
                send(page, "advance", steps=0)
            page.read()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == CLOSE_POLICY_VIOLATION
        wait_until(lambda: not server.sessions)


def test_a_waiting_page_receives_the_progress_of_the_compiler(
    page: Page, searches: Searches, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_search(page, searches)
    monkeypatch.setattr("equiflock._runtime.compile_progress.format_progress", lambda: "compiling kernels: 3 of 5")
    assert page.read() == {"event": "compiling", "text": "compiling kernels: 3 of 5"}
    monkeypatch.undo()
    send(page, "cancel")
    # What was under way when the compiler was done may still come.
    answers = [page.read()["event"] for _ in range(2)]
    while answers[-1] != "done":
        answers.append(page.read()["event"])
    assert answers[-2:] == ["cancelled", "done"]
