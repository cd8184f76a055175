"""Intervals cover the true value as often as they claim, and comparisons are flock by flock."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binomtest, trim_mean

from equiflock._runtime.checks import InputError
from equiflock.statistics import (
    Estimate,
    by_training,
    compare,
    estimate,
    estimate_share,
    interquartile_mean,
)

REPETITIONS = 1000
FLOCKS = 50


def coverage(true: float, repeat: Callable[[np.random.Generator, int], Estimate]) -> float:
    """The share of intervals that contain the true value, over fresh data in every repetition."""
    rng = np.random.default_rng(0)
    intervals = [repeat(rng, number) for number in range(REPETITIONS)]
    return sum(interval.low <= true <= interval.high for interval in intervals) / REPETITIONS


def trainings(rng: np.random.Generator) -> NDArray[np.float64]:
    """Three trainings on common flocks, of which some are harder than others for all trainings: median 0."""
    return rng.normal(size=(3, FLOCKS)) + rng.normal(size=FLOCKS)


@pytest.mark.slow
def test_intervals_cover_the_true_value_in_93_to_97_percent_of_repetitions() -> None:
    middle_half = float(interquartile_mean(np.random.default_rng(1).lognormal(size=2_000_000)))
    shares = {
        "median": coverage(1.0, lambda rng, n: estimate(rng.lognormal(size=FLOCKS), seed=n)),
        "median over trainings": coverage(0.0, lambda rng, n: estimate(trainings(rng), seed=n)),
        "interquartile mean": coverage(
            middle_half, lambda rng, n: estimate(rng.lognormal(size=FLOCKS), interquartile_mean, seed=n)
        ),
        "share": coverage(0.2, lambda rng, n: estimate_share(int(rng.binomial(FLOCKS, 0.2)), FLOCKS)),
        "difference": coverage(0.5, lambda rng, n: compare(trainings(rng) + 0.5, trainings(rng), seed=n).difference),
        "improvement": coverage(0.5, lambda rng, n: compare(trainings(rng), trainings(rng), seed=n).improvement),
    }
    assert {name: share for name, share in shares.items() if not 0.93 <= share <= 0.97} == {}


@given(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=40).filter(lambda numbers: len(numbers) % 4 == 0))
def test_the_interquartile_mean_cuts_a_quarter_off_each_end(numbers: list[float]) -> None:
    assert np.isclose(interquartile_mean(np.array(numbers)), trim_mean(numbers, 0.25))


def test_numbers_at_the_ends_of_the_middle_half_count_in_part() -> None:
    # Of 0 .. 1 .. 5 the middle half is 1.25 .. 3.75: three quarters of the second and of the fourth number.
    assert interquartile_mean(np.array([0.0, 1.0, 2.0, 6.0, 9.0])) == pytest.approx((0.75 * 1 + 2 + 0.75 * 6) / 2.5)


@pytest.mark.parametrize(("successes", "trials"), [(0, 1), (0, 50), (1, 50), (25, 50), (50, 50)])
def test_shares_have_wilson_intervals(successes: int, trials: int) -> None:
    expected = binomtest(successes, trials).proportion_ci(method="wilson")
    value, low, high, n = estimate_share(successes, trials)
    assert (value, n) == (successes / trials, trials)
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_trainings_on_common_flocks_are_not_independent_flocks() -> None:
    flocks = np.random.default_rng(0).normal(size=FLOCKS)
    once, five_times = estimate(flocks), estimate(np.tile(flocks, (5, 1)))
    assert five_times.high - five_times.low == pytest.approx(once.high - once.low, rel=0.1)
    assert five_times.n == FLOCKS


def test_the_range_over_trainings_is_that_of_their_medians() -> None:
    assert by_training([[1.0, 2.0, 9.0], [4.0, 5.0, 6.0]]) == (2.0, 5.0)


def test_a_controller_that_is_better_on_every_flock_improves_with_probability_one() -> None:
    hard = np.linspace(1.0, 100.0, FLOCKS)
    difference, improvement = compare(hard - 0.5, hard)
    assert difference[:3] == (-0.5, -0.5, -0.5)
    assert improvement[:3] == (1.0, 1.0, 1.0)


def test_a_controller_ties_with_itself() -> None:
    values = np.random.default_rng(0).normal(size=(2, FLOCKS))
    difference, improvement = compare(values[:1], values[:1])
    assert difference.value == 0.0
    assert improvement[:3] == (0.5, 0.5, 0.5)


def test_the_same_seed_gives_the_same_interval_and_another_a_similar_one() -> None:
    values = np.random.default_rng(0).normal(size=FLOCKS)
    assert estimate(values, seed=3) == estimate(values, seed=3)
    assert estimate(values, seed=3).low == pytest.approx(estimate(values, seed=4).low, abs=0.2)


def test_a_diverged_flock_makes_an_end_infinite_but_nothing_nan() -> None:
    value, low, high, _ = estimate([1.0, 2.0, np.inf])
    assert (value, low, high) == (2.0, 1.0, np.inf)
    assert np.isfinite(interquartile_mean(np.array([-np.inf, 1.0, 2.0, np.inf])))


@pytest.mark.parametrize("values", [[], [[]], [np.nan, 1.0], 3.0, np.zeros((2, 2, 2))])
def test_values_must_be_numbers_of_flocks(values: object) -> None:
    with pytest.raises(InputError, match=r"values must be numbers of shape \(flocks,\) or \(trainings, flocks\)"):
        estimate(values)


def test_other_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="same flocks; got 2 and 3"):
        compare([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="between 0 and 5"):
        estimate_share(6, 5)
