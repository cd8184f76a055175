"""Intervals for comparisons of controllers: medians, shares, paired differences, breakpoints and scores.

Values have the shape (S, B), trainings by flocks: every training flies the same B flocks. A law is one training, (B,).
Intervals are over flocks, jointly for all trainings, so they hold for these trainings on other flocks. Five trainings
are too few to resample; `by_training` returns their range. Medians and means are resampled. Shares have Wilson
intervals and probabilities of improvement adjusted ones, since resampling flocks that all agree gives no width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from statistics import NormalDist
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import ArrayLike, NDArray

from equiflock._runtime.checks import InputError, check_count, shorten_repr

LEVEL = 0.95
"""Probability with which an interval covers the true value."""
Z = NormalDist().inv_cdf((1 + LEVEL) / 2)
"""Half the width of the interval of a standard normal distribution."""
RESAMPLES = 2000
"""Bootstrap samples per interval."""
SCORE_TOLERANCE = 1e-9
"""Rounding error of a score."""
Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Function of values (.., n) that returns numbers (..)."""


class Estimate(NamedTuple):
    """A number with its 95% interval."""

    value: float
    low: float
    high: float
    n: int
    """Number of flocks or trials."""

    def __str__(self) -> str:
        """Return value and interval with the same decimals, three figures of the value; only the value if all agree."""
        value, low, high = format_numbers(self[:3])
        return value if low == value == high else f"{value} ({low}, {high})"

    @property
    def percent(self) -> str:
        """A share and its interval in percent."""
        return f"{self.value:.0%} ({self.low:.0%}, {self.high:.0%})"


class Comparison(NamedTuple):
    """Two controllers on the same flocks."""

    difference: Estimate
    """Median over flocks of first minus second."""
    improvement: Estimate
    """Probability that the first has the better value on a flock; ties count half."""


BreakpointStatus: TypeAlias = Literal["found", "holds", "fails"]
"""Whether the share crosses the threshold within the range, reaches it up to the hardest level, or nowhere."""


class Breakpoint(NamedTuple):
    """Indices of levels, from the mildest to the hardest, where a share of successes falls below a threshold."""

    status: BreakpointStatus
    value: int
    """The hardest level at which the share reached the threshold; 0 if it did at none."""
    low: int
    """Mild end of the interval: the hardest level at which the share's interval is above the threshold; -1 if it is at
    none, so that the true level may be milder than all."""
    high: int
    """Hard end of the interval: the mildest level at which the share's interval is below the threshold; the number of
    levels if it is at none, so that the true level may be harder than all."""


class ScoreRow(NamedTuple):
    """Successes of one controller in one row of a report card, and what counts as 0 and 1 there."""

    successes: ArrayLike
    """1 or 0 per flock, (B,) or (S, B)."""
    worst: float
    """Success rate with the score 0."""
    best: float
    """Success rate with the score 1."""
    start: object
    """Equal for rows that fly the same flocks, which are resampled together."""


def median(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median over the last axis."""
    # A whole sort is several times faster than np.median, which partitions.
    ordered, n = np.sort(values, axis=-1), values.shape[-1]
    return np.asarray(0.5 * (ordered[..., (n - 1) // 2] + ordered[..., n // 2]))


def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean over the last axis."""
    return np.asarray(np.mean(values, axis=-1))


def interquartile_mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of the middle half over the last axis: a quarter of the numbers is cut off at each end.

    If n is not divisible by four, the numbers at both ends of the middle half count in part.
    """
    ordered, n = np.sort(values, axis=-1), values.shape[-1]
    # The number i covers i .. i + 1 of n; its weight is the part of it within n / 4 .. 3 n / 4.
    ends = np.arange(n + 1).clip(n / 4, 3 * n / 4)
    used = ends[1:] > ends[:-1]  # without the others, which may be infinite
    return np.asarray(ordered[..., used] @ np.diff(ends)[used] / (n / 2))


def estimate(values: ArrayLike, statistic: Statistic = median, *, seed: int = 0) -> Estimate:
    """Return a statistic of all values (S, B) or (B,), with its bootstrap interval over flocks.

    Raise InputError if there is no value, or one is NaN. The same seed gives the same interval.

    >>> print(estimate([1.0, 2.0, 3.0, 4.0, 50.0]))
    3 (1, 50)
    """
    table = _check_values(values)
    S, B = table.shape

    def compute(flocks: Int64[np.ndarray, "R B"]) -> NDArray[np.float64]:
        drawn = table.take(flocks, axis=1)  # (S, R, B)
        return statistic(np.moveaxis(drawn, 0, 1).reshape(len(flocks), S * B))

    return _resample_flocks(compute, B, seed, values_per_flock=S)


def estimate_share(successes: int, trials: int) -> Estimate:
    """Return the share of successes with its Wilson interval, which stays within 0 and 1 and is never a single point.

    >>> print(estimate_share(0, 50).percent)
    0% (0%, 7%)
    """
    n = check_count("trials", trials)
    if not 0 <= successes <= n:
        raise InputError(f"successes must be between 0 and {n}, the number of trials; got {successes}")
    return Estimate(successes / n, *_compute_wilson_interval(successes / n, n), n)


def estimate_flock_share(values: ArrayLike) -> Estimate:
    """Return the mean of values from 0 to 1, (S, B) or (B,), such as whether a flock failed, with its Wilson interval.

    Trainings that agree on every flock count as one: the interval is that of B trials. It is narrower if trainings
    differ on a flock, as their mean then varies less from flock to flock, but not below that of S x B trials. Raise
    InputError as `estimate`, or if a value is not from 0 to 1.
    """
    table = _check_values(values)
    if table.min() < 0.0 or table.max() > 1.0:
        raise InputError(f"values of a share must be from 0 to 1; got {table.min():g} to {table.max():g}")
    share, B = float(table.mean(axis=0).mean()), table.shape[1]
    return Estimate(share, *_compute_wilson_interval(share, _count_trials(table)), B)


def by_training(values: ArrayLike, statistic: Statistic = median) -> tuple[float, float]:
    """Return the smallest and largest statistic of a single training."""
    each = statistic(_check_values(values))
    return float(each.min()), float(each.max())


def compare(first: ArrayLike, second: ArrayLike, *, larger_is_better: bool = False, seed: int = 0) -> Comparison:
    """Compare two controllers, (S, B) and (S', B), flock by flock.

    A flock's difference is that of its medians over trainings. Its improvement is the share of the S x S' pairs of
    trainings in which the first has the better value. Raise InputError if the numbers of flocks differ.
    """
    one, other = _check_common_flocks(first, second)
    medians = np.median(one, axis=0), np.median(other, axis=0)
    # Two infinite values do not differ.
    differences = np.subtract(*medians, out=np.zeros(one.shape[1]), where=medians[0] != medians[1])
    signs = np.where(one[:, None] == other[None], 0.0, np.where(one[:, None] < other[None], 1.0, -1.0))
    leads = signs.mean(axis=(0, 1)) * (-1.0 if larger_is_better else 1.0)
    return Comparison(
        _resample_flocks(lambda flocks: median(differences[flocks]), one.shape[1], seed),
        _scale_estimate(_estimate_mean_lead(leads), 0.5, 0.5),
    )


def compare_shares(first: ArrayLike, second: ArrayLike, *, larger_is_better: bool = False) -> Comparison:
    """Compare two controllers by values that are 1 or 0 on a flock, such as whether it failed.

    The difference is that of the shares, the first minus the second: 1 minus twice the improvement, or twice the
    improvement minus 1 if larger is better.
    """
    one, other = _check_common_flocks(first, second)
    difference = _estimate_mean_lead(one.mean(axis=0) - other.mean(axis=0))
    return Comparison(difference, _scale_estimate(difference, 0.5 if larger_is_better else -0.5, 0.5))


def find_breakpoint(
    count_successes: Callable[[int], int], levels: int, trials: int, threshold: float = 0.95
) -> Breakpoint:
    """Return the level at which the share of successes falls below a threshold, with its 95% interval, by bisection.

    `count_successes` returns the number of successes in `trials` trials at the levels 0 (mildest) to `levels` - 1
    (hardest), best on the same flocks; it is called at most once per level. The success rate is assumed to fall with
    the level; where both ends of a range reach the threshold, three levels between them are tried, too. The interval
    has all levels that the trials cannot rule out: where the Wilson interval of the share contains the threshold. Fewer
    than 73 trials never rule out that a threshold of 95% is missed at all levels. Raise InputError if an argument is
    out of range.

    >>> find_breakpoint(lambda level: 100 - level, 60, 100)  # 100 of 100 at level 0, 41 of 100 at level 59
    Breakpoint(status='found', value=5, low=0, high=10)
    """
    last, n = check_count("levels", levels) - 1, check_count("trials", trials)
    if not 0.0 < threshold < 1.0:
        raise InputError(f"threshold must be a share between 0 and 1; got {threshold:g}")

    @cache
    def measure(level: int) -> Estimate:
        return estimate_share(count_successes(level), n)

    def count_until(fails: Callable[[Estimate], bool]) -> int:
        """Return the number of levels before the first one that fails, if levels beyond it fail, too."""
        if fails(measure(0)):
            return 0
        known = (last, *(last * quarter // 4 for quarter in (1, 2, 3)))
        failed = next((level for level in known if fails(measure(level))), levels)
        if failed == levels:
            return levels
        passed = 0
        while failed - passed > 1:
            middle = (passed + failed) // 2
            passed, failed = (passed, middle) if fails(measure(middle)) else (middle, failed)
        return failed

    reached = count_until(lambda share: share.value < threshold)
    surely_reached = count_until(lambda share: share.low < threshold)
    possibly_reached = count_until(lambda share: share.high < threshold)
    status: BreakpointStatus = "fails" if reached == 0 else "holds" if reached == levels else "found"
    return Breakpoint(status, max(reached - 1, 0), surely_reached - 1, possibly_reached)


def scale_share(share: Estimate, worst: float, best: float) -> Estimate:
    """Return a share with 0 for `worst` and 1 for `best`, which count as exact.

    >>> print(scale_share(Estimate(0.8, 0.6, 0.9, 20), worst=0.2, best=1.0))
    0.750 (0.500, 0.875)
    """
    return _scale_estimate(share, 1.0 / (best - worst), -worst / (best - worst))


def estimate_score(rows: Sequence[ScoreRow], *, seed: int = 0) -> Estimate:
    """Return the mean over rows of their scaled success rates, with its 95% interval; n is the number of rows.

    Flocks are resampled, those of rows with the same start together, as a hard start is hard in all of them. The
    interval is at least as wide as that of independent rows with Wilson intervals, so it has a width even if all flocks
    agree.

    >>> print(estimate_score([ScoreRow([1, 1, 0, 1], 0.0, 1.0, "a"), ScoreRow([1, 0], 0.0, 1.0, "b")]))
    0.625 (0.250, 0.952)
    """
    samples, widths = _resample_scores(rows, seed), []
    for row in rows:
        share = scale_share(estimate_flock_share(row.successes), row.worst, row.best)
        widths.append((share.high - share.low) / 2)
    value, half = float(_compute_scores(rows).mean()), math.hypot(*widths) / len(rows)
    low, high = np.quantile(samples.mean(axis=0), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="inverted_cdf")
    # Of independent rows; beyond the scores of no and of only successes there is nothing.
    least = np.mean([-row.worst / (row.best - row.worst) for row in rows])
    most = np.mean([(1.0 - row.worst) / (row.best - row.worst) for row in rows])
    return Estimate(
        value,
        min(float(low), max(value - half, float(least))),
        max(float(high), min(value + half, float(most))),
        len(rows),
    )


def estimate_performance_profile(
    rows: Sequence[ScoreRow], scores: Sequence[float], *, seed: int = 0
) -> list[tuple[float, float, float, float]]:
    """Return the performance profile of rows: (score, expected share of rows that reach it, low, high).

    The share is expected over resampled flocks, as rows on few flocks have few possible scores, and so is its interval
    (Agarwal et al., "Deep reinforcement learning at the edge of the statistical precipice", 2021).
    """
    samples = _resample_scores(rows, seed)
    profile = []
    for score in scores:
        # A share of whole flocks may round to just below the score.
        shares = (samples >= score - SCORE_TOLERANCE).mean(axis=0)
        ends = np.quantile(shares, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="inverted_cdf")
        profile.append((float(score), float(shares.mean()), *ends.tolist()))
    return profile


def _compute_scores(rows: Sequence[ScoreRow]) -> Float64[np.ndarray, " rows"]:
    """Return the score of each row."""
    return np.array([(_check_values(row.successes).mean() - row.worst) / (row.best - row.worst) for row in rows])


def _resample_scores(rows: Sequence[ScoreRow], seed: int) -> Float64[np.ndarray, "rows R"]:
    """Return RESAMPLES scores of each row over resampled flocks, the same for rows with the same start.

    Raise InputError if there is no row or a value is NaN.
    """
    if not len(rows):
        raise InputError("a score needs at least one row; got none")
    starts: dict[object, int] = {}
    scores = []
    for row in rows:
        values = _check_values(row.successes).mean(axis=0)
        number = starts.setdefault((row.start, len(values)), len(starts))
        rng = np.random.default_rng([seed, number, len(values)])
        means = values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(axis=1)
        scores.append((means - row.worst) / (row.best - row.worst))
    return np.array(scores)


def count_resamples(flocks: int, resamples: int = RESAMPLES) -> Int64[np.ndarray, "R B"]:
    """Return how often each flock counts: once in the first row, in the others as bootstrap samples draw it.

    Whatever is computed with the same counts is resampled jointly, such as both controllers of a difference, and
    `summarize_resamples` makes it an estimate. There are 1 + `resamples` rows.
    """
    B = check_count("flocks", flocks)
    drawn = np.random.default_rng([0, B]).integers(B, size=(resamples, B))
    places = drawn + B * np.arange(resamples)[:, None]
    counts = np.bincount(places.ravel(), minlength=resamples * B).reshape(resamples, B)
    return np.concatenate([np.ones((1, B), np.int64), counts])


def resample_quantile(
    values: Float64[np.ndarray, "S B"], counts: Int64[np.ndarray, "R B"], q: float = 0.5
) -> Float64[np.ndarray, "R S"]:
    """Return the quantile over flocks of each training, interpolated as by `np.quantile`, for each row of counts."""
    B = values.shape[1]
    lower, part = divmod(q * (B - 1), 1.0)
    result: NDArray[np.float64] = np.empty((len(counts), len(values)))
    for s, row in enumerate(values):
        order = np.argsort(row)
        # The sorted sample has each value as often as its flock counts.
        ends = counts[:, order].cumsum(axis=1)
        below, above = (row[order][(ends <= min(lower + step, B - 1)).sum(axis=1)] for step in (0, 1))
        # Without a difference of two infinite values.
        result[:, s] = below + part * np.subtract(above, below, out=np.zeros_like(below), where=above != below)
    return result


def resample_share(
    events: ArrayLike, among: ArrayLike | None = None, *, resamples: int = RESAMPLES
) -> Float64[np.ndarray, "R S"]:
    """Return the share of flocks with an event, (S, B), of each training, measured and on bootstrap samples.

    A share of other flocks than all is `among` them, (S, B), and NaN without any. Resamples of flocks that agree have
    no width: see `limit_share` and `limit_share_difference`.
    """
    tables = [_check_values(events)]
    tables.append(np.ones_like(tables[0]) if among is None else _check_values(among))
    counts = count_resamples(tables[0].shape[1], resamples)
    selected, total = (counts @ table.T for table in tables)
    return np.asarray(np.divide(selected, total, out=np.full_like(selected, np.nan), where=total > 0))


def limit_share(
    events: ArrayLike, among: ArrayLike | None = None, *, share: float | None = None
) -> tuple[float, float]:
    """Return Wilson's interval of a share over trainings, which the interval of its resamples should include.

    The number of trials is that of `estimate_flock_share`, or that of flocks `among` which an event is possible. The
    share is that of all trainings, or another such as their median.
    """
    table = _check_values(events)
    if among is not None:
        possible = _check_values(among)
        trials = max(float((possible > 0).any(axis=0).sum()), 1.0)
        found = float(table.sum() / max(possible.sum(), 1.0))
    else:
        found, trials = float(table.mean()), _count_trials(table)
    return _compute_wilson_interval(found if share is None else share, trials)


def limit_share_difference(first: ArrayLike, second: ArrayLike) -> tuple[float, float]:
    """Return Newcombe's interval of the median over trainings of a difference of shares, (S, B) each, on common flocks.

    It is made of both Wilson intervals and of the correlation over flocks, and has a width if all flocks agree.
    """
    one, other = _check_common_flocks(first, second)
    (p, p_low, p_high), (q, q_low, q_high) = (
        (share, *limit_share(table, share=share))
        for table in (one, other)
        for share in [float(np.median(table.mean(axis=1)))]
    )
    flocks = one.mean(axis=0), other.mean(axis=0)
    varies = all(values.std() > 0.0 for values in flocks)
    correlation = max(float(np.corrcoef(*flocks)[0, 1]), 0.0) if varies else 0.0
    difference = float(np.median(one.mean(axis=1) - other.mean(axis=1)))

    def add(a: float, b: float) -> float:
        return math.sqrt(max(a * a - 2.0 * correlation * a * b + b * b, 0.0))

    return difference - add(p - p_low, q_high - q), difference + add(p_high - p, q - q_low)


def summarize_resamples(
    values: Float64[np.ndarray, " R"], flocks: int, least: tuple[float, float] | None = None
) -> Estimate:
    """Return the first value with the percentile interval of the others, which were resampled from these flocks.

    The interval includes the value, and the interval `least` such as that of `limit_share`.
    """
    value = float(values[0])
    # Both ends are drawn numbers, not means of two: an infinite one is not mixed with a finite one.
    low, high = np.quantile(values[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="inverted_cdf")
    ends = (value, value) if least is None else least
    return Estimate(value, min(float(low), value, ends[0]), max(float(high), value, ends[1]), flocks)


def _count_trials(table: Float64[np.ndarray, "S B"]) -> float:
    """Return the number of trials of which the share is as certain as that of these values."""
    shares, B = table.mean(axis=0), table.shape[1]
    share = float(shares.mean())
    # A mean of B numbers with this variance is as certain as the share of this many trials. On few flocks the variance
    # can be 0 by chance, or for trainings that fail on all or no flocks, so there are at most as many trials as values.
    possible, variance = share * (1.0 - share), float(shares.var(ddof=1)) if B > 1 else math.inf
    ratio = math.inf if variance == 0.0 else possible / variance
    return float(B) if possible == 0.0 else B * min(max(ratio, 1.0), len(table))


def _check_common_flocks(
    first: ArrayLike, second: ArrayLike
) -> tuple[Float64[np.ndarray, "S B"], Float64[np.ndarray, "S2 B"]]:
    """Return the values of two controllers; raise InputError if they are invalid or their numbers of flocks differ."""
    one, other = _check_values(first), _check_values(second)
    if one.shape[1] != other.shape[1]:
        raise InputError(f"both controllers must fly the same flocks; got {one.shape[1]} and {other.shape[1]} of them")
    return one, other


def _resample_flocks(
    compute: Callable[[Any], NDArray[np.float64]], flocks: int, seed: int, values_per_flock: int = 1
) -> Estimate:
    """Return compute(flocks) for the flocks as they are, with the percentile interval over resampled flocks.

    `compute` maps indices of flocks (R, B) to numbers (R,), from R x B x `values_per_flock` values.
    """
    value = float(compute(np.arange(flocks)[None])[0])
    rng = np.random.default_rng([seed, flocks])
    # A few million numbers at a time.
    count = min(max(RESAMPLES * flocks * values_per_flock // 1_000_000, 1), RESAMPLES)
    parts = np.array_split(np.arange(RESAMPLES), count)
    drawn = np.concatenate([compute(rng.integers(flocks, size=(len(part), flocks))) for part in parts])
    # Both ends are drawn numbers, not means of two: an infinite one is not mixed with a finite one.
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="inverted_cdf")
    return Estimate(value, float(low), float(high), flocks)


def _estimate_mean_lead(leads: Float64[np.ndarray, " B"]) -> Estimate:
    """Return the mean of leads, from -1 for a flock that is lost to 1 for one that is won, with its interval.

    The interval is that of a normal distribution after adding z^2 flocks, half of them ties, a quarter won and a
    quarter lost: the adjustment of Agresti and Coull, for paired shares of Agresti and Min. It has a width even if all
    flocks are won or tied.
    """
    added = Z * Z
    total = len(leads) + added
    middle = leads.sum() / total
    variance = (np.square(leads).sum() + added / 2) / total - middle**2
    half, mean = Z * math.sqrt(variance / total), float(leads.mean())
    # With three flocks or fewer, all won or all lost, the interval around the adjusted middle may miss the mean.
    low, high = min(float(middle - half), mean), max(float(middle + half), mean)
    return Estimate(mean, max(low, -1.0), min(high, 1.0), len(leads))


def _scale_estimate(found: Estimate, factor: float, offset: float) -> Estimate:
    """Return factor x + offset for an estimate x."""
    value, *ends = (factor * number + offset for number in found[:3])
    return Estimate(value, min(ends), max(ends), found.n)


def _compute_wilson_interval(share: float, trials: float) -> tuple[float, float]:
    """Return Wilson's interval of a share that was observed in this many trials, which may be infinite."""
    weight = Z * Z / trials
    middle = (share + weight / 2) / (1 + weight)
    half = Z / (1 + weight) * math.sqrt(share * (1 - share) / trials + (Z / (2 * trials)) ** 2)
    # Exact at the ends, where the sums round.
    return 0.0 if share == 0.0 else max(middle - half, 0.0), 1.0 if share == 1.0 else min(middle + half, 1.0)


def format_numbers(numbers: Sequence[float]) -> list[str]:
    """Return numbers with the decimals that the first needs for three figures, or the largest, if the first is 0.

    Whole numbers have none. Numbers from 1,000 on have commas, very small ones an exponent.
    """
    scale = abs(numbers[0]) or max((abs(number) for number in numbers if math.isfinite(number)), default=0.0)
    if not math.isfinite(scale) or 0.0 < scale < 1e-5:
        return [f"{number:.3g}" for number in numbers]
    is_whole = all(float(number).is_integer() for number in numbers)
    decimals = 0 if is_whole else max(2 - math.floor(math.log10(scale)), 0)
    return [f"{number:,.{decimals}f}" for number in numbers]


def _check_values(values: ArrayLike) -> Float64[np.ndarray, "S B"]:
    """Return values as float64 (S, B). Raise InputError if there are none, one is NaN, or the shape is another."""
    table = np.asarray(values, np.float64)
    table = table[None] if table.ndim == 1 else table
    if table.ndim != 2 or table.size == 0 or np.isnan(table).any():
        raise InputError(
            f"values must be numbers of shape (flocks,) or (trainings, flocks); got {shorten_repr(values)}"
        )
    return table
