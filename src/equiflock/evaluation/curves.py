"""Curves over time or epochs, as quartiles over flocks: the tables that jobs write, their reader, and their figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float64
from numpy.typing import ArrayLike

from equiflock.plotting.curve_panel import CurvePanel
from equiflock.simulation.metrics import METRICS

QUARTILES = {"lower": 0.25, "median": 0.5, "upper": 0.75}


def build_curve_table(
    series: Mapping[str, Float64[np.ndarray, "steps B"]],
    time_step: float,
    select_times: Callable[[str, Float64[np.ndarray, "X B"]], Bool[np.ndarray, " X"]] | None = None,
) -> pd.DataFrame:
    """Return recorded series as a table: time, metric, lower, median, upper and mean over flocks.

    It has a row every 0.01 s, which is fine enough for figures, or every time step if that is longer. `select_times`
    maps a metric and its values to the times at which the column `flocks` has the values of all flocks (`pack_values`).
    """
    every = max(round(0.01 / time_step), 1)
    tables = []
    for name, recorded in series.items():
        values = recorded[::every]
        # Times are rounded below, so that they are equal numbers in all jobs of an experiment.
        columns: dict[str, Any] = {"time": np.arange(len(values)) * every * time_step, "metric": name}
        columns |= {label: np.quantile(values, q, axis=1) for label, q in QUARTILES.items()}
        columns["mean"] = values.mean(axis=1)
        if select_times is not None:
            selected = zip(values, select_times(name, values), strict=True)
            columns["flocks"] = [pack_values(row) if is_selected else None for row, is_selected in selected]
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True).round({"time": 9})


def pack_values(values: ArrayLike, digits: int = 6) -> str:
    """Return numbers as a text that fits in a cell of a table, with this many significant digits."""
    return " ".join(f"{number:.{digits}g}" for number in np.asarray(values).tolist())


def unpack_values(text: str) -> Float64[np.ndarray, " n"]:
    """Return the numbers of a text of `pack_values`."""
    return np.array(text.split(), np.float64)


class Curves:
    """Reader of the curves of each controller and seed, over time or epochs, from the table of an experiment.

    The table has the columns controller, seed, `over`, and others to filter by, such as metric or agents.
    """

    def __init__(self, table: pd.DataFrame, over: Literal["time", "epoch"] = "time") -> None:
        self.table, self.over = table, over
        self.x: Any = np.sort(table[over].unique())
        """Times or epochs, (X,)."""
        self._pivots: dict[tuple[object, ...], pd.DataFrame] = {}

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

    def find_last(self, quantity: str, controller: str, **filters: Any) -> Any:
        """Return the controller's last time or epoch."""
        return self._pivot(quantity, controller, filters).columns[-1]

    def get_texts(self, quantity: str, controller: str, **filters: Any) -> pd.DataFrame:
        """Return a column of texts, such as `flocks`: a row per seed, a column per time or epoch."""
        return self._pivot(quantity, controller, filters)

    def quartiles(self, controller: str, **filters: Any) -> Float64[np.ndarray, "3 X"]:
        """Return lower quartile, median and upper quartile over flocks along the curve, as medians over seeds."""
        return np.stack([np.median(self.get_curve(label, controller, **filters), axis=0) for label in QUARTILES])

    def _pivot(self, quantity: str, controller: str, filters: Mapping[str, Any]) -> pd.DataFrame:
        """Return a table with a row per seed (-1 for none), sorted, and a column per time or epoch of a controller."""
        # Statements read many single times or epochs of the same table.
        key = quantity, controller, *sorted(filters.items())
        if key not in self._pivots:
            rows = self.table[self.table.controller == controller]
            for name, value in filters.items():
                rows = rows[rows[name] == value]
            # Controllers without training seeds, such as the expert, count as one seed.
            wide = rows.assign(seed=rows.seed.fillna(-1)).pivot(index="seed", columns=self.over, values=quantity)
            self._pivots[key] = wide.sort_index()
        return self._pivots[key]


def build_measure_panels(table: pd.DataFrame, measures: Sequence[str]) -> list[CurvePanel]:
    """Return a panel for each measure over time: the median and the quartiles over flocks.

    The table has rows of `build_curve_table` and the columns controller and seed. The y axis is linear if all values
    are within a factor of ten, such as component counts, or one is negative, else logarithmic. NaN is left blank.
    """
    curves = Curves(table)
    panels = []
    for measure in measures:
        lines = {name: curves.quartiles(name, metric=measure) for name in table.controller.unique()}
        values = np.concatenate([np.ravel(line) for line in lines.values()])
        smallest, largest = np.fmin.reduce(values), np.fmax.reduce(values)  # without NaN, unless there is nothing else
        narrow = bool(smallest >= 0.1 * largest)
        scale: Literal["linear", "log"] = "log" if 0.0 <= smallest < 0.1 * largest else "linear"
        label = METRICS.parts[measure].label if measure in METRICS.parts else measure.replace("_", " ")
        panels.append(CurvePanel(curves.x, "time (s)", label, lines, scale, has_overlapping_lines=narrow))
    return panels
