"""What a page asks for, and how it is answered."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import equiflock as ef
from equiflock.viewer.flight_archive import FlightArchive
from equiflock.viewer.session import Session
from equiflock.viewer.viewer_config import ViewerConfig
from tests.viewer.servers import Page, Running, running, wait_until


def test_a_page_flies_a_flock_and_gets_a_frame_for_every_request(page: Page) -> None:
    assert page.welcome["is"] == "welcome"
    assert {"tanner", "tanner-dynamic"} <= {law["name"] for law in page.welcome["laws"]}
    frame = page.start(agents=25)
    assert (frame.step, len(frame.panels), len(frame.panels[0].roles)) == (0, 1, 25)
    later = page.fly(3)
    expected = ef.simulate(ef.random_disk(agents=25), ef.load("tanner"), duration=0.03)
    assert np.allclose(later.panels[0].positions, expected.positions[-1, 0], atol=1e-5)
    assert len(page.ask("show", edges=True).panels[0].edges) > 0


@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize(
    "message",
    ["", "x", "[]", "null", "{}", '{"do": 1}', '{"do": "fly"}', '{"do": "advance"}', '{"do": "advance", "steps": 1e99}',
     '{"do": "advance", "steps": -1}', '{"do": "steer", "velocity": [NaN, 0]}', '{"do": "steer", "velocity": [1]}',
     '{"do": "start", "setting": {"agents": 1000000}}', '{"do": "start", "setting": {"controller": "/etc/passwd"}}',
     '{"do": "start", "setting": {"controller": "../x.safetensors"}}',
     '{"do": "start", "setting": {"comm_radius": 0.1}}',
     '{"do": "start", "setting": {"scenario": "chaos"}}', '{"do": "start", "setting": {"options": {"sides": 3}}}',
     '{"do": "start", "setting": {"scenario": "obstacles", "options": {"sides": 2}}}',
     '{"do": "start", "setting": {"scenario": "obstacles", "options": {"sides": [[]]}}}',
     '{"do": "lift", "number": 99}', '{"do": "seek", "frame": 3}', '{"do": "play"}', '{"do": "scatter", "more": 1}',
     '{"do": "world"}', '{"do": "world", "world": {"loss": 2}}', '{"do": "world", "world": {"loss": NaN}}',
     '{"do": "world", "world": {"delay": 1e9}}', '{"do": "world", "world": {"body": "unicycle", "lag": 1}}',
     '{"do": "world", "world": {"body": "../x"}}', '{"do": "start", "setting": {"world": {"noise": -1}}}',
     '{"do": "law", "options": {"clamp": -1}}', '{"do": "law", "options": {"clamp": NaN}}',
     '{"do": "law", "options": {"clamp": 1e300}}', '{"do": "law", "options": {"clamp": "all"}}',
     '{"do": "law", "options": {"clamp": [1]}}', '{"do": "law", "options": {"gain": 1}}', '{"do": "law"}',
     '{"do": "law", "options": {"potential": "../x"}}', '{"do": "law", "options": {"time_scale": 2}}',
     '{"do": "law", "options": {"name": "etdagnn"}}', '{"do": "law", "options": {"clamp": 1}, "panel": 1}',
     '{"do": "start", "setting": {"controller_options": {"hops": 2}}}',
     '{"do": "start", "setting": {"compare_options": {"clamp": 2}}}',
     '{"do": "start", "setting": {"controller": "tanner:clamp=0"}}',
     '{"do": "fail", "kind": "asleep"}', '{"do": "fail", "kind": "stopped", "agents": 0}',
     '{"do": "fail", "kind": "stopped", "agents": 1e99}', '{"do": "repair", "agents": 1}',
     '{"do": "remove", "at": [[0, 0]], "reach": 1, "panel": 7}', "\x00", "{" * 5000],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_line_and_the_flight_goes_on(page: Page, message: str) -> None:
    page.start()
    page.connection.send(message)
    answer = page.read()
    assert answer["is"] == "refused"
    assert answer["text"]
    assert "\n" not in answer["text"]
    assert page.fly(2).step == 2


def test_nothing_can_be_done_before_a_flight_was_started(page: Page) -> None:
    for request in ({"do": "advance", "steps": 1}, {"do": "save"}, {"do": "scatter"}):
        answer = page.ask(**request)
        assert answer["is"] == "refused"
        assert "start a flight first" in answer["text"]


def test_what_is_done_to_a_flight_shows_in_its_next_frame(page: Page) -> None:
    before = page.start(scenario="leaders")
    leader = int(np.flatnonzero(before.panels[0].roles == ef.Role.LEADER)[0])
    x, y = before.panels[0].positions[3].tolist()
    for request in (
        {"do": "steer", "velocity": [1, 2]},
        {"do": "drop", "disk": {"x": 9, "y": 9, "radius": 0.5}},
        {"do": "move", "number": 0, "at": [8, 8]},
        {"do": "orbit", "active": False},
        {"do": "remove", "at": [[x, y], [1000, 1000]], "reach": 1e-3},
    ):
        assert page.ask(**request) == {"is": "done"}
    (shown,) = page.fly(0).panels
    assert (shown.roles != ef.Role.OBSTACLE).sum() == 19
    assert np.allclose(shown.disks, [[8, 8, 0.5]])
    assert np.allclose(shown.velocities[leader - (leader > 3)], [1, 2])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = ["start", "cancel", "advance", "seek", "show", "steer", "lead", "remove", "drop", "move", "lift", "orbit"]


NAMES += ["scatter", "appoint", "world", "fail", "repair"]


FIELDS = ["setting", "steps", "frame", "edges", "velocity", "at", "panel", "reach", "disk", "number", "active", "agent"]


FIELDS += ["world", "kind", "agents"]


POINTS = st.lists(st.floats(-30, 30), min_size=2, max_size=2)
SENSIBLE = st.one_of(
    st.builds(lambda n: {"do": "advance", "steps": n}, st.integers(0, 3)),
    st.builds(lambda v: {"do": "steer", "velocity": v}, st.lists(st.floats(-9, 9), min_size=2, max_size=2)),
    st.builds(lambda at: {"do": "lead", "at": at, "reach": 5}, POINTS),
    st.builds(lambda at, r: {"do": "remove", "at": [at], "reach": r}, POINTS, st.floats(0.01, 40)),
    st.builds(lambda at: {"do": "drop", "disk": {"x": at[0], "y": at[1], "radius": 0.3}}, POINTS),
    st.builds(lambda n, at: {"do": "move", "number": n, "at": at}, st.integers(0, 3), POINTS),
    st.builds(lambda n: {"do": "lift", "number": n}, st.integers(0, 3)),
    st.just({"do": "scatter"}),
    st.just({"do": "cancel"}),
    st.builds(lambda n: {"do": "appoint", "agent": n}, st.integers(0, 40)),
    st.builds(lambda p, d: {"do": "world", "world": {"loss": p, "delay": d}}, st.floats(0, 1), st.integers(0, 3)),
    st.builds(lambda a: {"do": "world", "world": {"body": "unicycle", "max_acceleration": a}}, st.floats(1, 300)),
    st.builds(
        lambda kind, n: {"do": "fail", "kind": kind, "agents": n},
        st.sampled_from(["silent", "stopped", "drifting"]),
        st.integers(1, 30),
    ),
    st.just({"do": "repair"}),
    st.just({"do": "show", "edges": True}),
)
STRANGE = st.builds(
    lambda do, fields: {"do": do, **fields},
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4),
)


@pytest.mark.slow
@settings(max_examples=40)
@given(messages=st.lists(SENSIBLE | STRANGE | st.text(max_size=30) | st.binary(max_size=9), max_size=15))
def test_whatever_is_sent_the_server_answers_and_goes_on(server: Running, messages: list[object]) -> None:
    with server.page() as page:
        page.start()
        for message in messages:
            page.connection.send(json.dumps(message) if isinstance(message, dict) else message)
        for answer in [page.read() for _ in messages]:
            assert not isinstance(answer, dict) or answer["is"] in ("refused", "cancelled", "started", "done"), answer
        assert page.start().step == 0
    wait_until(lambda: not server.sessions)


def test_a_controller_that_breaks_down_in_flight_ends_the_flight_and_the_next_one_starts(own_registry: None) -> None:
    class Late:
        senses = ef.paper_senses("mean", hops=1)

        def __init__(self) -> None:
            self.left = 3

        def __call__(self, observations: np.ndarray) -> np.ndarray:
            self.left -= 1
            if self.left < 0:
                raise ZeroDivisionError("no fuel")
            return np.zeros((*observations.shape[:2], 2))

    @ef.controller("nan")
    def nan(observations: np.ndarray) -> np.ndarray:
        return observations[:, :, 0, 0] * np.nan

    ef.controller("late")(Late)
    with running() as server, server.page() as page:
        page.start(controller="late")
        answer = page.ask("advance", steps=10)
        assert answer == {"is": "failed", "text": "ZeroDivisionError: no fuel"}
        assert "start a flight first" in page.ask("advance", steps=1)["text"]
        assert page.start(controller="late").step == 0
        answer = page.ask("start", setting={"controller": "nan"})
        assert answer["is"] == "refused"
        assert "NaN" in answer["text"]


def test_saved_flights_are_played_and_cannot_be_touched() -> None:
    run = ef.simulate(ef.random_disk(flocks=2, agents=12), ef.load("tanner"), duration=0.1)
    with running(ViewerConfig(flights=[run])) as server, server.page() as page:
        assert page.welcome["flocks"] == 2
        told = page.ask("play", flock=1)["playback"]
        assert told["times"] == run.times.tolist()
        frame = page.ask("seek", frame=7)
        assert frame.time == run.times[7]
        assert np.allclose(frame.panels[0].positions, run.positions[7, 1], atol=1e-5)
        assert "only be looked at" in page.ask("scatter")["text"]
        assert "flock must be below 2" in page.ask("play", flock=2)["text"]


def test_a_session_answers_without_a_server_too() -> None:
    session = Session(ViewerConfig(), ThreadPoolExecutor(1), FlightArchive(Path("unused")))
    assert session.answer('{"do": "start", "setting": {"controller": "tanner"}}')["is"] == "started"  # type: ignore[index,call-overload]
    assert isinstance(session.answer('{"do": "advance", "steps": 1}'), bytes)
