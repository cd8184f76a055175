"""Several trainings at once, each in its run directory, as jobs for local processes or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from equiflock._runtime.checks import InputError
from equiflock._runtime.executors import Executor, Prepare, is_stop_requested, send_message
from equiflock.learning.training_run import TrainingRun
from equiflock.learning.validation import EpochReport


@dataclass(frozen=True)
class TrainingJob:
    """Completes a training that `TrainingRun.create` made, from its last checkpoint; results are in its directory."""

    folder: Path
    wait: bool = False
    """Whether to wait while another process trains in the directory."""

    @property
    def key(self) -> str:
        """Name of the job."""
        return self.folder.name

    @property
    def labels(self) -> dict[str, Any]:
        """Column that identifies the job's row."""
        return {"training": self.folder.name}

    def run(self) -> pd.DataFrame:
        """Train unless done, and return a table with the number of epochs; send every report and notice.

        Raise KeyboardInterrupt, after a checkpoint is written, if the executor requests a stop.
        """
        if is_stop_requested():
            raise KeyboardInterrupt
        run = TrainingRun(self.folder)

        def send(content: EpochReport | str) -> None:
            send_message((self.folder, content))

        run.train(send, send, self.wait, is_stop_requested)
        return pd.DataFrame({"epochs": [run.recipe.epochs]})


def train_several(
    folders: Sequence[Path],
    workers: int,
    on_epoch: Callable[[Path, EpochReport], object] = lambda folder, report: None,
    on_notice: Callable[[Path, str], object] = lambda folder, text: None,
    prepare: Prepare = None,
    should_stop: Callable[[], bool] = lambda: False,
    scheduler: str | None = None,
    on_done: Callable[[], object] = lambda: None,
) -> None:
    """Complete the trainings in these run directories, `workers` of them at a time, or on the workers of a scheduler.

    One training with one worker runs in this process. If a process dies, its training continues from the last
    checkpoint in a new one (see `Executor`, also for `prepare`, `should_stop` and `scheduler`). `on_epoch` is called
    with the run directory and the report of every epoch, `on_notice` with a line of text for the user; on a cluster,
    only `on_done` is called, after every finished training.

    Raises:
        InputError: if trainings failed, after the others are finished; with the text of each error.
        KeyboardInterrupt: if `should_stop` returned True and none failed; every training has completed its epoch and
            written a checkpoint.
    """
    jobs = [TrainingJob(path) if scheduler is None else TrainingJob(path.resolve(), wait=True) for path in folders]

    def forward(message: tuple[Path, EpochReport | str]) -> None:
        folder, content = message
        if isinstance(content, str):
            on_notice(folder, content)
        else:
            on_epoch(folder, content)

    errors: dict[Path, BaseException] = {}
    with Executor(workers, scheduler, prepare, len(jobs) == 1, forward, should_stop) as executor:
        for number, outcome in executor.run(jobs):
            if isinstance(outcome, BaseException):
                errors[folders[number]] = outcome
            else:
                on_done()
    failures = {folder: error for folder, error in errors.items() if not isinstance(error, KeyboardInterrupt)}
    for error in failures.values():
        if len(jobs) == 1 or not isinstance(error, (InputError, OSError)):
            raise error
    if failures:
        texts = (f"{folder}: {str(error) or type(error).__name__}" for folder, error in failures.items())
        raise InputError("; ".join(texts))
    if errors:
        raise KeyboardInterrupt
