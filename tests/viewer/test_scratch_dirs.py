"""Nothing half written outlives the process that wrote it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from equiflock.viewer.flight_archive import FlightArchive
from equiflock.viewer.scratch_dirs import MIN_AGE_SECONDS, make_scratch_dir, remove_stale_scratch_dirs


def test_a_scratch_folder_is_gone_however_the_work_ends(tmp_path: Path) -> None:
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
def test_what_a_killed_process_left_is_removed_when_the_next_server_starts(tmp_path: Path) -> None:
    script = """
import os, pathlib, sys
from equiflock.viewer.scratch_dirs import scratch_folder
with scratch_folder(pathlib.Path(sys.argv[1])) as folder:
    (folder / "part").write_text("half")
    os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)])
    (left,) = tmp_path.iterdir()
    FlightArchive(tmp_path)
    assert left.exists()  # so young that somebody may be about to lock it
    age(left)
    FlightArchive(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_somebody_works_on_is_left_alone_and_so_is_what_was_saved(tmp_path: Path) -> None:
    saved = tmp_path / "2026-01-02-030405-etdagnn"
    saved.mkdir()
    age(saved)
    with make_scratch_dir(tmp_path) as folder:
        age(folder)
        remove_stale_scratch_dirs(tmp_path)
        assert folder.exists()
    assert [path.name for path in tmp_path.iterdir()] == [saved.name]
