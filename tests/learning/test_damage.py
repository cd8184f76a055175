"""Damage to any file of a training raises InputError, or is repaired with a notice."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import read_json, write_json
from equiflock.learning.training_run import TrainingRun
from tests.damage import DAMAGES, empty
from tests.learning.small import small
from tests.learning.test_training_run import assert_same_results

STOPPED = "config.json", "metrics.csv", "validation.csv", "from.safetensors", "checkpoints/epoch-000005.safetensors"
FINISHED = "config.json", "metrics.csv", "validation.csv", "weights.safetensors"
"""The files that are read when a training goes on."""
TIMES = 2
"""That a kind of damage is done, each time in another place."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A training that began from weights: one that was stopped after five of six epochs, and the same finished."""
    return train_twice(tmp_path_factory.mktemp("runs"), seed=0)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same with another seed."""
    return train_twice(tmp_path_factory.mktemp("others"), seed=1)


def train_twice(scratch: Path, seed: int) -> tuple[Path, Path]:
    first = TrainingRun.create(scratch / "first", small(epochs=1, seed=seed)).train()
    left = iter([False] * 5)
    stopped = TrainingRun.create(scratch / "stopped", small(seed=seed), first)
    with pytest.raises(KeyboardInterrupt):
        stopped.train(should_stop=lambda: next(left, True))
    finished = Path(shutil.copytree(stopped.folder, scratch / "finished"))
    TrainingRun(finished).train()
    return stopped.folder, finished


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize(("name", "done"), [*((name, False) for name in STOPPED), *((name, True) for name in FINISHED)])
def test_no_damage_goes_unnoticed(
    runs: tuple[Path, Path], tmp_path: Path, name: str, damage: Callable[[Path, random.Random], None], done: bool
) -> None:
    for number in range(1 if damage is empty else TIMES):
        folder = Path(shutil.copytree(runs[done], tmp_path / str(number)))
        path = folder / name
        before = path.read_bytes()
        damage(path, random.Random(f"{number} {name}"))
        assert path.read_bytes() != before
        said: list[str] = []
        try:
            TrainingRun(folder).train(on_notice=said.append)
        except InputError as error:
            assert name.split("/")[-1] in str(error)
            assert "\n" not in str(error)
            continue
        assert_same_results(folder, runs[True])
        assert any(name.split("/")[-1] in line for line in said), said


@pytest.mark.parametrize(("name", "done"), [*((name, False) for name in STOPPED), *((name, True) for name in FINISHED)])
def test_no_file_of_a_training_of_another_seed_goes_unnoticed(
    runs: tuple[Path, Path], others: tuple[Path, Path], tmp_path: Path, name: str, done: bool
) -> None:
    folder = Path(shutil.copytree(runs[done], tmp_path / "run"))
    shutil.copy(others[done] / name, folder / name)
    check_noticed(folder, runs[True], name.rpartition("/")[2])


def test_weights_and_checkpoints_of_a_training_with_other_versions_are_noticed(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    for done, name in ((True, "weights.safetensors"), (False, "checkpoints/epoch-000005.safetensors")):
        folder = Path(shutil.copytree(runs[done], tmp_path / f"{done}"))
        config = read_json(folder / "config.json")
        write_json({**config, "versions": {**config["versions"], "torch": "1.0"}}, folder / "config.json")
        notices: list[str] = []
        with pytest.raises(InputError, match="was written by another training: versions torch"):
            TrainingRun(folder).train(on_notice=notices.append)
        assert not done or "weights.safetensors is of another training, started with torch" in notices[0], name


def test_a_checkpoint_under_the_name_of_a_later_epoch_is_noticed(runs: tuple[Path, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(runs[0], tmp_path / "run"))
    later, earlier = TrainingRun(folder).checkpoints
    shutil.copy(earlier, later)
    check_noticed(folder, runs[True], later.name)
    assert [path.name for path in TrainingRun(folder).checkpoints] == ["epoch-000006.safetensors", earlier.name]


def check_noticed(folder: Path, undamaged: Path, name: str) -> None:
    """Continue a damaged training; raise AssertionError unless it is refused, or repaired with a notice of the file."""
    notices: list[str] = []
    try:
        TrainingRun(folder).train(on_notice=notices.append)
    except InputError as error:
        assert "\n" not in str(error)
        return
    assert_same_results(folder, undamaged)
    assert any(name in line for line in notices), notices


def test_both_checkpoints_damaged_are_refused(runs: tuple[Path, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(runs[0], tmp_path / "run"))
    rng: Any = random.Random(0)
    for path in TrainingRun(folder).checkpoints:
        DAMAGES[0](path, rng)
    with pytest.raises(InputError, match="there is no other checkpoint"):
        TrainingRun(folder).train()
