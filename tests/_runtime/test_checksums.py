"""A file that was changed is noticed, whatever was changed in it."""

from __future__ import annotations

import hashlib
import json
import random
import zlib
from contextlib import suppress
from pathlib import Path

import pytest

from equiflock._runtime.checksums import (
    DamagedError,
    compute_checksum,
    matches_checksum,
    read_json,
    read_text,
    write_json,
    write_text,
)
from tests.damage import DAMAGES

TEXT = "epoch,loss\n1,0.5\n2,0.25\n"
SETTINGS = {"flocks": 5, "name": "Zürich", "nested": {"rates": [0.1, 1e-9, None, True]}}


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    write_text(TEXT, tmp_path / "table.csv", "losses")
    write_json(SETTINGS, tmp_path / "config.json")
    assert read_text(tmp_path / "table.csv", "losses") == TEXT
    assert read_json(tmp_path / "config.json") == SETTINGS


def test_a_checksum_of_parts_is_the_sha_256_of_the_whole() -> None:
    assert compute_checksum(b"flo", b"ck") == hashlib.sha256(b"flock").hexdigest() != compute_checksum(b"ckflo")


def test_a_text_is_read_with_its_own_key_only(tmp_path: Path) -> None:
    write_text(TEXT, tmp_path / "table.csv", "seed 1")
    for key in ("seed 2", "", "seed 1\n", f"seed 1{TEXT}"):
        with pytest.raises(DamagedError, match="misplaced"):
            read_text(tmp_path / "table.csv", key)


def test_a_text_is_not_the_end_of_another_one_with_a_longer_key(tmp_path: Path) -> None:
    write_text("b,c\n", tmp_path / "table.csv", "a,")
    (tmp_path / "table.csv").write_bytes(b"a," + (tmp_path / "table.csv").read_bytes())
    with pytest.raises(DamagedError):
        read_text(tmp_path / "table.csv", "")


def test_checksums_of_version_0_2_are_recognized(tmp_path: Path) -> None:
    old = f"{zlib.crc32(b'flock'):08x}"
    assert matches_checksum(old, b"flo", b"ck") and matches_checksum(compute_checksum(b"flock"), b"flo", b"ck")
    assert not any(matches_checksum(each, b"flocks") for each in (old, compute_checksum(b"flock"), "", None, 7))
    checksum = f"{zlib.crc32(json.dumps(SETTINGS, sort_keys=True).encode()):08x}"
    (tmp_path / "config.json").write_text(json.dumps({**SETTINGS, "checksum": checksum}))
    assert read_json(tmp_path / "config.json") == SETTINGS


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_no_damage_goes_unnoticed(tmp_path: Path, damage: object) -> None:
    rng = random.Random(0)
    for _ in range(40):
        write_text(TEXT, tmp_path / "table.csv", "losses")
        damage(tmp_path / "table.csv", rng)  # type: ignore[operator]
        with pytest.raises(DamagedError, match="is damaged or misplaced: its checksum does not match"):
            read_text(tmp_path / "table.csv", "losses")
        write_json(SETTINGS, tmp_path / "config.json")
        damage(tmp_path / "config.json", rng)  # type: ignore[operator]
        with suppress(DamagedError):
            assert read_json(tmp_path / "config.json") == SETTINGS  # such as a blank that became a tab
