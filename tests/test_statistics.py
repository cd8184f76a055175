"""Intervals cover the true value as often as they claim, and comparisons are flock by flock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binomtest, trim_mean

from equiflock._runtime.checks import InputError
from equiflock.statistics import (
    Breakpoint,
    Comparison,
    Estimate,
    ScoreRow,
    by_training,
    compare,
    compare_shares,
    count_resamples,
    estimate,
    estimate_flock_share,
    estimate_performance_profile,
    estimate_score,
    estimate_share,
    find_breakpoint,
    interquartile_mean,
    limit_share,
    limit_share_difference,
    mean,
    resample_quantile,
    resample_share,
    scale_share,
    summarize_resamples,
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


def likely_improvement(rng: np.random.Generator, seed: int) -> Estimate:
    """The probability of an improvement on few flocks, 0.9."""
    return compare(rng.random(20), np.full(20, 0.9), seed=seed).improvement


def rare_failures(rng: np.random.Generator) -> Comparison:
    """Two controllers that fail on 15% and 5% of the flocks, the first on all on which the second fails."""
    hardness = rng.random(FLOCKS)
    return compare_shares((hardness < 0.15) * 1.0, (hardness < 0.05) * 1.0)


@pytest.mark.slow
def test_intervals_cover_the_true_value_in_93_to_97_percent_of_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("equiflock.statistics.RESAMPLES", 500)  # as wide on average, and a quarter of the time
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
        "improvement that is likely": coverage(0.9, lambda rng, n: likely_improvement(rng, n)),
        "share over trainings": coverage(0.5, lambda rng, n: estimate_flock_share((trainings(rng) < 0) * 1.0)),
        "difference of shares": coverage(0.1, lambda rng, n: rare_failures(rng).difference),
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
    assert improvement.value == improvement.high == 1.0
    assert 0.9 < improvement.low < 1.0


def test_a_larger_value_may_be_the_better_one() -> None:
    hard = np.linspace(1.0, 100.0, FLOCKS)
    difference, improvement = compare(hard + 0.5, hard, larger_is_better=True)
    assert (difference.value, improvement.value) == (0.5, 1.0)
    assert compare(hard + 0.5, hard).improvement.value == 0.0


def test_a_difference_of_shares_has_an_interval_even_if_all_flocks_agree() -> None:
    difference, improvement = compare_shares(np.zeros(10), np.ones(10))
    assert (difference.value, difference.low, improvement.value) == (-1.0, -1.0, 1.0)
    assert difference.high == pytest.approx(1.0 - 2.0 * improvement.low)
    assert difference.high > -0.5


def test_trainings_that_agree_count_once_in_a_share() -> None:
    failed = np.arange(20.0) < 5
    assert estimate_flock_share(np.tile(failed, (5, 1)))[:3] == pytest.approx(estimate_share(5, 20)[:3])
    # Trainings that fail on different flocks say more about the share.
    shifted = estimate_flock_share([np.roll(failed, shift) for shift in (0, 5, 10)])
    assert shifted.high - shifted.low < estimate_share(5, 20).high - estimate_share(5, 20).low
    assert estimate_flock_share([1.0]).low > 0.0


def test_a_share_over_trainings_has_a_width_even_if_it_is_equal_on_all_flocks() -> None:
    always_and_never = np.repeat([[1.0], [0.0]], 10, axis=1)
    assert estimate_flock_share(always_and_never)[:3] == pytest.approx(estimate_share(10, 20)[:3])


@pytest.mark.parametrize(("chances", "flocks"), [((0.5,) * 5, 6), ((0.9, 0.5, 0.1), 10)])
def test_a_share_over_independent_trainings_on_few_flocks_is_covered(chances: tuple[float, ...], flocks: int) -> None:
    def repeat(rng: np.random.Generator, _: int) -> Estimate:
        return estimate_flock_share((rng.random((len(chances), flocks)) < np.array(chances)[:, None]) * 1.0)

    assert coverage(float(np.mean(chances)), repeat) > 0.94


def test_resampling_takes_a_few_million_values_at_a_time_however_many_trainings() -> None:
    sizes = []

    def record_size(values: NDArray[np.float64]) -> NDArray[np.float64]:
        sizes.append(values.size)
        return mean(values)

    estimate(np.ones((10, 500)), record_size)
    assert max(sizes) <= 2_000_000
    assert sum(sizes) == (2000 + 1) * 10 * 500


def test_a_larger_share_may_be_the_better_one() -> None:
    one, other = np.array([1.0, 1.0, 1.0, 0.0]), np.array([1.0, 0.0, 0.0, 0.0])
    less, more = compare_shares(one, other), compare_shares(one, other, larger_is_better=True)
    assert less.difference == more.difference
    assert (less.difference.value, less.improvement.value, more.improvement.value) == (0.5, 0.25, 0.75)
    assert more.improvement.low == pytest.approx(1.0 - less.improvement.high)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((0.22, 0.2151, 0.2292), "0.220 (0.215, 0.229)"),
        ((0.0012, 0.001, 0.15), "0.00120 (0.00100, 0.15000)"),
        ((12345.6, 1.2, 22222.0), "12,346 (1, 22,222)"),
        ((100.0, 100.0, 100.0), "100"),
        ((1.0, 1.0, 2.0), "1 (1, 2)"),
        ((0.0, -0.25, 0.5), "0.000 (-0.250, 0.500)"),
        ((3e-9, 1e-9, 0.1), "3e-09 (1e-09, 0.1)"),
        ((2.0, 1.5, np.inf), "2.00 (1.50, inf)"),
    ],
)
def test_a_number_and_its_interval_have_the_same_decimals(numbers: tuple[float, float, float], text: str) -> None:
    assert str(Estimate(*numbers, n=10)) == text


def test_a_controller_ties_with_itself() -> None:
    values = np.random.default_rng(0).normal(size=(2, FLOCKS))
    difference, improvement = compare(values[:1], values[:1])
    assert difference.value == 0.0
    assert improvement.value == 0.5
    assert improvement.low == pytest.approx(1.0 - improvement.high)
    assert 0.4 < improvement.low < 0.5


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
    with pytest.raises(InputError, match="from 0 to 1; got -1 to 2"):
        estimate_flock_share([-1.0, 2.0])
    with pytest.raises(InputError, match="same flocks; got 2 and 3"):
        compare([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="between 0 and 5"):
        estimate_share(6, 5)


@pytest.mark.parametrize("flocks", [1, 2, 3])
def test_the_interval_of_few_flocks_holds_its_value(flocks: int) -> None:
    for first, second in ((0.0, 1.0), (1.0, 0.0)):
        found = compare(np.full(flocks, first), np.full(flocks, second)).improvement
        assert found.low <= found.value <= found.high
        assert found.low < found.high


LEVELS, TRIALS = 65, 80


def plant_breakpoint(
    rng: np.random.Generator, threshold: float, shares_flocks: bool
) -> tuple[int, Callable[[int], int]]:
    """A random level at which a smooth success rate falls below a threshold, and the successes of trials per level.

    Trials of all levels fly the same flocks, each with its hardness, or fresh ones at each level.
    """
    steepness, middle = rng.uniform(10.0, 40.0), rng.uniform(0.3, 0.7)
    rates = 1.0 / (1.0 + np.exp(steepness * (np.linspace(0.0, 1.0, LEVELS) - middle)))
    hardness = rng.random((1 if shares_flocks else LEVELS, TRIALS))
    successes = (hardness < rates[:, None]).sum(axis=1)
    return int((rates >= threshold).sum()) - 1, lambda level: int(successes[level])


@pytest.mark.parametrize("shares_flocks", [True, False], ids=["common flocks", "fresh flocks"])
@pytest.mark.parametrize("threshold", [0.95, 0.5])
def test_bisection_finds_a_planted_breakpoint_within_its_interval(threshold: float, shares_flocks: bool) -> None:
    rng, hits, widths = np.random.default_rng(0), 0, []
    for _ in range(100):
        true, count_successes = plant_breakpoint(rng, threshold, shares_flocks)
        found = find_breakpoint(count_successes, LEVELS, TRIALS, threshold)
        hits += found.low <= true <= found.high
        widths.append(found.high - found.low)
        assert found.low <= found.value <= found.high
    assert hits >= 90
    assert np.mean(widths) < LEVELS / 4  # an interval of all levels would contain any


def test_bisection_visits_few_levels_and_each_once() -> None:
    visited: list[int] = []

    def count_successes(level: int) -> int:
        visited.append(level)
        return TRIALS if level < 40 else 0

    assert find_breakpoint(count_successes, LEVELS, TRIALS) == Breakpoint("found", 39, 39, 40)
    assert len(visited) == len(set(visited)) < 12


@pytest.mark.parametrize(
    ("successes", "expected"),
    [(TRIALS, Breakpoint("holds", LEVELS - 1, LEVELS - 1, LEVELS)), (0, Breakpoint("fails", 0, -1, 0))],
)
def test_a_breakpoint_beyond_the_range_has_an_open_interval(successes: int, expected: Breakpoint) -> None:
    assert find_breakpoint(lambda level: successes, LEVELS, TRIALS) == expected


def test_too_few_trials_never_rule_out_the_mildest_level() -> None:
    assert find_breakpoint(lambda level: 72 if level < 40 else 0, LEVELS, 72).low == -1
    assert find_breakpoint(lambda level: 73 if level < 40 else 0, LEVELS, 73).low == 39


def test_a_failure_between_two_successful_ends_of_a_range_is_found() -> None:
    found = find_breakpoint(lambda level: 0 if 10 <= level <= 40 else TRIALS, LEVELS, TRIALS)
    assert (found.status, found.value) == ("found", 9)


def make_rows(successes: list[NDArray[np.float64]], start: str | None = None) -> list[ScoreRow]:
    """Rows whose score is the success rate; with a start they fly the same flocks."""
    return [ScoreRow(each, 0.0, 1.0, start or number) for number, each in enumerate(successes)]


def test_scores_are_means_of_rows_whatever_their_number_of_flocks() -> None:
    found = estimate_score(make_rows([np.ones(100), np.zeros(2)]))
    assert (found.value, found.n) == (0.5, 2)
    assert scale_share(Estimate(0.8, 0.6, 0.9, 5), worst=0.2, best=0.8)[:3] == pytest.approx((1.0, 2 / 3, 7 / 6))


def test_a_score_has_a_width_even_if_all_flocks_agree_but_none_beyond_all_successes() -> None:
    found = estimate_score(make_rows([np.ones(20)] * 4))
    share = estimate_share(20, 20)
    assert (found.value, found.high) == (1.0, 1.0)
    assert 1.0 - share.low > 1.0 - found.low > 0.25 * (1.0 - share.low) / 2


@pytest.mark.parametrize("shares_flocks", [True, False], ids=["common flocks", "fresh flocks"])
def test_intervals_of_scores_cover_the_true_score(shares_flocks: bool) -> None:
    rates, rng = np.array([0.9, 0.5, 0.7, 0.2]), np.random.default_rng(0)
    covered = 0
    for number in range(200):
        # A hard flock is hard in all rows that fly it.
        hardness = rng.random((1 if shares_flocks else len(rates), 40))
        successes = [(each < rate) * 1.0 for each, rate in zip(np.broadcast_to(hardness, (4, 40)), rates, strict=True)]
        found = estimate_score(make_rows(successes, "same" if shares_flocks else None), seed=number)
        covered += found.low <= rates.mean() <= found.high
    assert 0.9 <= covered / 200 <= 0.995


def test_a_performance_profile_is_the_share_of_rows_that_reach_each_score() -> None:
    rows = [ScoreRow(np.ones(10), 0.0, 1.0, 0), ScoreRow(np.ones(10), 0.0, 2.0, 0), ScoreRow(np.zeros(10), 0.0, 1.0, 0)]
    profile = estimate_performance_profile(rows, (0.0, 0.25, 0.75, 1.0))
    assert [share for _, share, _, _ in profile] == pytest.approx([1.0, 2 / 3, 1 / 3, 1 / 3])
    assert all(low == high == pytest.approx(share) for _, share, low, high in profile)  # flocks agree


def test_scores_without_rows_are_refused() -> None:
    with pytest.raises(InputError, match="at least one row"):
        estimate_score([])
    with pytest.raises(InputError, match="threshold must be a share"):
        find_breakpoint(lambda level: 0, LEVELS, TRIALS, 1.0)


@pytest.mark.parametrize("q", [0.0, 0.25, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("flocks", [1, 2, 9, 50])
def test_a_resampled_quantile_is_that_of_the_drawn_flocks(q: float, flocks: int) -> None:
    values = np.random.default_rng(flocks).normal(size=(3, flocks)).round(1)  # with ties
    counts = count_resamples(flocks, 20)
    assert counts[0].tolist() == [1] * flocks and set(counts.sum(axis=1)) == {flocks}
    expected = [[np.quantile(np.repeat(row, count), q) for row in values] for count in counts]
    assert resample_quantile(values, counts, q) == pytest.approx(np.array(expected))


def test_infinite_values_are_resampled_without_nan() -> None:
    values = np.array([[1.0, np.inf, np.inf, 2.0]])
    drawn = resample_quantile(values, count_resamples(4, 200))
    assert not np.isnan(drawn).any()
    assert set(np.unique(drawn)) >= {1.0, np.inf}


def test_a_share_is_resampled_with_the_flocks_of_other_quantities() -> None:
    failed = np.random.default_rng(0).random((3, FLOCKS)) < 0.3
    shares = resample_share(failed, resamples=30)
    assert shares[0] == pytest.approx(failed.mean(axis=1))
    assert shares == pytest.approx(count_resamples(FLOCKS, 30) @ failed.T / FLOCKS)
    assert np.all(resample_share(failed, failed, resamples=30) == 1.0)
    assert np.isnan(resample_share(failed, np.zeros_like(failed), resamples=30)).all()


def test_limits_of_shares_have_a_width_if_all_flocks_agree() -> None:
    never, always = np.zeros((5, FLOCKS)), np.ones((5, FLOCKS))
    assert limit_share(never) == pytest.approx(estimate_share(0, FLOCKS)[1:3])
    # Only the flocks count on which something is possible.
    assert limit_share(never, np.arange(FLOCKS) < [[10]] * 5) == pytest.approx(estimate_share(0, 10)[1:3])
    low, high = limit_share_difference(always, never)
    assert 0.85 < low < 0.93 and high == 1.0
    low, high = limit_share_difference(never, never)
    assert -0.1 < low < 0.0 < high < 0.1


def failures(rng: np.random.Generator, chances: tuple[float, ...]) -> NDArray[np.float64]:
    """Whether trainings with these failure rates fail on common flocks, of which some are harder for all of them."""
    hardness = rng.normal(size=FLOCKS)
    noise = rng.normal(size=(len(chances), FLOCKS))
    return ((hardness + noise) / np.sqrt(2.0) < np.array([NormalDist().inv_cdf(p) for p in chances])[:, None]) * 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "other"), [((0.02, 0.04, 0.05, 0.1, 0.2), (0.1, 0.15, 0.2, 0.2, 0.25)), ((0.04,) * 5, (0.99,) * 5)]
)
def test_the_median_share_over_trainings_and_its_difference_are_covered(
    one: tuple[float, ...], other: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def repeat_share(rng: np.random.Generator, _: int) -> Estimate:
        failed = failures(rng, one)
        medians = np.median(resample_share(failed, resamples=300), axis=1)
        return summarize_resamples(medians, FLOCKS, limit_share(failed, share=float(medians[0])))

    def repeat_difference(rng: np.random.Generator, _: int) -> Estimate:
        first, second = failures(rng, one), failures(rng, other)
        drawn = np.subtract(*(resample_share(failed, resamples=300) for failed in (first, second)))
        return summarize_resamples(np.median(drawn, axis=1), FLOCKS, limit_share_difference(first, second))

    monkeypatch.setattr(sys.modules[__name__], "REPETITIONS", 400)
    assert coverage(float(np.median(one)), repeat_share) >= 0.93
    assert coverage(float(np.median(np.subtract(one, other))), repeat_difference) >= 0.93
