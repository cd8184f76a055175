"""A folder holds results of one set of settings, and says which."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest

from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import VersionMismatchError, compute_checksum, read_json, write_json
from equiflock._runtime.provenance import (
    FORMAT,
    claim_run_dir,
    list_differences,
    lock_run_dir,
    read_config,
    read_package_versions,
)
from equiflock.version import __version__


def finished(folder: Path) -> Path:
    """A folder with a result in it."""
    claim_run_dir(folder, "sweep", {"flocks": 5, "versions": read_package_versions()})
    (folder / "jobs").mkdir()
    (folder / "jobs" / "one.csv").write_text("1")
    return folder


def test_results_of_the_same_settings_are_gone_on_with(tmp_path: Path) -> None:
    folder = finished(tmp_path / "results")
    claim_run_dir(folder, "sweep", {"flocks": 5, "versions": read_package_versions()})
    assert (folder / "jobs" / "one.csv").exists()


def test_a_refusal_says_which_setting_differs(tmp_path: Path) -> None:
    folder = finished(tmp_path / "results")
    with pytest.raises(InputError, match=r"other settings: flocks = 5, not 6; choose another .* --force"):
        claim_run_dir(folder, "sweep", {"flocks": 6, "versions": read_package_versions()})
    with pytest.raises(InputError, match=r"other settings: versions numpy = [\d.]+, not 9"):
        claim_run_dir(folder, "sweep", {"flocks": 5, "versions": {**read_package_versions(), "numpy": "9"}})


def test_what_failed_before_its_first_result_blocks_nobody(tmp_path: Path) -> None:
    claim_run_dir(tmp_path / "results", "sweep", {"flocks": 5})
    (tmp_path / "results" / "jobs").mkdir()
    claim_run_dir(tmp_path / "results", "sweep", {"flocks": 6})
    assert read_json(tmp_path / "results" / "config.json")["flocks"] == 6


def test_a_folder_of_version_0_2_is_refused_in_one_line_until_force_begins_anew(tmp_path: Path) -> None:
    folder = finished(tmp_path / "results")
    config = read_json(folder / "config.json")
    assert config.pop("format") == FORMAT
    write_json({**config, "versions": {"equiflock": "0.2.0"}}, folder / "config.json")
    text = f"^{folder} was written by equiflock 0.2.0 and cannot be continued by {__version__}: choose another folder"
    for read in (lambda: read_config(folder), lambda: claim_run_dir(folder, "sweep", {"flocks": 5})):
        with pytest.raises(VersionMismatchError, match=text):
            read()
    force(folder)
    assert read_config(folder) == {"kind": "sweep", "flocks": 6}


def force(folder: Path, kind: str = "sweep") -> None:
    with lock_run_dir(folder, kind, {"flocks": 6}, ("jobs", "*.csv"), force=True):
        pass


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_force_begins_anew(tmp_path: Path) -> None:
    folder = finished(tmp_path / "results")
    (folder / "sweep.csv").write_text("1")
    force(folder)
    assert visible(folder) == ["config.json"]
    force(tmp_path / "new")
    (tmp_path / "empty").mkdir()
    force(tmp_path / "empty")


def test_a_folder_is_one_process_s_at_a_time(tmp_path: Path) -> None:
    with (
        lock_run_dir(tmp_path, "sweep", {"flocks": 6}, ()),
        pytest.raises(InputError, match="another process is writing"),
    ):
        force(tmp_path)


def test_other_things_are_never_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="contains other files"):
        claim_run_dir(tmp_path, "sweep", {"flocks": 5})
    with pytest.raises(InputError, match="contains other files"):
        force(tmp_path)
    # Somebody else's config, which happens to have a checksum, or none that can be read.
    for text in ('{"checksum": "sha256"}', "", "{"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(InputError, match="contains other files"):
            force(tmp_path)
    assert visible(tmp_path) == ["config.json", "thesis.txt"]


def test_a_run_directory_of_version_0_2_is_refused_in_one_line_and_replaced_by_force(tmp_path: Path) -> None:
    folder = finished(tmp_path / "results")
    config = {"kind": "sweep", "flocks": 5, "versions": {"equiflock": "0.2.0"}}
    checksum = f"{zlib.crc32(json.dumps(config, sort_keys=True).encode()):08x}"
    (folder / "config.json").write_text(json.dumps({**config, "checksum": checksum}))
    with pytest.raises(VersionMismatchError, match=r"was written by equiflock 0\.2\.0 and cannot be continued by"):
        claim_run_dir(folder, "sweep", {"flocks": 5})
    force(folder)
    assert visible(folder) == ["config.json"]


def test_a_checksum_that_differs_is_shown_in_short() -> None:
    one, other = compute_checksum(b"one"), compute_checksum(b"other")
    (line,) = list_differences({"laws.py": one}, {"laws.py": other})
    assert line == f"laws.py = {one[:12]}, not {other[:12]}"


def test_force_stops_at_what_is_no_result(tmp_path: Path) -> None:
    folder = finished(tmp_path / "results")
    (folder / "notes.txt").write_text("what I learned")
    with pytest.raises(InputError, match=r"notes\.txt is not a result of a sweep: move it elsewhere"):
        force(folder)
    assert visible(folder) == ["config.json", "jobs", "notes.txt"]


def test_a_folder_of_another_kind_is_called_by_its_kind(tmp_path: Path) -> None:
    folder = finished(tmp_path / "results")
    with pytest.raises(InputError, match="the run directory of a sweep, not of an evaluation"):
        claim_run_dir(folder, "evaluation", {"flocks": 5})
    content = (folder / "config.json").read_text()
    for text in (content, content.replace("5", "6")):  # a damaged one, too
        (folder / "config.json").write_text(text)
        with pytest.raises(
            InputError, match=r"contains other files, or has lost its config\.json: --force removes only an evaluation"
        ):
            force(folder, "evaluation")
    assert (folder / "jobs" / "one.csv").exists()


def test_a_damaged_config_is_refused_beside_results(tmp_path: Path) -> None:
    folder = finished(tmp_path / "results")
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace("5", "6"))
    with pytest.raises(InputError, match=r"config\.json is damaged"):
        claim_run_dir(folder, "sweep", {"flocks": 6, "versions": read_package_versions()})
    force(folder)
    assert visible(folder) == ["config.json"]
