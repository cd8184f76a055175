"""Several trainings at once give what each gives by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from equiflock.imitation.run import TrainingRun
from equiflock.imitation.several import train_several
from equiflock.types import InputError
from tests.imitation.small import small


def test_trainings_side_by_side_are_those_one_by_one_and_one_that_fails_does_not_stop_the_others(
    tmp_path: Path,
) -> None:
    alone = TrainingRun.create(tmp_path / "alone", small(seed=1))
    alone.train()
    folders = [tmp_path / f"{seed}" for seed in range(3)]
    for seed, folder in enumerate(folders):
        TrainingRun.create(folder, small(seed=seed, learning_rate=1e30 if seed == 0 else 5e-5))
    seen: list[tuple[str, int]] = []
    with pytest.raises(InputError, match=rf"{folders[0]}: the loss turned .* in epoch 1"):
        train_several(folders, workers=2, on_epoch=lambda folder, report: seen.append((folder.name, report.epoch)))
    assert sorted(seen) == [(name, epoch) for name in ("1", "2") for epoch in range(1, 7)]
    assert (folders[1] / "weights.safetensors").read_bytes() == alone.weights.read_bytes()
    assert TrainingRun(folders[2]).finished


def test_a_process_that_dies_is_reported(tmp_path: Path) -> None:
    TrainingRun.create(tmp_path / "run", small())
    with pytest.raises(InputError, match="its process ended with code 1"):
        train_several([tmp_path / "run"], workers=1, prepare=_die)


def _die() -> None:
    raise SystemExit(1)
