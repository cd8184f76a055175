"""A training in a folder as a job, for workers elsewhere that share the folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from equiflock.learning.run import TrainingRun


@dataclass(frozen=True)
class TrainingJob:
    """What `TrainingRun.create` began, taken to its end; whoever takes it over goes on from its last checkpoint."""

    folder: Path

    @property
    def key(self) -> str:
        """The job's name."""
        return self.folder.name

    @property
    def labels(self) -> dict[str, Any]:
        """Of its row."""
        return {"training": self.folder.name}

    def run(self) -> pd.DataFrame:
        """Train; the table says only what was done, as everything is in the folder."""
        run = TrainingRun(self.folder)
        run.train(wait=True)
        return pd.DataFrame({"epochs": [run.recipe.epochs]})
