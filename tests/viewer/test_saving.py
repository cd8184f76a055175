"""Live flights are saved one after the other, whether their page stays or not."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path

import pytest

from equiflock.trajectory import load_flights
from equiflock.types import InputError
from equiflock.viewer.exhibit import Exhibit
from equiflock.viewer.saving import MOST_WAITING, Archive
from equiflock.viewer.setting import Setting
from tests.viewer.servers import Running, get, running, wait_until
from tests.viewer.stages import stage


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
