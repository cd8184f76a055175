"""Folders in the user's cache belong to the user alone: nothing that others placed there is used."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from equiflock._runtime.checks import InputError
from equiflock._runtime.user_cache import MAX_UNUSED_DAYS, get_cache_root, open_cache_dir

KEY = "a" * 32


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EQUIFLOCK_CACHE_DIR", str(tmp_path / "cache"))
    return get_cache_root("trainings")


def test_a_folder_is_private_and_found_again(root: Path) -> None:
    folder = open_cache_dir("trainings", KEY)
    assert folder == root / KEY == open_cache_dir("trainings", KEY)
    assert folder.stat().st_mode & 0o777 == root.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("planted", ["trainings", f"trainings/{KEY}"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_planted_link_is_refused_and_not_written_through(
    root: Path, tmp_path: Path, planted: str, exists: bool
) -> None:
    target = tmp_path / "target"
    if exists:
        target.mkdir(mode=0o700)
    link = root.parent / planted
    link.parent.mkdir(parents=True, mode=0o700)
    link.symlink_to(target)
    with pytest.raises(InputError, match=r"cannot be used: .*; set EQUIFLOCK_CACHE_DIR to use another folder"):
        open_cache_dir("trainings", KEY)
    assert not exists or list(target.iterdir()) == []


@pytest.mark.parametrize("name", ["trainings", KEY])
def test_a_folder_to_which_others_can_write_is_refused(root: Path, name: str) -> None:
    folder = open_cache_dir("trainings", KEY)
    (folder if name == KEY else root).chmod(0o770)
    with pytest.raises(InputError, match=f"other users can write to {name}"):
        open_cache_dir("trainings", KEY)


def test_a_folder_of_another_user_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_cache_dir("trainings", KEY)
    monkeypatch.setattr(os, "geteuid", lambda: root.stat().st_uid + 1)
    with pytest.raises(InputError, match="trainings belongs to another user"):
        open_cache_dir("trainings", KEY)


def test_a_new_key_removes_those_that_were_not_used_for_long(root: Path) -> None:
    old, recent, used, new = (digit * 32 for digit in "abcd")
    root.mkdir(parents=True, mode=0o700)
    # A folder of another name is not ours.
    for key, days in (
        (old, MAX_UNUSED_DAYS + 1),
        (recent, MAX_UNUSED_DAYS - 1),
        (used, MAX_UNUSED_DAYS + 1),
        ("mine", MAX_UNUSED_DAYS + 1),
    ):
        (root / key).mkdir(mode=0o700)
        (root / key / "file").touch()
        then = time.time() - 24 * 3600 * days
        os.utime(root / key, (then, then))
    open_cache_dir("trainings", used)
    assert (root / old).exists()
    open_cache_dir("trainings", new)
    assert {path.name for path in root.iterdir()} == {new, recent, used, "mine"}
