"""Nothing half-written stands under a final name."""

from __future__ import annotations

from pathlib import Path

import pytest

from equiflock.files import refuse_existing, written_whole
from equiflock.types import InputError


def test_a_file_or_folder_appears_at_once_and_replaces_the_old(tmp_path: Path) -> None:
    for text in ("first", "second"):
        with written_whole(tmp_path / "deep" / "note.txt") as scratch:
            scratch.write_text(text)
            assert scratch.suffix == ".txt"
        with written_whole(tmp_path / "deep" / "folder") as scratch:
            scratch.mkdir()
            (scratch / "inside").write_text(text)
    assert (tmp_path / "deep" / "note.txt").read_text() == "second"
    assert (tmp_path / "deep" / "folder" / "inside").read_text() == "second"
    assert len(list((tmp_path / "deep").iterdir())) == 2


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, OSError])
def test_an_interrupted_write_leaves_everything_as_it_was(tmp_path: Path, interruption: type[BaseException]) -> None:
    (tmp_path / "note.txt").write_text("old")
    with pytest.raises(interruption), written_whole(tmp_path / "note.txt") as scratch:
        scratch.write_text("half")
        raise interruption
    with pytest.raises(interruption), written_whole(tmp_path / "folder") as scratch:
        scratch.mkdir()
        raise interruption
    assert (tmp_path / "note.txt").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_existing_things_can_be_refused(tmp_path: Path) -> None:
    refuse_existing(tmp_path / "new")
    with pytest.raises(InputError, match="exists already"):
        refuse_existing(tmp_path)
