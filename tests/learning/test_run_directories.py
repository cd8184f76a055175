"""Run directories are cleared for a new training only if no results are lost, or with force."""

from __future__ import annotations

from pathlib import Path

import pytest
from filelock import FileLock

from equiflock._runtime.checks import InputError
from equiflock._runtime.provenance import write_config
from equiflock.learning.run_directory import clear_run_dir, remove_empty_trainings
from equiflock.learning.training_run import TrainingRun
from tests.learning.small import small
from tests.learning.test_training_run import Stop, stop_after


def begun(folder: Path, epochs: int = 1) -> TrainingRun:
    run = TrainingRun.create(folder, small())
    with pytest.raises(Stop):
        run.train(stop_after(epochs))
    return run


def test_a_training_killed_before_its_first_checkpoint_is_replaced(tmp_path: Path) -> None:
    begun(tmp_path / "run")
    assert TrainingRun.create(tmp_path / "run", small(seed=1)).recipe.seed == 1
    (tmp_path / "run" / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="exists already"):
        TrainingRun.create(tmp_path / "run", small())


def test_a_training_with_a_checkpoint_is_replaced_only_with_force(tmp_path: Path) -> None:
    folder = begun(tmp_path / "run", 2).folder
    with pytest.raises(InputError, match=rf"{folder} exists already: continue with --resume {folder}, .* with --force"):
        TrainingRun.create(folder, small(seed=1))
    assert TrainingRun.create(folder, small(seed=1), force=True).checkpoints == []


@pytest.mark.parametrize("force", [False, True])
def test_no_training_is_replaced_while_a_process_trains_there(tmp_path: Path, force: bool) -> None:
    folder = begun(tmp_path / "run").folder
    with FileLock(folder / ".lock"), pytest.raises(InputError, match="another process is writing to"):
        TrainingRun.create(folder, small(), force=force)
    assert TrainingRun(folder).recipe == small()


@pytest.mark.parametrize("force", [False, True])
def test_other_directories_are_never_cleared(tmp_path: Path, force: bool) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="exists already and contains other files"):
        clear_run_dir(tmp_path, force)
    write_config(tmp_path, "sweep", {})
    with pytest.raises(InputError, match="exists already and contains other files"):
        clear_run_dir(tmp_path, force)
    assert (tmp_path / "thesis.txt").exists()


def test_several_trainings_are_cleared_together(tmp_path: Path) -> None:
    begun(tmp_path / "all" / "0")
    begun(tmp_path / "all" / "1", 2)
    remove_empty_trainings(tmp_path / "all")
    with pytest.raises(InputError, match="exists already: continue with --resume"):
        clear_run_dir(tmp_path / "all")
    (tmp_path / "all" / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="contains other files"):
        clear_run_dir(tmp_path / "all", force=True)
    (tmp_path / "all" / "thesis.txt").unlink()
    clear_run_dir(tmp_path / "all", force=True)
    assert not (tmp_path / "all").exists()


def test_what_failed_without_a_result_is_removed(tmp_path: Path) -> None:
    begun(tmp_path / "all" / "0")
    begun(tmp_path / "all" / "1")
    remove_empty_trainings(tmp_path / "all")
    assert not (tmp_path / "all").exists()
    remove_empty_trainings(tmp_path / "all")


def test_a_file_beside_failed_trainings_is_kept(tmp_path: Path) -> None:
    begun(tmp_path / "all" / "0")
    begun(tmp_path / "all" / "1")
    (tmp_path / "all" / "thesis.txt").write_text("years of work")
    remove_empty_trainings(tmp_path / "all")
    assert (tmp_path / "all" / "thesis.txt").exists()
