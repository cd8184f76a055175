"""Flights are summarized and compared flock by flock, whatever flocks have no value."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import equiflock as ef
from equiflock.evaluation.flight_statistics import compare_flights, format_summary, is_share, summarize_flights

FLOCKS = 8
HARDNESS = np.arange(1.0, FLOCKS + 1)


def build_flights(**values: Any) -> pd.DataFrame:
    """Flights of the controllers `values`, by the metric "ivv": rows of trainings, columns of flocks."""
    tables = [
        pd.DataFrame({"controller": name, "seed": seed, "flock": range(FLOCKS), "ivv": row})
        for name, rows in values.items()
        for seed, row in enumerate(np.atleast_2d(rows))
    ]
    return pd.concat(tables, ignore_index=True)


def without(values: Any, *places: Any) -> Any:
    """A copy of the values with NaN at these places."""
    result = np.array(values)
    for place in places:
        result[place] = np.nan
    return result


def test_flocks_are_compared_with_themselves_if_others_have_no_value() -> None:
    flights = build_flights(a=without(HARDNESS, 0), b=without(HARDNESS, 5))
    row = compare_flights(flights, {"ivv": False}).iloc[0]
    assert (row.n, row.difference, row.improvement) == (FLOCKS - 2, 0.0, 0.5)


def test_controllers_may_lack_different_numbers_of_flocks() -> None:
    flights = build_flights(a=HARDNESS, b=without(HARDNESS + 1.0, 0, 1))
    row = compare_flights(flights, {"ivv": False}).iloc[0]
    assert (row.n, row.difference, row.improvement) == (FLOCKS - 2, 1.0, 0.0)


def test_without_common_flocks_the_comparison_is_blank() -> None:
    flights = build_flights(
        a=without(HARDNESS, slice(4)), b=without(HARDNESS, slice(4, None)), c=np.full(FLOCKS, np.nan)
    )
    found = compare_flights(flights, {"ivv": False})
    assert found.n.tolist() == [0, 0]
    assert found[["difference", "difference_low", "improvement", "improvement_high"]].isna().all(axis=None)


def test_a_flock_counts_if_every_training_has_a_value() -> None:
    trainings = np.stack([HARDNESS, HARDNESS + 10.0])
    flights = build_flights(
        a=without(trainings, (0, 0), (1, 5)), b=np.stack([without(HARDNESS, slice(None)), HARDNESS])
    )
    first, second = summarize_flights(flights, ["controller"], ["ivv"]).itertuples()
    # The medians of trainings, over all flocks but the first and the sixth: of 2, 3, 4, 5, 7 and 8.
    assert (first.n, first.trainings, first.smallest_training, first.largest_training) == (FLOCKS - 2, 2, 4.5, 14.5)
    # A training without any value is left out.
    assert (second.n, second.trainings, second.median) == (FLOCKS, 1, 4.5)
    assert compare_flights(flights, {"ivv": False}).n.tolist() == [FLOCKS - 2]


@pytest.mark.usefixtures("own_registry")
def test_a_registered_metric_says_itself_whether_it_is_a_share() -> None:
    ef.metric("arrived", larger_is_better=True, is_share=True)(lambda moment: moment.flock.working.all(axis=1))
    ef.metric("failed")(lambda moment: moment.flock.working.sum(axis=1))
    assert is_share("arrived")
    assert not is_share("failed")
    flights = build_flights(a=HARDNESS > 6, b=HARDNESS > 2).rename(columns={"ivv": "arrived"})
    row = summarize_flights(flights, ["controller"], ["arrived"]).iloc[0]
    assert row["share"] == 0.25
    assert np.isnan(row["median"])
    comparison = compare_flights(flights, {"arrived": True}).iloc[0]
    assert (comparison.difference, comparison.improvement) == (0.5, 0.75)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((12345.6, 1.2, 22222.0, 12001.0, 13002.0), "12,346 (1, 22,222)\n[12,001, 13,002]"),
        ((0.22, 0.2151, 0.2292, 0.2, 0.3), "0.220 (0.215, 0.229)\n[0.200, 0.300]"),
        ((2.0, 2.0, 2.0, 1.0, 3.0), "2\n[1, 3]"),
    ],
)
def test_the_range_over_trainings_has_the_decimals_of_the_interval(numbers: tuple[float, ...], text: str) -> None:
    names = "median", "interval_low", "interval_high", "smallest_training", "largest_training"
    row = SimpleNamespace(metric="ivv", n=FLOCKS, trainings=2, **dict(zip(names, numbers, strict=True)))
    assert format_summary(row) == text
