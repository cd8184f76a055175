"""Intervals for comparisons of controllers: medians, interquartile means, shares, and paired differences.

Values have the shape (S, B), trainings by flocks: every training flies the same B flocks. A law is one training, (B,).
Intervals resample flocks, jointly for all trainings, so they hold for these trainings on other flocks. Five trainings
are too few to resample; `by_training` returns their range.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import ArrayLike, NDArray

from equiflock._runtime.checks import InputError, check_count, shorten_repr

LEVEL = 0.95
"""Probability with which an interval covers the true value."""
RESAMPLES = 2000
"""Bootstrap samples per interval."""
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
        return f"{self.value:.3g} ({self.low:.3g}, {self.high:.3g})"


class Comparison(NamedTuple):
    """Two controllers on the same flocks."""

    difference: Estimate
    """Median over flocks of first minus second."""
    improvement: Estimate
    """Probability that the first has the smaller value on a flock; ties count half."""


def median(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median over the last axis."""
    return np.asarray(np.median(values, axis=-1))


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
        drawn = table[:, flocks]  # (S, R, B)
        return statistic(np.moveaxis(drawn, 0, 1).reshape(len(flocks), S * B))

    return _resample_flocks(compute, B, seed)


def estimate_share(successes: int, trials: int) -> Estimate:
    """Return the share of successes with its Wilson interval, which stays within 0 and 1 and is never a single point.

    >>> print(estimate_share(0, 50))
    0 (0, 0.0713)
    """
    n = check_count("trials", trials)
    if not 0 <= successes <= n:
        raise InputError(f"successes must be between 0 and {n}, the number of trials; got {successes}")
    share, z = successes / n, NormalDist().inv_cdf((1 + LEVEL) / 2)
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    return Estimate(share, max(middle - half, 0.0), min(middle + half, 1.0), n)


def by_training(values: ArrayLike, statistic: Statistic = median) -> tuple[float, float]:
    """Return the smallest and largest statistic of a single training."""
    each = statistic(_check_values(values))
    return float(each.min()), float(each.max())


def compare(first: ArrayLike, second: ArrayLike, *, seed: int = 0) -> Comparison:
    """Compare two controllers, (S, B) and (S', B), flock by flock; smaller values are better.

    A flock's difference is that of its medians over trainings. Its improvement is the share of the S x S' pairs of
    trainings in which the first has the smaller value. Raise InputError if the numbers of flocks differ.
    """
    one, other = _check_values(first), _check_values(second)
    if one.shape[1] != other.shape[1]:
        raise InputError(f"both controllers must fly the same flocks; got {one.shape[1]} and {other.shape[1]} of them")
    differences = np.median(one, axis=0) - np.median(other, axis=0)
    pairs = one[:, None], other[None]
    wins = ((pairs[0] < pairs[1]) + 0.5 * (pairs[0] == pairs[1])).mean(axis=(0, 1))
    B = one.shape[1]
    return Comparison(
        _resample_flocks(lambda flocks: median(differences[flocks]), B, seed),
        _resample_flocks(lambda flocks: wins[flocks].mean(axis=1), B, seed),
    )


def _resample_flocks(compute: Callable[[Any], NDArray[np.float64]], flocks: int, seed: int) -> Estimate:
    """Return compute(flocks) for the flocks as they are, with the percentile interval over resampled flocks.

    `compute` maps indices of flocks (R, B) to numbers (R,).
    """
    value = float(compute(np.arange(flocks)[None])[0])
    rng = np.random.default_rng([seed, flocks])
    # A few million numbers at a time.
    parts = np.array_split(np.arange(RESAMPLES), max(RESAMPLES * flocks // 1_000_000, 1))
    drawn = np.concatenate([compute(rng.integers(flocks, size=(len(part), flocks))) for part in parts])
    # Both ends are drawn numbers, not means of two: an infinite one is not mixed with a finite one.
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="inverted_cdf")
    return Estimate(value, float(low), float(high), flocks)


def _check_values(values: ArrayLike) -> Float64[np.ndarray, "S B"]:
    """Return values as float64 (S, B). Raise InputError if there are none, one is NaN, or the shape is another."""
    table = np.asarray(values, np.float64)
    table = table[None] if table.ndim == 1 else table
    if table.ndim != 2 or table.size == 0 or np.isnan(table).any():
        raise InputError(
            f"values must be numbers of shape (flocks,) or (trainings, flocks); got {shorten_repr(values)}"
        )
    return table
