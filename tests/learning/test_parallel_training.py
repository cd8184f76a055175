"""Parallel trainings give the same results as single ones."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

from equiflock._runtime.checks import InputError
from equiflock.learning.parallel_training import train_several
from equiflock.learning.training_run import TrainingRun
from tests.learning.small import small

if TYPE_CHECKING:  # processes that only look up how they are prepared need no torch, which takes seconds
    from equiflock.learning.validation import EpochReport

pytestmark = pytest.mark.slow


def test_trainings_side_by_side_are_those_one_by_one_and_one_that_fails_does_not_stop_the_others(
    tmp_path: Path,
) -> None:
    alone = TrainingRun.create(tmp_path / "alone", small(seed=1))
    alone.train()
    folders = [tmp_path / f"{seed}" for seed in range(3)]
    for seed, folder in enumerate(folders):
        TrainingRun.create(folder, small(seed=seed, learning_rate=1e30 if seed == 0 else 5e-5))
    seen: list[tuple[str, int]] = []
    with pytest.raises(InputError, match=rf"{folders[0]}: the training diverged in epoch 1"):
        train_several(folders, workers=2, on_epoch=lambda folder, report: seen.append((folder.name, report.epoch)))
    assert sorted(seen) == [(name, epoch) for name in ("1", "2") for epoch in range(1, 7)]
    assert (folders[1] / "weights.safetensors").read_bytes() == alone.weights.read_bytes()
    assert TrainingRun(folders[2]).is_finished


def test_trainings_whose_process_is_killed_continue_in_a_new_one(tmp_path: Path) -> None:
    folders = [tmp_path / "0", tmp_path / "1"]
    for seed, folder in enumerate(folders):
        TrainingRun.create(folder, small(seed=seed))
        TrainingRun.create(tmp_path / f"alone-{seed}", small(seed=seed)).train()
    killed: list[int | None] = []

    def kill_one(folder: Path, report: EpochReport) -> None:
        if not killed:
            process = multiprocessing.active_children()[0]
            killed.append(process.pid)
            process.kill()

    train_several(folders, workers=2, on_epoch=kill_one)
    for seed, folder in enumerate(folders):
        assert TrainingRun(folder).is_finished
        weights = [path / "weights.safetensors" for path in (folder, tmp_path / f"alone-{seed}")]
        assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.parametrize(("end", "workers"), [(signal.SIGTERM, 1), (signal.SIGKILL, 2)])
def test_no_process_outlives_the_command(tmp_path: Path, end: signal.Signals, workers: int) -> None:
    """Ctrl-C is tested where trainings write their checkpoints after it, in tests/cli/test_train.py."""
    folder = tmp_path / "several"
    options = ["--agents", "20", "--flocks", "5", "--duration", "0.2", "--updates", "5", "--epochs", "100000"]
    command = ["train", "--seeds", "0-1", "--workers", str(workers), "--validation-flocks", "2", *options]
    process = subprocess.Popen(
        [sys.executable, "-m", "equiflock", *command, "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    tables = [folder / f"etdagnn-{seed}" / "metrics.csv" for seed in range(workers)]
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not all(t.exists() and t.read_text().count("\n") > 2 for t in tables):
        time.sleep(0.1)
    process.send_signal(end)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == {signal.SIGTERM: 143, signal.SIGKILL: -9}[end]
    assert b"Traceback" not in errors
    # After SIGKILL only the resource tracker can remove the semaphores, and it prints a warning.
    assert end == signal.SIGKILL or b"leaked" not in errors
    for seed in range(workers):  # the lock is free again
        with FileLock(folder / f"etdagnn-{seed}" / ".lock", timeout=30):
            pass


def test_a_process_that_always_dies_is_reported(tmp_path: Path) -> None:
    TrainingRun.create(tmp_path / "run", small())
    with pytest.raises(InputError, match=r"worker processes died 3 times, .*; not done: run"):
        train_several([tmp_path / "run"], workers=2, prepare=_die)


def _die() -> None:
    os._exit(1)


def test_a_process_takes_one_training_after_the_other_and_a_failure_of_one_is_not_the_next_ones(tmp_path: Path) -> None:
    folders = [tmp_path / f"{seed}" for seed in range(3)]
    for seed, folder in enumerate(folders):
        TrainingRun.create(folder, small(seed=seed, epochs=2, learning_rate=1e30 if seed == 1 else 5e-5))
    processes: dict[str, set[int | None]] = {}

    def note_processes(folder: Path, report: EpochReport) -> None:
        processes.setdefault(folder.name, set()).update(child.pid for child in multiprocessing.active_children())

    with pytest.raises(InputError, match=rf"^{folders[1]}: the training diverged in epoch 1"):
        train_several(folders, workers=1, on_epoch=note_processes)
    assert len(processes["0"]) == 1
    assert processes["0"] == processes["2"]
    assert [TrainingRun(folder).is_finished for folder in folders] == [True, False, True]


def test_a_preparation_that_fails_is_the_failure_of_every_training(tmp_path: Path) -> None:
    folders = [tmp_path / "0", tmp_path / "1"]
    for folder in folders:
        TrainingRun.create(folder, small())
    with pytest.raises(InputError, match=rf"^{folders[0]}: not prepared; {folders[1]}: not prepared$"):
        train_several(folders, workers=1, prepare=_refuse)


def _refuse() -> None:
    raise InputError("not prepared")
