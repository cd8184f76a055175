"""Requests of a page and their answers."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import equiflock as ef
from equiflock.viewer.viewer_config import ViewerConfig
from tests.viewer.servers import Page, Running, running, wait_until


def test_a_page_flies_a_flock_and_gets_a_frame_for_every_request(page: Page) -> None:
    assert page.welcome["event"] == "welcome"
    assert {"tanner", "tanner-dynamic"} <= {law["name"] for law in page.welcome["laws"]}
    frame = page.start(agents=25)
    assert (frame.step, len(frame.panels), len(frame.panels[0].roles)) == (0, 1, 25)
    later = page.fly(3)
    expected = ef.simulate(ef.random_disk(agents=25), ef.load("tanner"), duration=0.03)
    assert np.allclose(later.panels[0].positions, expected.positions[-1, 0], atol=1e-5)
    assert len(page.ask("show_edges", edges=True).panels[0].edges) > 0


@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize(
    "message",
    [
        "",
        "x",
        "[]",
        "null",
        "{}",
        '{"command": 1}',
        '{"command": "fly"}',
        '{"command": "advance"}',
        '{"command": "advance", "steps": 1e99}',
        '{"command": "advance", "steps": -1}',
        '{"command": "steer", "velocity": [NaN, 0]}',
        '{"command": "steer", "velocity": [1]}',
        '{"command": "start", "setting": {"agents": 1000000}}',
        '{"command": "start", "setting": {"controller": "/etc/passwd"}}',
        '{"command": "start", "setting": {"controller": "../x.safetensors"}}',
        '{"command": "start", "setting": {"comm_radius": 0.1}}',
        '{"command": "start", "setting": {"scenario": "chaos"}}',
        '{"command": "start", "setting": {"options": {"sides": 3}}}',
        '{"command": "start", "setting": {"scenario": "obstacles", "options": {"sides": 2}}}',
        '{"command": "start", "setting": {"scenario": "obstacles", "options": {"sides": [[]]}}}',
        '{"command": "remove_disk", "index": 99}',
        '{"command": "seek", "frame": 3}',
        '{"command": "play"}',
        '{"command": "scatter", "more": 1}',
        '{"command": "change_environment"}',
        '{"command": "change_environment", "environment": {"packet_loss": 2}}',
        '{"command": "change_environment", "environment": {"packet_loss": NaN}}',
        '{"command": "change_environment", "environment": {"delay": 1e9}}',
        '{"command": "change_environment", "environment": {"body": "unicycle", "lag": 1}}',
        '{"command": "change_environment", "environment": {"body": "../x"}}',
        '{"command": "start", "setting": {"environment": {"noise": -1}}}',
        '{"command": "change_law", "options": {"clamp": -1}}',
        '{"command": "change_law", "options": {"clamp": NaN}}',
        '{"command": "change_law", "options": {"clamp": 1e300}}',
        '{"command": "change_law", "options": {"clamp": "all"}}',
        '{"command": "change_law", "options": {"clamp": [1]}}',
        '{"command": "change_law", "options": {"gain": 1}}',
        '{"command": "change_law"}',
        '{"command": "change_law", "options": {"potential": "../x"}}',
        '{"command": "change_law", "options": {"time_scale": 2}}',
        '{"command": "change_law", "options": {"name": "etdagnn"}}',
        '{"command": "change_law", "options": {"clamp": 1}, "panel": 1}',
        '{"command": "start", "setting": {"controller_options": {"hops": 2}}}',
        '{"command": "start", "setting": {"compare_options": {"clamp": 2}}}',
        '{"command": "start", "setting": {"controller": "tanner:clamp=0"}}',
        '{"command": "fail_agents", "kind": "asleep"}',
        '{"command": "fail_agents", "kind": "stopped", "agents": 0}',
        '{"command": "fail_agents", "kind": "stopped", "agents": 1e99}',
        '{"command": "repair_agents", "agents": 1}',
        '{"command": "watch"}',
        '{"command": "watch", "agent": 1, "id": 1}',
        '{"command": "watch", "agent": 100}',
        '{"command": "watch", "agent": -1}',
        '{"command": "watch", "id": 1e99}',
        '{"command": "watch", "agent": [0]}',
        '{"command": "remove_agents", "positions": [[0, 0]], "reach": 1, "panel": 7}',
        "\x00",
        "{" * 5000,
    ],
)
def test_invalid_requests_are_refused_in_one_line_and_the_flight_continues(page: Page, message: str) -> None:
    page.start()
    page.connection.send(message)
    answer = page.read()
    assert answer["event"] == "refused"
    assert answer["text"]
    assert "\n" not in answer["text"]
    assert page.fly(2).step == 2


def test_requests_before_the_first_start_are_refused(page: Page) -> None:
    for request in ({"command": "advance", "steps": 1}, {"command": "save"}, {"command": "scatter"}):
        answer = page.ask(**request)
        assert answer["event"] == "refused"
        assert "start a flight first" in answer["text"]


def test_actions_show_in_the_next_frame(page: Page) -> None:
    before = page.start(scenario="leaders")
    leader = int(np.flatnonzero(before.panels[0].roles == ef.Role.LEADER)[0])
    x, y = before.panels[0].positions[3].tolist()
    for request in (
        {"command": "steer", "velocity": [1, 2]},
        {"command": "add_disk", "disk": {"x": 9, "y": 9, "radius": 0.5}},
        {"command": "move_disk", "index": 0, "position": [8, 8]},
        {"command": "set_orbit", "active": False},
        {"command": "remove_agents", "positions": [[x, y], [1000, 1000]], "reach": 1e-3},
    ):
        assert page.ask(**request) == {"event": "done"}
    (shown,) = page.fly(0).panels
    assert (shown.roles != ef.Role.OBSTACLE).sum() == 19
    assert np.allclose(shown.disks, [[8, 8, 0.5]])
    assert np.allclose(shown.velocities[leader - (leader > 3)], [1, 2])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
COMMANDS = ["start", "cancel", "advance", "seek", "show_edges", "steer", "toggle_leader"]
COMMANDS += ["remove_agents", "add_disk", "move_disk", "remove_disk", "set_orbit", "change_environment", "change_law"]
COMMANDS += ["fail_agents", "repair_agents", "scatter", "watch"]
FIELDS = ["setting", "steps", "frame", "edges", "velocity", "position", "positions", "panel", "reach", "disk", "index"]
FIELDS += ["active", "agent", "environment", "options", "kind", "agents", "id"]
POINTS = st.lists(st.floats(-30, 30), min_size=2, max_size=2)
SENSIBLE = st.one_of(
    st.builds(lambda n: {"command": "advance", "steps": n}, st.integers(0, 3)),
    st.builds(lambda v: {"command": "steer", "velocity": v}, st.lists(st.floats(-9, 9), min_size=2, max_size=2)),
    st.builds(lambda at, r: {"command": "remove_agents", "positions": [at], "reach": r}, POINTS, st.floats(0.01, 40)),
    st.builds(lambda at: {"command": "add_disk", "disk": {"x": at[0], "y": at[1], "radius": 0.3}}, POINTS),
    st.builds(lambda n, at: {"command": "move_disk", "index": n, "position": at}, st.integers(0, 3), POINTS),
    st.builds(lambda n: {"command": "remove_disk", "index": n}, st.integers(0, 3)),
    st.just({"command": "scatter"}),
    st.just({"command": "cancel"}),
    st.builds(lambda n: {"command": "toggle_leader", "agent": n}, st.integers(0, 40)),
    st.builds(
        lambda p, d: {"command": "change_environment", "environment": {"packet_loss": p, "delay": d}},
        st.floats(0, 1),
        st.integers(0, 3),
    ),
    st.builds(
        lambda a: {"command": "change_environment", "environment": {"body": "unicycle", "max_acceleration": a}},
        st.floats(1, 300),
    ),
    st.builds(
        lambda kind, n: {"command": "fail_agents", "kind": kind, "agents": n},
        st.sampled_from(["silent", "stopped", "drifting"]),
        st.integers(1, 30),
    ),
    st.just({"command": "repair_agents"}),
    st.just({"command": "show_edges", "edges": True}),
    st.builds(lambda which, n: {"command": "watch", which: n}, st.sampled_from(["agent", "id"]), st.integers(0, 60)),
)
STRANGE = st.builds(
    lambda command, fields: {"command": command, **fields},
    st.sampled_from(COMMANDS),
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4),
)


@pytest.mark.slow
@settings(max_examples=40)
@given(messages=st.lists(SENSIBLE | STRANGE | st.text(max_size=30) | st.binary(max_size=9), max_size=15))
def test_the_server_survives_arbitrary_messages(server: Running, messages: list[object]) -> None:
    with server.page() as page:
        page.start()
        for message in messages:
            page.connection.send(json.dumps(message) if isinstance(message, dict) else message)
        for answer in [page.read() for _ in messages]:
            events = "refused", "cancelled", "started", "done", "watched"
            assert not isinstance(answer, dict) or answer["event"] in events, answer
        assert page.start().step == 0
    wait_until(lambda: not server.sessions)


def test_a_controller_that_fails_in_flight_ends_the_flight_and_the_next_one_starts(own_registry: None) -> None:
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
        assert answer == {"event": "failed", "text": "ZeroDivisionError: no fuel"}
        assert "start a flight first" in page.ask("advance", steps=1)["text"]
        assert page.start(controller="late").step == 0
        answer = page.ask("start", setting={"controller": "nan"})
        assert answer["event"] == "refused"
        assert "NaN" in answer["text"]


def test_saved_flights_are_played_and_cannot_be_changed() -> None:
    run = ef.simulate(ef.random_disk(flocks=2, agents=12), ef.load("tanner"), duration=0.1)
    with running(ViewerConfig(flights=[run])) as server, server.page() as page:
        assert page.welcome["flocks"] == 2
        playback = page.ask("play", flock=1)["playback"]
        assert playback["times"] == run.times.tolist()
        frame = page.ask("seek", frame=7)
        assert frame.time == run.times[7]
        assert np.allclose(frame.panels[0].positions, run.positions[7, 1], atol=1e-5)
        assert "does not apply to saved flights" in page.ask("scatter")["text"]
        assert "flock must be below 2" in page.ask("play", flock=2)["text"]
