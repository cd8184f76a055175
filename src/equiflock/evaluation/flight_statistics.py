"""Tables of flights, a row per flock, summarized with intervals: for `evaluate` and `sweep`.

A table has the columns `flock`, one per metric, and others that identify controller, training and settings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float64

from equiflock._runtime.checks import InputError
from equiflock.evaluation.curves import QUARTILES
from equiflock.simulation.metrics import METRICS, format_title, list_user_metrics
from equiflock.statistics import (
    Comparison,
    Estimate,
    by_training,
    compare,
    compare_shares,
    estimate,
    estimate_flock_share,
    format_numbers,
    interquartile_mean,
    mean,
    median,
)

DISCONNECTED, FAILED = "disconnected", "failed"
ENDED_PREFIX = "ended: "
"""Start of the metrics that are shares of outcomes, such as "ended: collided"."""
SUMMARY_COLUMNS = (
    "n",
    "trainings",
    *QUARTILES,
    "share",
    "interval_low",
    "interval_high",
    "interquartile_mean",
    "interquartile_mean_low",
    "interquartile_mean_high",
    "smallest_training",
    "largest_training",
)
"""Columns of `summarize_flights`: numbers of flocks and trainings, quartiles over both, or the share of flocks instead,
the 95% interval of the median or share, the interquartile mean with its interval, and the range over trainings of the
median or share."""
HEADING_WIDTH = 12
"""Characters of a line in the heading of a column; longer words are not broken."""
FEWEST_FLOCKS = 6
"""Fewer flocks have no 95% interval of their median: it is outside of all of them with a probability above 5%."""


def is_share(metric: str) -> bool:
    """Return whether a metric is 1 or 0 for a flock, so that its summary is the share of flocks, not a median."""
    if metric in METRICS.parts:
        return METRICS.parts[metric].is_share
    return metric in (DISCONNECTED, FAILED) or metric.startswith(ENDED_PREFIX)


def read_values(
    flights: pd.DataFrame, metrics: Collection[str], trainings: Sequence[str] = ("seed",)
) -> dict[str, pd.DataFrame]:
    """Return the values of each metric, a row per training and a column per flock, named by its number.

    The columns `trainings` of the flights identify a training or other setting. Trainings of which all values are NaN
    are left out, then flocks with NaN in one of the others.
    """
    # With NumPy, as tables of pandas take ten times as long: there are many groups and metrics.
    rows = flights.groupby(list(trainings), dropna=False, sort=False).ngroup().to_numpy()
    flocks, columns = np.unique(flights.flock, return_inverse=True)
    tables = {}
    for metric in metrics:
        values = np.full((rows.max(initial=-1) + 1, len(flocks)), np.nan)
        values[rows, columns] = flights[metric]
        values = values[~np.isnan(values).all(axis=1)]
        # Without any training there is no flock, either.
        common = ~np.isnan(values).any(axis=0) & bool(len(values))
        tables[metric] = pd.DataFrame(values[:, common], columns=flocks[common])
    return tables


def summarize_flights(
    flights: pd.DataFrame, by: Sequence[str], metrics: Sequence[str], trainings: Sequence[str] = ("seed",)
) -> pd.DataFrame:
    """Return a row per group of rows and metric, with the columns `by`, `metric` and `SUMMARY_COLUMNS`.

    The columns `trainings` tell the trainings of a group apart. Flocks count that have a value in every training, as in
    `read_values`; without any, n = 0.
    """
    rows = []
    for key, group in flights.groupby(list(by), dropna=False, sort=False):
        for metric, table in read_values(group, metrics, trainings).items():
            found = _summarize_values(table.to_numpy(), metric)
            rows.append({**dict(zip(by, key, strict=True)), "metric": metric, **found})
    return pd.DataFrame(rows, columns=[*by, "metric", *SUMMARY_COLUMNS])


def _summarize_values(values: Float64[np.ndarray, "S B"], metric: str) -> dict[str, Any]:
    """Return the `SUMMARY_COLUMNS` of a metric that apply to it."""
    if not values.size:
        return {"n": 0, "trainings": 0}
    found = estimate_flock_share(values) if is_share(metric) else estimate(values)
    smallest, largest = by_training(values, mean if is_share(metric) else median)
    row = {
        "n": found.n,
        "trainings": len(values),
        "interval_low": found.low,
        "interval_high": found.high,
        "smallest_training": smallest,
        "largest_training": largest,
    }
    if is_share(metric):
        return {**row, "share": found.value}
    # Quartiles between an infinite and a finite value would be NaN.
    method: Any = "linear" if np.isfinite(values).all() else "inverted_cdf"
    quartiles = {label: float(np.quantile(values, q, method=method)) for label, q in QUARTILES.items()}
    return {**row, **quartiles, "median": found.value, **_name_columns(estimate(values, interquartile_mean))}


def format_estimate(row: Any) -> str:
    """Return value and interval of a row of `summarize_flights`; "" if there are no flocks."""
    if row.n == 0:
        return ""
    share = is_share(row.metric)
    found = Estimate(row.share if share else row.median, row.interval_low, row.interval_high, row.n)
    return found.percent if share else str(found)


def format_heading(metric: str) -> str:
    """Return the heading of a metric's column, its title in short lines."""
    return fill(format_title(metric), HEADING_WIDTH, break_long_words=False, break_on_hyphens=False)


def format_summary(row: Any) -> str:
    """Return value and interval of a row of `summarize_flights`; of several trainings also their range, in a new line.

    "-" if there are no flocks.
    """
    if row.trainings < 2:
        return format_estimate(row) or "-"
    ends = row.smallest_training, row.largest_training
    if is_share(row.metric):
        smallest, largest = (f"{end:.0%}" for end in ends)
        return f"{format_estimate(row)}\n[{smallest}, {largest}]"
    value, low, high, smallest, largest = format_numbers((row.median, row.interval_low, row.interval_high, *ends))
    interval = "" if low == value == high else f" ({low}, {high})"
    return f"{value}{interval}\n[{smallest}, {largest}]"


def compare_flights(flights: pd.DataFrame, directions: Mapping[str, bool | None]) -> pd.DataFrame:
    """Compare every other controller of a table with the first on the same flocks; return a row per pair and metric.

    `directions` maps metrics to whether a larger value is better; None if neither is, and then there is no improvement.
    `difference` is the median over flocks of the controller minus the first, or the difference of shares; `improvement`
    is the probability that the controller has the better value on a flock. Each has its 95% interval. Flocks count that
    have a value in every training of both controllers; without any, n = 0 and the other columns are NaN.
    """
    first, *others = dict.fromkeys(flights.controller)
    own = {name: read_values(flights[flights.controller == name], directions) for name in (first, *others)}
    rows = []
    for name in others:
        for metric, larger_is_better in directions.items():
            one, other = own[name][metric], own[first][metric]
            common = one.columns.intersection(other.columns)
            row: dict[str, Any] = {"controller": name, "compared_with": first, "metric": metric, "n": len(common)}
            rows.append(row)
            if common.empty:
                continue
            values = one[common].to_numpy(), other[common].to_numpy()
            compare_values: Callable[..., Comparison] = compare_shares if is_share(metric) else compare
            found = compare_values(*values, larger_is_better=bool(larger_is_better))
            row |= _name_columns(found.difference, "difference")
            if larger_is_better is not None:
                row |= _name_columns(found.improvement, "improvement")
    names = [f"{quantity}{end}" for quantity in ("difference", "improvement") for end in ("", "_low", "_high")]
    return pd.DataFrame(rows, columns=["controller", "compared_with", "metric", "n", *names])


def _name_columns(found: Estimate, quantity: str = "interquartile_mean") -> dict[str, float]:
    """Return the columns of a quantity with its interval."""
    return {quantity: found.value, f"{quantity}_low": found.low, f"{quantity}_high": found.high}


def check_user_metrics(taken: Collection[str]) -> tuple[str, ...]:
    """Return the names of users' metrics; raise InputError if one is also another column of a table, in `taken`."""
    names = tuple(metric.name for metric in list_user_metrics())
    for name in names:
        if name in taken:
            raise InputError(f"the metric {name!r} has the name of another column of the table: register it as another")
    return names
