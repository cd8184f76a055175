"""Damage to any file of a training raises InputError, or is repaired with a notice."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from equiflock._runtime.checks import InputError
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
    scratch = tmp_path_factory.mktemp("runs")
    first = TrainingRun.create(scratch / "first", small(epochs=1)).train()
    left = iter([False] * 5)
    stopped = TrainingRun.create(scratch / "stopped", small(), first)
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


def test_both_checkpoints_damaged_are_refused(runs: tuple[Path, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(runs[0], tmp_path / "run"))
    rng: Any = random.Random(0)
    for path in TrainingRun(folder).checkpoints:
        DAMAGES[0](path, rng)
    with pytest.raises(InputError, match="there is no other checkpoint"):
        TrainingRun(folder).train()
