"""Damage to the files of an experiment never changes its results: they are computed again, or an error says why not."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import read_json
from equiflock._runtime.executors import run_jobs
from equiflock._runtime.jobs import get_result_path, read_results, write_result
from equiflock._runtime.provenance import claim_run_dir
from equiflock.learning.fast_forward import FastForward, FastForwardData
from tests.damage import DAMAGES

TRIES = 6
"""Number of tries of every kind of damage on every kind of file."""
DATA = FastForward(train_flocks=1, test_flocks=1, steps=4, agents=8)
CONFIG = {"settings": {"flocks": 5, "rate": 0.25}, "sources": {"laws.py": "1a2b3c4d"}, "versions": {"numpy": "2.0"}}


@dataclass(frozen=True)
class Powers:
    """A table of a few dozen numbers and a text."""

    number: int

    @property
    def key(self) -> str:
        return f"powers-{self.number}"

    @property
    def labels(self) -> dict[str, Any]:
        return {"number": self.number}

    def run(self) -> pd.DataFrame:
        return pd.DataFrame({"power": [self.number**0.1**k for k in range(40)], "remark": "none"})


JOBS = [Powers(2), Powers(3)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an experiment with its config, jobs and data."""
    folder = tmp_path_factory.mktemp("whole") / "experiment"
    claim_run_dir(folder, "experiment", CONFIG)
    (folder / "jobs").mkdir()
    for job in JOBS:
        write_result(job.run(), job, folder / "jobs")
    DATA.make(folder / "data")
    return folder


def same(one: Path, other: Path) -> bool:
    return one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_no_damage_to_a_job_changes_a_table(damage: Any, whole: Path, tmp_path: Path, jobs_here: None) -> None:
    rng, before = random.Random(1), read_results(JOBS, whole / "jobs")
    for number in range(TRIES):
        folder = tmp_path / f"{number}"
        shutil.copytree(whole / "jobs", folder)
        damage(get_result_path(rng.choice(JOBS), folder), rng)
        notices: list[str] = []
        run_jobs(JOBS, folder, 1, on_notice=notices.append)
        pd.testing.assert_frame_equal(read_results(JOBS, folder), before, check_exact=True)
        assert len(notices) == 1


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("name", ["sum.npy", "mean.npy", "targets.npy", "parts/2"])
def test_no_damage_to_the_data_is_learned_from(damage: Any, name: str, whole: Path, tmp_path: Path) -> None:
    rng = random.Random(2)
    for number in range(TRIES):
        folder = tmp_path / f"{number}"
        shutil.copytree(whole / "data", folder)
        damage(folder / name, rng)
        with pytest.raises(InputError, match="is damaged at"):
            FastForwardData.open(folder)
        notices: list[str] = []
        DATA.make(folder, workers=1, on_notice=notices.append)
        assert len(notices) == 1
        assert all(same(folder / f"{array}.npy", whole / "data" / f"{array}.npy") for array in DATA.shapes)


def test_data_of_another_seed_is_not_learned_from(whole: Path, tmp_path: Path) -> None:
    other = replace(DATA, seed=1)
    other.make(tmp_path / "other")
    folder = Path(shutil.copytree(whole / "data", tmp_path / "data"))
    for part in ("sum.npy", "mean.npy", "targets.npy", *(f"parts/{step}" for step in range(DATA.index_count))):
        shutil.copy(tmp_path / "other" / part, folder / part)
    with pytest.raises(InputError, match="is damaged at all 5 time indices"):
        FastForwardData.open(folder)
    notices: list[str] = []
    DATA.make(folder, workers=1, on_notice=notices.append)
    assert len(notices) == 1
    assert all(same(folder / f"{array}.npy", whole / "data" / f"{array}.npy") for array in DATA.shapes)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_no_damage_to_a_config_lets_results_of_other_settings_in(damage: Any, whole: Path, tmp_path: Path) -> None:
    rng = random.Random(3)
    for number in range(TRIES):
        folder = tmp_path / f"{number}"
        shutil.copytree(whole, folder)
        damage(folder / "config.json", rng)
        damage(folder / "data" / "config.json", rng)
        try:
            claim_run_dir(folder, "experiment", CONFIG)
            assert read_json(folder / "config.json") == read_json(whole / "config.json")  # such as a blank less
        except InputError as error:
            assert "damaged" in str(error)
        DATA.make(folder / "data", workers=1)
        assert same(folder / "data" / "sum.npy", whole / "data" / "sum.npy")
        assert FastForwardData.open(folder / "data").recipe == DATA
