"""Nothing half written outlives the process that wrote it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from equiflock.viewer.saving import Archive
from equiflock.viewer.scratch import SETTLED, scratch_folder, tidy_up


def test_a_scratch_folder_is_gone_however_the_work_ends(tmp_path: Path) -> None:
    out = tmp_path / "not" / "there"
    with scratch_folder(out) as folder:
        (folder / "part").write_text("half")
        assert [path.name for path in out.iterdir()] == [folder.name]
    assert list(out.iterdir()) == []
    with pytest.raises(ZeroDivisionError), scratch_folder(out) as folder:
        (folder / "part").write_text("half")
        raise ZeroDivisionError
    assert list(out.iterdir()) == []


def age(folder: Path) -> None:
    then = time.time() - 2 * SETTLED
    os.utime(folder, (then, then))


@pytest.mark.slow
def test_what_a_killed_process_left_is_removed_when_the_next_server_starts(tmp_path: Path) -> None:
    script = """
import os, pathlib, sys
from equiflock.viewer.scratch import scratch_folder
with scratch_folder(pathlib.Path(sys.argv[1])) as folder:
    (folder / "part").write_text("half")
    os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)])
    (left,) = tmp_path.iterdir()
    Archive(tmp_path)
    assert left.exists()  # so young that somebody may be about to lock it
    age(left)
    Archive(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_somebody_works_on_is_left_alone_and_so_is_what_was_saved(tmp_path: Path) -> None:
    saved = tmp_path / "2026-01-02-030405-etdagnn"
    saved.mkdir()
    age(saved)
    with scratch_folder(tmp_path) as folder:
        age(folder)
        tidy_up(tmp_path)
        assert folder.exists()
    assert [path.name for path in tmp_path.iterdir()] == [saved.name]
