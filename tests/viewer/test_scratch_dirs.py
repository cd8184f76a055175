"""Scratch directories of unfinished saves are removed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from equiflock.viewer.flight_archive import MIN_AGE_SECONDS, FlightArchive, make_scratch_dir, remove_stale_scratch_dirs


def test_a_scratch_directory_is_removed_also_after_an_error(tmp_path: Path) -> None:
    out = tmp_path / "not" / "there"
    with make_scratch_dir(out) as folder:
        (folder / "part").write_text("half")
        assert [path.name for path in out.iterdir()] == [folder.name]
    assert list(out.iterdir()) == []
    with pytest.raises(ZeroDivisionError), make_scratch_dir(out) as folder:
        (folder / "part").write_text("half")
        raise ZeroDivisionError
    assert list(out.iterdir()) == []


def age(folder: Path) -> None:
    then = time.time() - 2 * MIN_AGE_SECONDS
    os.utime(folder, (then, then))


@pytest.mark.slow
def test_scratch_directories_of_killed_processes_are_removed_by_the_next_server(tmp_path: Path) -> None:
    script = """
import os, pathlib, sys
from equiflock.viewer.flight_archive import make_scratch_dir
with make_scratch_dir(pathlib.Path(sys.argv[1])) as folder:
    (folder / "part").write_text("half")
    os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)])
    (left,) = tmp_path.iterdir()
    FlightArchive(tmp_path)
    assert left.exists()  # too young: a process may be about to lock it
    age(left)
    FlightArchive(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_locked_scratch_directories_and_saved_flights_are_kept(tmp_path: Path) -> None:
    saved = tmp_path / "2026-01-02-030405-etdagnn"
    saved.mkdir()
    age(saved)
    with make_scratch_dir(tmp_path) as folder:
        age(folder)
        remove_stale_scratch_dirs(tmp_path)
        assert folder.exists()
    assert [path.name for path in tmp_path.iterdir()] == [saved.name]
