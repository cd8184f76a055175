"""Damaged or changed results of a training are detected and restored."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from equiflock.learning.training_run import TrainingRun
from tests.learning.small import small
from tests.learning.test_training_run import assert_same_results


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    TrainingRun.create(folder, small()).train()
    return folder


@pytest.fixture
def copy(undisturbed: Path, tmp_path: Path) -> TrainingRun:
    return TrainingRun(Path(shutil.copytree(undisturbed, tmp_path / "copy")))


def resumed(run: TrainingRun) -> tuple[list[int], list[str]]:
    """Return the repeated epochs and the notices."""
    epochs: list[int] = []
    said: list[str] = []
    run.train(lambda report: epochs.append(report.epoch), said.append)
    return epochs, said


def test_weights_that_were_cut_short_count_as_missing_and_come_back_from_the_last_checkpoint(
    copy: TrainingRun, undisturbed: Path
) -> None:
    assert copy.is_finished
    copy.weights.write_bytes(copy.weights.read_bytes()[:-1])
    assert not copy.is_finished
    epochs, (said,) = resumed(copy)
    assert epochs == []
    assert "weights.safetensors is not a safetensors file that can be read" in said
    assert said.endswith("it counts as missing and is rewritten")
    assert_same_results(copy.folder, undisturbed)


def test_without_the_last_checkpoint_they_are_trained_again_from_the_one_before(
    copy: TrainingRun, undisturbed: Path
) -> None:
    copy.weights.write_bytes(b"")
    copy.checkpoints[0].write_bytes(b"")
    epochs, said = resumed(copy)
    assert epochs == [5, 6]
    assert len(said) == 2
    assert_same_results(copy.folder, undisturbed)


def test_without_any_checkpoint_they_are_trained_again_from_the_start(copy: TrainingRun, undisturbed: Path) -> None:
    copy.weights.write_bytes(b"")
    shutil.rmtree(copy.folder / "checkpoints")
    epochs, (said,) = resumed(copy)
    assert epochs == [1, 2, 3, 4, 5, 6]
    assert said.endswith("there is no checkpoint, so the training restarts")
    assert_same_results(copy.folder, undisturbed)


def test_weights_of_another_recipe_are_rejected(copy: TrainingRun, undisturbed: Path, tmp_path: Path) -> None:
    other = TrainingRun.create(tmp_path / "other", small(learning_rate=1e-3))
    shutil.copy(other.train(), copy.weights)
    assert not copy.is_finished
    epochs, (said,) = resumed(copy)
    assert epochs == []
    assert "was trained with another recipe: recipe learning_rate = 0.001, not 5e-05" in said
    assert_same_results(copy.folder, undisturbed)


@pytest.mark.parametrize("name", ["metrics.csv", "validation.csv"])
def test_a_table_of_a_finished_training_that_was_changed_comes_back(
    copy: TrainingRun, undisturbed: Path, name: str
) -> None:
    path = copy.folder / name
    path.write_text(path.read_text().replace("0.9", "0.8"))
    assert not copy.is_finished
    epochs, (said,) = resumed(copy)
    assert epochs == []
    assert f"{name} was changed or is damaged: it is rewritten from the checkpoint" in said
    assert_same_results(copy.folder, undisturbed)


def test_a_table_that_cannot_be_restored_causes_a_notice_and_the_weights_stay(
    copy: TrainingRun, undisturbed: Path
) -> None:
    copy.metrics.unlink()
    shutil.rmtree(copy.folder / "checkpoints")
    epochs, (said,) = resumed(copy)
    assert epochs == []
    assert said.endswith(f"metrics.csv was changed or is damaged: remove {copy.weights} to train again")
    assert copy.weights.read_bytes() == (undisturbed / "weights.safetensors").read_bytes()


@pytest.mark.parametrize("name", ["metrics.csv", "validation.csv"])
def test_rows_changed_between_two_runs_are_rewritten(undisturbed: Path, tmp_path: Path, name: str) -> None:
    run = TrainingRun.create(tmp_path / "run", small())
    left = iter([False] * 5)
    with pytest.raises(KeyboardInterrupt):
        run.train(should_stop=lambda: next(left, True))
    path = run.folder / name
    path.write_text(path.read_text().replace("0.9", "0.8"))
    epochs, (said,) = resumed(TrainingRun(run.folder))
    assert epochs == [6]
    assert f"{name} was changed or is damaged: it is rewritten from the checkpoint" in said
    assert_same_results(run.folder, undisturbed)
