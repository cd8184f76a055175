"""A training as a job, for workers on other machines that share the run directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from equiflock.learning.training_run import TrainingRun


@dataclass(frozen=True)
class TrainingJob:
    """Completes a training created by `TrainingRun.create`, from its last checkpoint if a worker was interrupted."""

    folder: Path

    @property
    def key(self) -> str:
        """Name of the job."""
        return self.folder.name

    @property
    def labels(self) -> dict[str, Any]:
        """Column that identifies the job's row."""
        return {"training": self.folder.name}

    def run(self) -> pd.DataFrame:
        """Train unless done, and return a table with the number of epochs; all results are in the run directory.

        If another process trains there, wait for it.
        """
        # If two workers have the same job, the second waits and then finds it finished.
        run = TrainingRun(self.folder)
        run.train(wait=True)
        return pd.DataFrame({"epochs": [run.recipe.epochs]})
