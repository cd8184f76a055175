"""Scratch directories are private, and the next process removes those of processes that were killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from equiflock._runtime.scratch_directory import make_scratch_directory, remove_abandoned_directories

PREFIX = "scratch-"
OWNER = """
import pathlib, sys
from equiflock._runtime.scratch_directory import make_scratch_directory
with make_scratch_directory(pathlib.Path(sys.argv[1]), "scratch-") as folder:
    (folder / "part").write_text("")
    print(folder, flush=True)
    input()
"""


def test_the_directory_is_private_and_removed_at_the_end_also_after_an_error(tmp_path: Path) -> None:
    parent = tmp_path / "not" / "there"
    remove_abandoned_directories(parent, PREFIX)
    with make_scratch_directory(parent, PREFIX) as folder:
        assert folder.parent == parent and folder.stat().st_mode & 0o777 == 0o700
        (folder / "part").write_text("half")
    assert not list(parent.iterdir())
    with pytest.raises(ZeroDivisionError), make_scratch_directory(parent, PREFIX) as folder:
        (folder / "part").write_text("half")
        raise ZeroDivisionError
    assert not list(parent.iterdir())


def test_the_directory_of_a_killed_process_is_removed_by_the_next_one_but_not_that_of_a_living_one(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        left = Path(owner.stdout.readline().decode().strip())
        with make_scratch_directory(tmp_path, PREFIX) as first, make_scratch_directory(tmp_path, PREFIX) as second:
            assert left.exists() and first.exists() and second.exists()
        owner.kill()
        owner.wait()
        assert left.exists()
        with make_scratch_directory(tmp_path, PREFIX):
            assert not left.exists()


def test_links_and_files_under_such_a_name_are_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(target)
    (tmp_path / f"{PREFIX}file").write_text("")
    with make_scratch_directory(tmp_path, PREFIX):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"target", f"{PREFIX}link", f"{PREFIX}file"}
