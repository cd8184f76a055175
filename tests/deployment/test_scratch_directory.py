"""Temporary directories of swarms are private, and the next swarm removes those of hosts that were killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from equiflock.deployment.scratch_directory import PREFIX, make_scratch_directory

HOST = """
from equiflock.deployment.scratch_directory import make_scratch_directory
with make_scratch_directory() as folder:
    (folder / "robot.py").write_text("")
    print(folder, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_the_directory_is_private_and_removed_at_the_end(tmp_path: Path) -> None:
    with make_scratch_directory() as folder:
        assert folder.parent == tmp_path and folder.stat().st_mode & 0o777 == 0o700
        (folder / "file").write_text("")
    assert not list(tmp_path.iterdir())


def test_the_directory_of_a_killed_host_is_removed_by_the_next_one_but_not_that_of_a_living_one() -> None:
    with subprocess.Popen([sys.executable, "-c", HOST], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        left = Path(host.stdout.readline().decode().strip())
        with make_scratch_directory() as first, make_scratch_directory() as second:
            assert left.exists() and first.exists() and second.exists()
        host.kill()
        host.wait()
        assert left.exists()
        with make_scratch_directory():
            assert not left.exists()


def test_links_and_files_under_such_a_name_are_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(target)
    (tmp_path / f"{PREFIX}file").write_text("")
    with make_scratch_directory():
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"target", f"{PREFIX}link", f"{PREFIX}file"}
