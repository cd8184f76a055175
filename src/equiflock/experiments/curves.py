"""Curves over time or epochs, as quartiles over flocks: tables that jobs make, and their reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float64

from equiflock.controllers import load
from equiflock.controllers.loading import find_weights_file, has_open_seed
from equiflock.protocols import Controller
from equiflock.runtime.checksums import compute_file_checksum

QUARTILES = {"lower": 0.25, "median": 0.5, "upper": 0.75}


def load_with_seed(controller: str, seed: int | None) -> Controller:
    """The controller of a job: trained with a seed, or one that has none."""
    # Bundled networks are trained with several seeds; a file or a law is one controller.
    return load(controller, seed=seed) if has_open_seed(controller) else load(controller)


def compute_weights_checksum(controller: str, seed: int | None = None) -> str:
    """The checksum of the file of weights that `load_with_seed` loads; empty if there is no such file."""
    path = find_weights_file(controller, seed=seed) if has_open_seed(controller) else find_weights_file(controller)
    return compute_file_checksum(path) if path is not None and path.is_file() else ""


def build_curve_table(series: Mapping[str, Float64[np.ndarray, "steps B"]], time_step: float) -> pd.DataFrame:
    """Recorded series every hundredth of a second: time, metric, lower, median, upper and mean over flocks."""
    # The table is for figures, so a hundredth of a second is fine enough at any time step.
    every = max(round(0.01 / time_step), 1)
    tables = []
    for name, recorded in series.items():
        values = recorded[::every]
        # Times are rounded below, so that those of all jobs of an experiment are equal as numbers.
        columns: dict[str, Any] = {"time": np.arange(len(values)) * every * time_step, "metric": name}
        columns |= {label: np.quantile(values, q, axis=1) for label, q in QUARTILES.items()}
        tables.append(pd.DataFrame(columns | {"mean": values.mean(axis=1)}))
    return pd.concat(tables, ignore_index=True).round({"time": 9})


class Curves:
    """Reads the curves of each controller and seed, over time or epochs, from the table of an experiment.

    Args:
        table: with the columns controller, seed, `over`, and others that mark its rows, such as metric or agents.
        over: the column along which curves run.
    """

    def __init__(self, table: pd.DataFrame, over: Literal["time", "epoch"] = "time") -> None:
        self.table, self.over = table, over
        self.x: Any = np.sort(table[over].unique())
        """Times or epochs, (X,)."""

    def get_curve(self, quantity: str, controller: str, **filters: Any) -> Float64[np.ndarray, "S X"]:
        """A column of the table along the curve, for every seed; `filters` says of which rows, such as metric="ivv"."""
        return np.asarray(self._pivot(quantity, controller, filters), dtype=np.float64)

    def at(self, x: float | int, quantity: str, controller: str, **filters: Any) -> Float64[np.ndarray, " S"]:
        """The quantity at one time or epoch, for every seed."""
        return np.asarray(self._pivot(quantity, controller, filters)[x], dtype=np.float64)

    def last(self, quantity: str, controller: str, **filters: Any) -> Float64[np.ndarray, " S"]:
        """The quantity at the end, for every seed."""
        return self.get_curve(quantity, controller, **filters)[:, -1]

    def quartiles(self, controller: str, **filters: Any) -> Float64[np.ndarray, "3 X"]:
        """Lower quartile, median and upper quartile over flocks, each as its median over seeds."""
        return np.stack([np.median(self.get_curve(label, controller, **filters), axis=0) for label in QUARTILES])

    def _pivot(self, quantity: str, controller: str, filters: Mapping[str, Any]) -> pd.DataFrame:
        """A row for every seed and a column for every time or epoch that this controller has."""
        rows = self.table[self.table.controller == controller]
        for name, value in filters.items():
            rows = rows[rows[name] == value]
        # Controllers without training seeds, such as the expert, count as one seed.
        wide = rows.assign(seed=rows.seed.fillna(-1)).pivot(index="seed", columns=self.over, values=quantity)
        return wide.sort_index()
