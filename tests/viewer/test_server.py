"""The server as a page meets it: a real one, on a port of its own."""

from __future__ import annotations

import errno
import gc
import json
import socket
import threading
import urllib.error
import urllib.request
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, InvalidStatus

import equiflock as ef
from equiflock.trajectory import load_flights
from equiflock.types import InputError
from equiflock.viewer.exhibit import Exhibit
from equiflock.viewer.requests import LONGEST_REQUEST
from equiflock.viewer.saving import MOST_WAITING, Archive
from equiflock.viewer.server import MOST_SESSIONS, listen
from equiflock.viewer.session import Session
from equiflock.viewer.setting import Setting
from tests.viewer.servers import HOST, Page, Running, running, wait_until
from tests.viewer.stages import stage


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(Exhibit(Setting(controller="tanner", agents=20), out=tmp_path_factory.mktemp("out"))) as found:
        yield found


@pytest.fixture
def page(server: Running) -> Iterator[Page]:
    with server.page() as found:
        yield found


def get(server: Running, path: str, **headers: str) -> tuple[int, Message, bytes]:
    request = urllib.request.Request(server.address + path, headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def test_the_page_is_served_with_all_its_files_and_nothing_from_elsewhere(server: Running) -> None:
    status, headers, content = get(server, "")
    assert status == 200
    assert headers["Content-Security-Policy"].startswith("default-src 'self'")
    assert b"http://" not in content
    assert b"https://" not in content
    for name in ("main.js", "scene.js", "style.css", "icon.svg"):
        assert get(server, name)[0] == 200
    assert get(server, "../server.py")[0] == 404
    assert get(server, "%2e%2e/server.py")[0] == 404
    assert get(server, "saved/anything/film.mp4")[0] == 404


def test_a_page_of_another_origin_is_refused(server: Running) -> None:
    elsewhere = "http://evil.example", f"https://127.0.0.1:{server.port}", "http://127.0.0.1:1", "null", ""
    for origin in elsewhere:
        with pytest.raises(InvalidStatus) as refusal, server.page(origin=origin):
            pass
        assert refusal.value.response.status_code == 403
    assert not server.sessions


def test_a_name_that_is_not_the_servers_is_refused(server: Running) -> None:
    for name in ("evil.example", f"evil.example:{server.port}", "[::1", f"127.0.0.1.evil.example:{server.port}"):
        assert get(server, "", Host=name)[0] == 400
    for name in (f"localhost:{server.port}", "localhost", "LOCALHOST:80", f"[::1]:{server.port}"):
        assert get(server, "", Host=name)[0] == 200


def test_a_tunnel_may_have_a_port_of_its_own(server: Running) -> None:
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


def test_a_page_flies_a_flock_and_gets_a_frame_for_every_request(page: Page) -> None:
    assert page.welcome["is"] == "welcome"
    assert {"tanner", "tanner-dynamic"} <= set(page.welcome["laws"])
    frame = page.start(agents=25)
    assert (frame.step, len(frame.panels), len(frame.panels[0].roles)) == (0, 1, 25)
    later = page.fly(3)
    expected = ef.simulate(ef.random_disk(agents=25), ef.load("tanner"), duration=0.03)
    assert np.allclose(later.panels[0].positions, expected.positions[-1, 0], atol=1e-5)
    assert len(page.ask("show", edges=True).panels[0].edges) > 0


@pytest.mark.parametrize(
    "message",
    ["", "x", "[]", "null", "{}", '{"do": 1}', '{"do": "fly"}', '{"do": "advance"}', '{"do": "advance", "steps": 1e99}',
     '{"do": "advance", "steps": -1}', '{"do": "steer", "velocity": [NaN, 0]}', '{"do": "steer", "velocity": [1]}',
     '{"do": "start", "setting": {"agents": 1000000}}', '{"do": "start", "setting": {"controller": "/etc/passwd"}}',
     '{"do": "start", "setting": {"controller": "../x.safetensors"}}', '{"do": "start", "setting": {"radius": 0.1}}',
     '{"do": "lift", "number": 99}', '{"do": "seek", "frame": 3}', '{"do": "replay"}', '{"do": "scatter", "more": 1}',
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
NAMES = ["start", "advance", "seek", "show", "steer", "lead", "remove", "drop", "move", "lift", "orbit", "scatter"]
FIELDS = ["setting", "steps", "frame", "edges", "velocity", "at", "panel", "reach", "disk", "number", "active"]
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
)
STRANGE = st.builds(
    lambda do, fields: {"do": do, **fields},
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4),
)


@settings(max_examples=40)
@given(messages=st.lists(SENSIBLE | STRANGE | st.text(max_size=30) | st.binary(max_size=9), max_size=15))
def test_whatever_is_sent_the_server_answers_and_goes_on(server: Running, messages: list[object]) -> None:
    with server.page() as page:
        page.start()
        for message in messages:
            page.connection.send(json.dumps(message) if isinstance(message, dict) else message)
        for answer in [page.read() for _ in messages]:
            assert not isinstance(answer, dict) or answer["is"] in ("refused", "started", "done"), answer
        assert page.start().step == 0
    wait_until(lambda: not server.sessions)


def test_a_message_that_is_too_long_ends_the_connection_and_nothing_else(server: Running) -> None:
    with server.page() as page, server.page() as other:
        other.start()
        page.connection.send("x" * (LONGEST_REQUEST + 1))
        with pytest.raises(ConnectionClosed) as closed:
            page.read()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
        assert other.ask("advance", steps=1).step == 1


def test_a_closed_page_frees_its_flight(server: Running) -> None:
    with server.page() as page:
        page.start()
        (session,) = server.sessions
        stage = weakref.ref(session.shown)
        del session
        assert stage() is not None
    wait_until(lambda: not server.sessions)

    def freed() -> bool:
        gc.collect()
        return stage() is None

    wait_until(freed)


def test_a_connection_that_breaks_frees_its_flight_too(server: Running) -> None:
    with server.page() as page:
        page.start()
        page.connection.socket.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: not server.sessions)


def test_there_is_a_limit_to_pages(server: Running) -> None:
    opened = [server.page() for _ in range(MOST_SESSIONS)]
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


def test_large_flocks_fly_in_two_pages_at_once_and_each_as_if_it_were_alone(server: Running) -> None:
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
        start = Setting(agents=4000, seed=seed).draw()[0]
        alone = ef.simulate(start, ef.load("etdagnn"), duration=0.15)
        assert np.allclose(positions, alone.positions[-1, 0], atol=1e-4)


def test_a_page_that_does_not_read_holds_up_nobody(server: Running) -> None:
    with server.page() as lazy, server.page() as other:
        lazy.start(agents=2000)
        for _ in range(200):
            lazy.connection.send(json.dumps({"do": "advance", "steps": 1}))
        other.start()
        assert other.fly(5).step == 5


def test_a_controller_that_breaks_down_in_flight_ends_the_flight_and_the_next_one_starts(own_registry: None) -> None:
    class Late:
        hops, one_hop = 1, "mean"

        def __init__(self) -> None:
            self.left = 3

        def __call__(self, messages: np.ndarray) -> np.ndarray:
            self.left -= 1
            if self.left < 0:
                raise ZeroDivisionError("no fuel")
            return np.zeros((*messages.shape[:2], 2))

    @ef.register("nan")
    def nan(messages: np.ndarray) -> np.ndarray:
        return messages[:, :, 0, 0] * np.nan

    ef.register("late")(Late)
    with running() as server, server.page() as page:
        page.start(controller="late")
        answer = page.ask("advance", steps=10)
        assert answer == {"is": "failed", "text": "ZeroDivisionError: no fuel"}
        assert "start a flight first" in page.ask("advance", steps=1)["text"]
        assert page.start(controller="late").step == 0
        answer = page.ask("start", setting={"controller": "nan"})
        assert answer["is"] == "refused"
        assert "NaN" in answer["text"]


def test_a_closed_page_frees_its_flight_though_it_is_being_saved(server: Running) -> None:
    with server.page() as page:
        page.start(agents=300)
        page.fly(40)
        (session,) = server.sessions
        stage = weakref.ref(session.shown)
        del session
        assert page.ask("save")["is"] == "saving"
    saved = len(server.archive.saved)
    wait_until(lambda: not server.sessions)
    gc.collect()
    assert stage() is None
    wait_until(lambda: len(server.archive.saved) > saved, 60)


def test_flights_that_are_saved_at_once_are_saved_one_after_the_other(tmp_path: Path) -> None:
    with running(Exhibit(Setting(controller="tanner"), out=tmp_path)) as server:
        with server.page() as one, server.page() as other:
            folders = set()
            for page in (one, other):
                page.start()
                page.ask("save")
            for page in (one, other):
                while (told := page.read())["is"] == "progress":
                    pass
                folders.add(told["folder"])
        assert len(folders) == 2
        assert {path.name for path in tmp_path.iterdir()} == {Path(folder).name for folder in folders}


def test_only_so_many_flights_wait_to_be_saved(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    hold = threading.Event()
    archive._worker.submit(hold.wait)
    live = stage()
    works = [archive.save(live.trajectories(), 0.5, lambda *_: None) for _ in range(MOST_WAITING)]
    with pytest.raises(InputError, match="wait for one"):
        archive.save(live.trajectories(), 0.5, lambda *_: None)
    hold.set()
    assert len({work.result() for work in works}) == MOST_WAITING


def test_a_flight_is_saved_as_a_film_and_a_folder(server: Running) -> None:
    with server.page() as page:
        page.start(compare="tanner-dynamic")
        page.fly(5)
        assert page.ask("save")["is"] == "saving"
        assert "is being saved" in page.ask("save")["text"]
        flown = page.ask("advance", steps=1)
        while isinstance(flown, dict):
            flown = page.read()
        while (told := page.read())["is"] == "progress":
            pass
        assert told["is"] == "saved"
    runs = load_flights(Path(told["folder"]))
    assert [run.config["controller"] for run in runs] == ["tanner", "tanner-dynamic"]
    assert len(runs[0].times) == 6
    status, headers, film = get(server, f"saved/{told['name']}/film.mp4")
    assert (status, headers["content-type"]) == (200, "video/mp4")
    assert film[4:8] == b"ftyp"


def test_a_flight_that_cannot_be_saved_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with running(Exhibit(Setting(controller="tanner"), out=tmp_path / "file")) as server, server.page() as page:
        page.start()
        assert page.ask("save")["is"] == "saving"
        while (told := page.read())["is"] == "progress":
            pass
        assert told["is"] == "unsaved"
        assert "could not be saved" in told["text"]
        assert page.ask("advance", steps=1).step == 1


def test_saved_flights_are_played_and_cannot_be_touched() -> None:
    run = ef.simulate(ef.random_disk(flocks=2, agents=12), ef.load("tanner"), duration=0.1)
    with running(Exhibit(flights=[run])) as server, server.page() as page:
        assert page.welcome["flocks"] == 2
        told = page.ask("replay", flock=1)["replay"]
        assert told["times"] == run.times.tolist()
        frame = page.ask("seek", frame=7)
        assert frame.time == run.times[7]
        assert np.allclose(frame.panels[0].positions, run.positions[7, 1], atol=1e-5)
        assert "only be looked at" in page.ask("scatter")["text"]
        assert "flock must be below 2" in page.ask("replay", flock=2)["text"]


def test_weights_of_the_command_line_are_offered_and_no_others(tmp_path: Path) -> None:
    source = ef.load("etdagnn", seed=1)
    mine = source.save(tmp_path / "mine.safetensors")  # type: ignore[union-attr]
    other = source.save(tmp_path / "other.safetensors")  # type: ignore[union-attr]
    with running(Exhibit(weights=(mine,))) as server, server.page() as page:
        assert page.welcome["weights"] == [str(mine)]
        assert page.start(controller=str(mine)).step == 0
        assert page.ask("start", setting={"controller": str(other)})["is"] == "refused"


def test_weights_that_do_not_load_are_an_error_before_anything_is_served(tmp_path: Path) -> None:
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"nonsense")
    with pytest.raises(InputError, match="not a safetensors file"):
        Exhibit(weights=(bad,))


def test_a_port_in_use_is_told_and_the_next_one_taken() -> None:
    busy: list[int] = []
    with listen(HOST, 9480, busy.append) as first:
        taken = first.getsockname()[1]
        busy.clear()
        with listen(HOST, taken, busy.append) as second:
            assert busy[0] == taken
            assert second.getsockname()[1] > taken
            assert second.getsockname()[0] == HOST


@pytest.mark.parametrize("host", ["0.0.0.0", "", "0", "::"])
def test_all_addresses_at_once_are_refused(host: str) -> None:
    with pytest.raises(InputError, match="name one address"):
        listen(host, 9480, lambda port: None)


def test_a_setting_without_a_flock_is_an_error_before_anything_is_served() -> None:
    with pytest.raises(InputError, match="leaders must be fewer"):
        Exhibit(Setting(controller="tanner", scenario="leaders", agents=40, leaders=80)).warm_up()


def test_an_address_that_is_not_this_machines_is_refused() -> None:
    with pytest.raises(InputError, match="not an address of this machine"):
        listen("192.0.2.1", 9480, lambda port: None)


def test_ports_that_are_all_in_use_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object) -> None:
        raise OSError(errno.EADDRINUSE, "in use")

    monkeypatch.setattr(socket.socket, "bind", busy)
    with pytest.raises(InputError, match="all in use"):
        listen(HOST, 9480, lambda port: None)


def test_a_session_answers_without_a_server_too() -> None:
    session = Session(Exhibit(), ThreadPoolExecutor(1), Archive(Path("unused")))
    assert session.answer('{"do": "start", "setting": {"controller": "tanner"}}')["is"] == "started"  # type: ignore[index,call-overload]
    assert isinstance(session.answer('{"do": "advance", "steps": 1}'), bytes)
