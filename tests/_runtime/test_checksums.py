"""A file that was changed is noticed, whatever was changed in it."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from equiflock._runtime.checksums import DamagedError, compute_checksum, read_json, read_text, write_json, write_text
from tests.damage import DAMAGES

TEXT = "epoch,loss\n1,0.5\n2,0.25\n"
SETTINGS = {"flocks": 5, "name": "Zürich", "nested": {"rates": [0.1, 1e-9, None, True]}}


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    write_text(TEXT, tmp_path / "table.csv")
    write_json(SETTINGS, tmp_path / "config.json")
    assert read_text(tmp_path / "table.csv") == TEXT
    assert read_json(tmp_path / "config.json") == SETTINGS


def test_a_checksum_of_parts_is_that_of_the_whole() -> None:
    assert compute_checksum(b"flo", b"ck") == compute_checksum(b"flock") != compute_checksum(b"ckflo")


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_no_damage_goes_unnoticed(tmp_path: Path, damage: object) -> None:
    rng = random.Random(0)
    for _ in range(40):
        write_text(TEXT, tmp_path / "table.csv")
        damage(tmp_path / "table.csv", rng)  # type: ignore[operator]
        with pytest.raises(DamagedError, match="damaged: its checksum does not match"):
            read_text(tmp_path / "table.csv")
        write_json(SETTINGS, tmp_path / "config.json")
        damage(tmp_path / "config.json", rng)  # type: ignore[operator]
        with suppress(DamagedError):
            assert read_json(tmp_path / "config.json") == SETTINGS  # such as a blank that became a tab
