"""Quantities over the time of a flight, as quartiles over its flocks: made in jobs, read by statements and figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float64

from equiflock.controllers import load
from equiflock.controllers.loading import weights_file
from equiflock.controllers.trained import TRAINED
from equiflock.protocols import Controller
from equiflock.runtime.checksums import file_checksum
from equiflock.simulation.trajectory import Trajectory

QUARTILES = {"lower": 0.25, "median": 0.5, "upper": 0.75}


def controller_of(controller: str, seed: int | None) -> Controller:
    """The controller of a job: trained with a seed, or one that has none."""
    return load(controller, seed=seed) if controller in TRAINED else load(controller)


def weights_checksum(controller: str, seed: int | None = None) -> str:
    """Of the file of weights that `controller_of` flies; empty if it has none, or it is not there."""
    path = weights_file(controller, seed=seed) if controller in TRAINED else weights_file(controller)
    return file_checksum(path) if path is not None and path.is_file() else ""


def curve_table(run: Trajectory, names: Sequence[str], every: int) -> pd.DataFrame:
    """Every so many-th moment of recorded series: time, metric, lower, median, upper and mean over flocks."""
    tables = []
    for name in names:
        values = run.series[name][::every]
        columns: dict[str, Any] = {"time": np.arange(len(values)) * every * run.time_step, "metric": name}
        columns |= {label: np.quantile(values, q, axis=1) for label, q in QUARTILES.items()}
        tables.append(pd.DataFrame(columns | {"mean": values.mean(axis=1)}))
    return pd.concat(tables, ignore_index=True).round({"time": 9})


class TimeCurves:
    """The curves of an experiment by metric, controller and whatever else marks its jobs.

    Args:
        table: of `curve_table`s, with columns controller and seed, and others such as agents.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        self.table = table
        self.times: Float64[np.ndarray, " X"] = np.sort(table.time.unique())

    def of(self, metric: str, controller: str, quantity: str = "median", **marks: Any) -> Float64[np.ndarray, "S X"]:
        """A quantity over flocks at every time, for every seed."""
        rows = self.table[(self.table.metric == metric) & (self.table.controller == controller)]
        for name, value in marks.items():
            rows = rows[rows[name] == value]
        wide = rows.assign(seed=rows.seed.fillna(-1)).pivot(index="seed", columns="time", values=quantity)
        return np.asarray(wide.sort_index())

    def last(self, metric: str, controller: str, quantity: str = "median", **marks: Any) -> Float64[np.ndarray, " S"]:
        """The quantity at the last step, for every seed."""
        return self.of(metric, controller, quantity, **marks)[:, -1]

    def quartiles(self, metric: str, controller: str, **marks: Any) -> Float64[np.ndarray, "3 X"]:
        """Lower quartile, median and upper quartile over flocks, each as its median over seeds."""
        return np.stack([np.median(self.of(metric, controller, label, **marks), axis=0) for label in QUARTILES])
