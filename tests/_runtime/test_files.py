"""Nothing half-written stands under a final name."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from equiflock._runtime.checks import InputError
from equiflock._runtime.files import atomic_write, check_absent, check_writable, delay_sigint


def test_a_file_or_folder_appears_at_once_and_replaces_the_old(tmp_path: Path) -> None:
    for text in ("first", "second"):
        with atomic_write(tmp_path / "deep" / "note.txt") as scratch:
            scratch.write_text(text)
            assert scratch.suffix == ".txt"
        with atomic_write(tmp_path / "deep" / "folder", replace_folder=True) as scratch:
            scratch.mkdir()
            (scratch / "inside").write_text(text)
    assert (tmp_path / "deep" / "note.txt").read_text() == "second"
    assert (tmp_path / "deep" / "folder" / "inside").read_text() == "second"
    assert len(list((tmp_path / "deep").iterdir())) == 2


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, OSError])
def test_an_interrupted_write_leaves_everything_as_it_was(tmp_path: Path, interruption: type[BaseException]) -> None:
    (tmp_path / "note.txt").write_text("old")
    with pytest.raises(interruption), atomic_write(tmp_path / "note.txt") as scratch:
        scratch.write_text("half")
        raise interruption
    with pytest.raises(interruption), atomic_write(tmp_path / "folder") as scratch:
        scratch.mkdir()
        raise interruption
    assert (tmp_path / "note.txt").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_link_planted_under_a_temporary_name_is_not_written_through(tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("years of work")
    # The names of a process that writes here twice, and the name that contains only its id.
    with atomic_write(tmp_path / "note.txt") as scratch:
        scratch.write_text("first")
    for name in (scratch.name, f".note.{os.getpid()}.txt"):
        (tmp_path / name).symlink_to(precious)
    with atomic_write(tmp_path / "note.txt") as scratch:
        scratch.write_text("second")
    assert precious.read_text() == "years of work"
    assert (tmp_path / "note.txt").read_text() == "second"


def test_a_folder_is_never_replaced_by_accident(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="is a folder"), atomic_write(tmp_path / "precious"):
        pass
    assert (tmp_path / "precious" / "thesis.txt").exists()


def test_what_cannot_be_written_is_said_beforehand(tmp_path: Path) -> None:
    check_absent(tmp_path / "not" / "yet" / "there")
    with pytest.raises(InputError, match="already exists"):
        check_absent(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is not a writable folder"):
        check_writable(tmp_path / "file" / "below")


def test_ctrl_c_waits_for_the_end_of_a_block_that_must_not_be_interrupted() -> None:
    reached = False
    with pytest.raises(KeyboardInterrupt), delay_sigint():
        signal.raise_signal(signal.SIGINT)
        reached = True
    assert reached


def test_a_folder_that_cannot_be_replaced_is_still_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "results.old"
    folder.mkdir()
    (folder / "inside").write_text("old")

    def fail(*_: object) -> None:
        raise PermissionError

    with pytest.raises(PermissionError), atomic_write(folder, replace_folder=True) as scratch:
        scratch.mkdir()
        monkeypatch.setattr(Path, "replace", fail)
    monkeypatch.undo()
    assert (folder / "inside").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1
    with atomic_write(folder, replace_folder=True) as scratch:
        scratch.mkdir()
        (scratch / "inside").write_text("new")
    assert (folder / "inside").read_text() == "new"
    assert len(list(tmp_path.iterdir())) == 1
