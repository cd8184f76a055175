"""Saves of live flights, and removal of unfinished ones."""

from __future__ import annotations

import errno
import gc
import re
import shutil
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.plotting import film, film_file
from equiflock.simulation.trajectory import Trajectory, load_trajectories
from equiflock.viewer.flight_archive import (
    FILM_NAME,
    MAX_PENDING_SAVES,
    FlightArchive,
    save_flights,
)
from equiflock.viewer.setting import Setting
from equiflock.viewer.viewer_config import ViewerConfig
from tests.viewer.live_simulations import live_simulation
from tests.viewer.servers import Running, get, running, wait_until


@pytest.mark.slow
def test_a_closed_page_frees_its_flight_though_it_is_being_saved(server: Running) -> None:
    with server.page() as page:
        page.start(agents=300)
        page.fly(40)
        (session,) = server.sessions
        live_simulation = weakref.ref(session.current)
        del session
        assert page.ask("save")["event"] == "saving"
    saved_dirs = len(server.archive.saved_dirs)
    wait_until(lambda: not server.sessions)
    gc.collect()
    assert live_simulation() is None
    wait_until(lambda: len(server.archive.saved_dirs) > saved_dirs, 60)


def test_flights_that_are_saved_at_once_are_saved_one_after_the_other(tmp_path: Path) -> None:
    with running(ViewerConfig(Setting(controller="tanner"), out=tmp_path)) as server:
        with server.page() as one, server.page() as other:
            folders = set()
            for page in (one, other):
                page.start()
                page.ask("save")
            for page in (one, other):
                while (message := page.read())["event"] == "save_progress":
                    pass
                folders.add(message["folder"])
        assert len(folders) == 2
        assert {path.name for path in tmp_path.iterdir()} == {Path(folder).name for folder in folders}


@pytest.mark.slow
def test_the_number_of_pending_saves_is_limited(tmp_path: Path) -> None:
    archive = FlightArchive(tmp_path)
    hold = threading.Event()
    archive._worker.submit(hold.wait)
    live = live_simulation()
    works = [archive.save(live.to_trajectories(), 0.5, lambda *_: None) for _ in range(MAX_PENDING_SAVES)]
    with pytest.raises(InputError, match="wait for one"):
        archive.save(live.to_trajectories(), 0.5, lambda *_: None)
    hold.set()
    assert len({work.result() for work in works}) == MAX_PENDING_SAVES


@pytest.mark.slow
def test_a_flight_is_saved_with_a_film(server: Running) -> None:
    with server.page() as page:
        page.start(compare="tanner-dynamic")
        page.fly(5)
        assert page.ask("save")["event"] == "saving"
        assert "is being saved" in page.ask("save")["text"]
        flown = page.ask("advance", steps=1)
        while isinstance(flown, dict):
            flown = page.read()
        while (message := page.read())["event"] == "save_progress":
            pass
        assert message["event"] == "saved"
    runs = load_trajectories(Path(message["folder"]))
    assert [run.config["controller"] for run in runs] == ["tanner", "tanner-dynamic"]
    assert len(runs[0].times) == 6
    status, headers, film = get(server, f"saved/{message['name']}/film.mp4")
    assert (status, headers["content-type"]) == (200, "video/mp4")
    assert film[4:8] == b"ftyp"


def test_a_saved_flight_that_was_replaced_by_another_is_refused(tmp_path: Path) -> None:
    start = ef.random_disk(1, 5)
    runs = [ef.simulate(start, ef.load(name), duration=0.02) for name in ("tanner", "reynolds")]
    folder = save_flights(runs, tmp_path, 1.0, lambda *_: None)
    assert [len(run.times) for run in load_trajectories(folder)] == [3, 3]
    first, second = sorted(folder.glob("*.zarr"))
    shutil.rmtree(second)
    shutil.copytree(first, second)
    with pytest.raises(InputError, match=r"2-reynolds\.zarr is not the flight that was saved there"):
        load_trajectories(folder)
    (folder / "checksums.json").unlink()  # such as in folders of version 0.2
    assert len(load_trajectories(folder)) == 2


def test_a_saved_flight_that_was_removed_renamed_or_added_is_named(tmp_path: Path) -> None:
    start = ef.random_disk(1, 5)
    runs = [ef.simulate(start, ef.load(name), duration=0.02) for name in ("tanner", "reynolds")]
    folder = save_flights(runs, tmp_path, 1.0, lambda *_: None)
    second = folder / "2-reynolds.zarr"
    expected = r"the flights that were saved there, 1-tanner\.zarr, 2-reynolds\.zarr; got "
    shutil.copytree(second, folder / "3-more.zarr")
    with pytest.raises(InputError, match=expected + r"1-tanner\.zarr, 2-reynolds\.zarr, 3-more\.zarr: restore them"):
        load_trajectories(folder)
    shutil.rmtree(second)
    with pytest.raises(InputError, match=expected + r"1-tanner\.zarr, 3-more\.zarr: restore them"):
        load_trajectories(folder)
    shutil.rmtree(folder / "3-more.zarr")
    with pytest.raises(InputError, match=expected + r"1-tanner\.zarr: restore them, or remove .*checksums\.json"):
        load_trajectories(folder)
    (folder / "checksums.json").unlink()
    assert len(load_trajectories(folder)) == 1


def test_a_failed_save_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with running(ViewerConfig(Setting(controller="tanner"), out=tmp_path / "file")) as server, server.page() as page:
        page.start()
        assert page.ask("save")["event"] == "saving"
        while (message := page.read())["event"] == "save_progress":
            pass
        assert message["event"] == "save_failed"
        assert "could not be saved" in message["text"]
        assert page.ask("advance", steps=1).step == 1


def no_film(*_: object, **__: object) -> None:
    raise ValueError("no film today")


def full_disk(self: Trajectory, path: Path) -> None:
    """Save a trajectory as on a disk with room for only the first of two flights."""
    if path.name.startswith("2-"):
        (path.parent / f".{path.name}").mkdir()
        raise OSError(errno.ENOSPC, "No space left on device")
    save(self, path)


save = Trajectory.save


def ffmpeg_that(tmp_path: Path, does: str) -> Path:
    path = tmp_path / "ffmpeg"
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("film", "no film today"),
        ("dying ffmpeg", "could not be written: killed"),
        ("ffmpeg on a full disk", "No space left"),
        ("store on a full disk", "No space left"),
    ],
)
def test_a_failed_save_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, message: str
) -> None:
    if broken == "film":
        monkeypatch.setattr(film, "film", no_film)
    elif broken == "store on a full disk":
        monkeypatch.setattr(Trajectory, "save", full_disk)
    else:
        said = "killed" if broken.startswith("dying") else "av_interleaved_write_frame(): No space left on device"
        program = ffmpeg_that(tmp_path, f"head -c 200000 > /dev/null; echo '{said}' >&2; exit 1")
        monkeypatch.setattr(film_file, "get_ffmpeg_exe", lambda: str(program))
    out = tmp_path / "out"
    work = FlightArchive(out).save(live_simulation(compare="tanner-dynamic").to_trajectories(), 0.5, lambda *_: None)
    with pytest.raises((OSError, ValueError), match=re.escape(message)):
        work.result(60)
    assert list(out.iterdir()) == []


@pytest.mark.slow
def test_a_stopped_server_finishes_saving(tmp_path: Path) -> None:
    with running(ViewerConfig(Setting(controller="tanner"), out=tmp_path)) as server, server.page() as page:
        page.start()
        page.fly(20)
        assert page.ask("save")["event"] == "saving"
        wait_until(lambda: any(tmp_path.iterdir()))
    (folder,) = tmp_path.iterdir()
    assert (folder / FILM_NAME).exists()
    assert not folder.name.startswith(".")


def test_a_forced_exit_cancels_saving_and_leaves_no_files(tmp_path: Path) -> None:
    with running(ViewerConfig(Setting(controller="tanner"), out=tmp_path)) as server, server.page() as page:
        page.start()
        page.fly(100)
        assert page.ask("save", speed=0.01)["event"] == "saving"  # a film of thousands of frames
        wait_until(lambda: any(tmp_path.iterdir()))
        server.server.force_exit = True
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_scratch_directories_of_killed_processes_are_removed_by_the_next_server(tmp_path: Path) -> None:
    script = """
import os, pathlib, sys
import equiflock as ef
from equiflock.viewer.flight_archive import save_flights
run = ef.simulate(ef.random_disk(1, 5), ef.load("tanner"), duration=0.02)
save_flights([run], pathlib.Path(sys.argv[1]), 1.0, lambda *_: os.kill(os.getpid(), 9))
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)])
    assert [path.name[:8] for path in tmp_path.iterdir()] == [".saving-"]
    FlightArchive(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_unfinished_saves_of_other_servers_and_saved_flights_are_kept(tmp_path: Path) -> None:
    saved = tmp_path / "2026-01-02-030405-etdagnn"
    saved.mkdir()
    run = ef.simulate(ef.random_disk(1, 5), ef.load("tanner"), duration=0.02)
    folder = save_flights([run], tmp_path, 1.0, lambda *_: FlightArchive(tmp_path))
    assert (folder / FILM_NAME).exists()
    assert {path.name for path in tmp_path.iterdir()} == {saved.name, folder.name}
