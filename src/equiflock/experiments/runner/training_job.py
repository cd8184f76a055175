"""A training in a folder as a job, for workers on other machines that share the folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from equiflock.learning.training_run import TrainingRun


@dataclass(frozen=True)
class TrainingJob:
    """Trains to the end what `TrainingRun.create` began, from its last checkpoint if a worker was interrupted."""

    folder: Path

    @property
    def key(self) -> str:
        """The job's name."""
        return self.folder.name

    @property
    def labels(self) -> dict[str, Any]:
        """The column that marks its row."""
        return {"training": self.folder.name}

    def run(self) -> pd.DataFrame:
        """Train; the table only says that it was done, as all results are in the folder."""
        # Should two workers have the same job, the second waits and then finds it done.
        run = TrainingRun(self.folder)
        run.train(wait=True)
        return pd.DataFrame({"epochs": [run.recipe.epochs]})
