"""A search for a start goes on beside everything else that a page asks for, and ends when nobody waits for it."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest
from websockets.exceptions import ConnectionClosed

from equiflock.runtime.checks import InputError
from equiflock.viewer.session import CLOSE_POLICY_VIOLATION, MAX_PENDING_REQUESTS
from equiflock.viewer.setting import Setting
from tests.viewer.servers import Page, Running, wait_until

HOPELESS = {"controller": "tanner", "agents": 400, "comm_radius": 0.1}
LONG = 20.0
"""Seconds that a search for it takes in these tests, if nobody stops it."""
SOON = 2.0


class Searches:
    """When a search for a start began, and when it ended."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Searches:
    """Makes searches in vain last, by searching again and again."""
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
                    if "no start was found" not in str(error) or time.monotonic() > end:
                        raise
        finally:
            found.ended.set()

    monkeypatch.setattr(Setting, "draw", draw)
    return found


def send(page: Page, do: str, **fields: object) -> None:
    """Ask without waiting for the answer."""
    page.connection.send(json.dumps({"do": do, **fields}))


def send_search(page: Page, searches: Searches) -> None:
    """Ask for a start that there is none of, and wait until it is searched for."""
    searches.begun.clear()
    searches.ended.clear()
    send(page, "start", setting=HOPELESS)
    assert searches.begun.wait(20)


def test_a_search_that_is_cancelled_ends_at_once_and_each_request_has_its_answer(
    page: Page, searches: Searches
) -> None:
    page.start(agents=20)
    page.fly(3)
    send_search(page, searches)
    asked = time.monotonic()
    send(page, "advance", steps=0)
    send(page, "cancel")
    answers = [page.read() for _ in range(3)]
    assert time.monotonic() - asked < SOON
    assert answers[0] == {"is": "cancelled", "text": "the search was cancelled"}
    assert (answers[1].step, len(answers[1].panels[0].roles)) == (3, 20)  # what flew before flies on
    assert answers[2] == {"is": "done"}
    assert searches.ended.wait(1)
    assert page.ask("cancel") == {"is": "done"}  # with nothing to cancel
    assert page.fly(5).step == 5


def test_another_start_ends_the_search_for_the_one_before(page: Page, searches: Searches) -> None:
    send_search(page, searches)
    asked = time.monotonic()
    assert page.ask("start", setting={"controller": "tanner"})["is"] == "cancelled"
    assert page.read()["is"] == "started"
    assert time.monotonic() - asked < SOON
    assert page.fly(2).step == 2


def test_a_start_that_makes_no_sense_ends_no_search(page: Page, searches: Searches) -> None:
    send_search(page, searches)
    send(page, "start", setting={"agents": -1})
    send(page, "fly")
    assert not searches.ended.wait(0.3)
    send(page, "cancel")
    assert [page.read()["is"] for _ in range(4)] == ["cancelled", "refused", "refused", "done"]


def test_a_page_that_goes_away_frees_its_place_at_once_and_its_search_ends(server: Running, searches: Searches) -> None:
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


def test_a_page_that_never_waits_for_answers_is_sent_away(server: Running, searches: Searches) -> None:
    with server.page() as page:
        send_search(page, searches)
        with pytest.raises(ConnectionClosed) as closed:
            for _ in range(MAX_PENDING_REQUESTS + 1):
                send(page, "advance", steps=0)
            page.read()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == CLOSE_POLICY_VIOLATION
        wait_until(lambda: not server.sessions)


def test_a_page_that_waits_is_told_how_far_the_compiler_is(
    page: Page, searches: Searches, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_search(page, searches)
    monkeypatch.setattr("equiflock.runtime.compile_progress.format_progress", lambda: "compiling kernels: 3 of 5")
    assert page.read() == {"is": "compiling", "text": "compiling kernels: 3 of 5"}
    monkeypatch.undo()
    send(page, "cancel")
    # What was under way when the compiler was done may still come.
    answers = [page.read()["is"] for _ in range(2)]
    while answers[-1] != "done":
        answers.append(page.read()["is"])
    assert answers[-2:] == ["cancelled", "done"]
