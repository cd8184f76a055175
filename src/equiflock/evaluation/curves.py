"""Curves over time or epochs, as quartiles over flocks: the tables that jobs write, and their reader."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float64

from equiflock._runtime.checksums import compute_file_checksum
from equiflock.controllers import load
from equiflock.controllers.loading import find_weights_file, has_open_seed
from equiflock.plotting.figures import CurvePanel, draw_panels
from equiflock.protocols import Controller

QUARTILES = {"lower": 0.25, "median": 0.5, "upper": 0.75}


def load_with_seed(controller: str, seed: int | None) -> Controller:
    """Load a controller; `seed` selects among bundled weights that exist for several, and is ignored otherwise."""
    return load(controller, **_select_seed(controller, seed))


def compute_weights_checksum(controller: str, seed: int | None = None) -> str:
    """Return the checksum of the weights file that `load_with_seed` loads, or "" if there is none."""
    path = find_weights_file(controller, **_select_seed(controller, seed))
    return compute_file_checksum(path) if path is not None and path.is_file() else ""


def _select_seed(controller: str, seed: int | None) -> dict[str, int]:
    return {"seed": seed} if seed is not None and has_open_seed(controller) else {}


def build_curve_table(series: Mapping[str, Float64[np.ndarray, "steps B"]], time_step: float) -> pd.DataFrame:
    """Return recorded series as a table: time, metric, lower, median, upper and mean over flocks, every 0.01 s.

    `series` maps names of metrics to their values at each step from t = 0 and of each flock. If the time step exceeds
    0.01 s, every step has a row.
    """
    # The table is for figures, so 0.01 s is fine enough at any time step.
    every = max(round(0.01 / time_step), 1)
    tables = []
    for name, recorded in series.items():
        values = recorded[::every]
        # Times are rounded below, so that they are equal numbers in all jobs of an experiment.
        columns: dict[str, Any] = {"time": np.arange(len(values)) * every * time_step, "metric": name}
        columns |= {label: np.quantile(values, q, axis=1) for label, q in QUARTILES.items()}
        tables.append(pd.DataFrame(columns | {"mean": values.mean(axis=1)}))
    return pd.concat(tables, ignore_index=True).round({"time": 9})


class Curves:
    """Reader of the curves of each controller and seed, over time or epochs, from the table of an experiment.

    Args:
        table: has the columns controller, seed, `over`, and others to filter by, such as metric or agents.
        over: the column along which curves run.
    """

    def __init__(self, table: pd.DataFrame, over: Literal["time", "epoch"] = "time") -> None:
        self.table, self.over = table, over
        self.x: Any = np.sort(table[over].unique())
        """Times or epochs, (X,)."""

    def get_curve(self, quantity: str, controller: str, **filters: Any) -> Float64[np.ndarray, "S X"]:
        """Return a column of the table along the curve, one row per seed in ascending order.

        `filters` select rows, such as metric="ivv"; they must leave one row per seed and x. X counts the controller's
        own x.
        """
        return np.asarray(self._pivot(quantity, controller, filters), dtype=np.float64)

    def at(self, x: float | int, quantity: str, controller: str, **filters: Any) -> Float64[np.ndarray, " S"]:
        """Return the quantity at one time or epoch, per seed; raise KeyError if the controller has no rows there."""
        return np.asarray(self._pivot(quantity, controller, filters)[x], dtype=np.float64)

    def last(self, quantity: str, controller: str, **filters: Any) -> Float64[np.ndarray, " S"]:
        """Return the quantity at the controller's last time or epoch, per seed."""
        return self.get_curve(quantity, controller, **filters)[:, -1]

    def quartiles(self, controller: str, **filters: Any) -> Float64[np.ndarray, "3 X"]:
        """Return lower quartile, median and upper quartile over flocks along the curve, as medians over seeds."""
        return np.stack([np.median(self.get_curve(label, controller, **filters), axis=0) for label in QUARTILES])

    def _pivot(self, quantity: str, controller: str, filters: Mapping[str, Any]) -> pd.DataFrame:
        """Return a table with a row per seed (-1 for none), sorted, and a column per time or epoch of a controller."""
        rows = self.table[self.table.controller == controller]
        for name, value in filters.items():
            rows = rows[rows[name] == value]
        # Controllers without training seeds, such as the expert, count as one seed.
        wide = rows.assign(seed=rows.seed.fillna(-1)).pivot(index="seed", columns=self.over, values=quantity)
        return wide.sort_index()


# Figure of a scenario's measures over time: one panel per measure, one curve per controller.


def draw_measure_curves(table: pd.DataFrame, path: str | os.PathLike[str], measures: Sequence[str]) -> Path:
    """Draw the median and the quartiles over flocks of each measure over time, a panel per measure.

    The y axis is linear if all values are within a factor of ten, else logarithmic.

    Args:
        table: rows of `build_curve_table`, with columns controller and seed.
        path: the PNG file.
        measures: the names of the measures.
    """
    curves = Curves(table)
    panels = []
    for measure in measures:
        lines = {name: curves.quartiles(name, metric=measure) for name in table.controller.unique()}
        # Values within a factor of ten, such as component counts, get a linear axis.
        narrow = bool(min(line.min() for line in lines.values()) >= 0.1 * max(line.max() for line in lines.values()))
        scale: Literal["linear", "log"] = "linear" if narrow else "log"
        panels.append(
            CurvePanel(
                curves.x, "time (s)", measure.replace("_", " "), lines, scale, has_overlapping_lines=bool(narrow)
            )
        )
    return draw_panels(panels, path)
