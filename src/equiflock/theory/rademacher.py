"""Empirical Rademacher complexity: how well a class of functions fits random signs (section 4.1 of the paper).

For a sample x_1 .. x_m and signs sigma_i that are -1 or 1 with probability 1/2 each, a class F has

    R(F) = E_sigma sup_(f in F) (1 / m) sum_i sigma_i f(x_i),

and for losses between 0 and 1, with probability at least 1 - delta over the sample, every generalization gap is at most
2 R + 3 sqrt(ln(2 / delta) / (2 m)) (theorem "ERC bounds generalization gap").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray

from equiflock.runtime.checks import InputError, check_count, is_finite, shorten_repr
from equiflock.runtime.randomness import make_rng

Signs = Float[np.ndarray, "draws m"]

BLOCK_SIZE = 2**20
"""Numbers in memory at a time: signs, and what functions make of them."""
MAX_EXACT_POINTS = 24
"""The largest m whose 2^m signs are gone through when asked for: a minute for a class of hundreds."""


@dataclass(frozen=True)
class Complexity:
    """An empirical Rademacher complexity."""

    value: float
    """R."""
    standard_error: float
    """Of the value over random signs; 0 if all signs were gone through."""


def rademacher_complexity(
    values: ArrayLike, *, draws: int = 10_000, seed: int = 0, exact: bool | None = None
) -> Complexity:
    """The complexity of a finite class on a sample (definition "Empirical Rademacher complexity").

    Args:
        values: (functions, m), f(x_i) of every function on every point.
        draws: how many random sign vectors.
        seed: of the random signs. They are the same for any class on m points, so that a larger class never comes out
            smaller.
        exact: True for the mean over all 2^m sign vectors, up to m = 24; None to do so where they are no more than the
            draws, and so cost no more.
    """
    functions = check_matrix("values", values, "(functions, m)")
    m = functions.shape[1]
    return _compute_expectation(
        lambda signs: (signs @ functions.T).max(axis=1) / m, m, len(functions), draws=draws, seed=seed, exact=exact
    )


def linear_rademacher_complexity(
    points: ArrayLike, norm: float = 1.0, *, draws: int = 10_000, seed: int = 0, exact: bool | None = None
) -> Complexity:
    """The complexity of all linear functions <w, x> with |w| <= W on a sample: (W / m) E |sum_i sigma_i x_i|.

    It is at most (W / m) sqrt(sum_i |x_i|^2).

    Args:
        points: (m, d).
        norm: W.
        draws: how many random sign vectors.
        seed: of the random signs.
        exact: as for `rademacher_complexity`.
    """
    vectors = check_matrix("points", points, "(m, d)")
    if not is_finite(norm) or norm < 0:
        raise InputError(f"norm must be a finite number of at least 0; got {shorten_repr(norm)}")
    m, d = vectors.shape
    # The supremum is attained by the w along the sum.
    return _compute_expectation(
        lambda signs: norm / m * np.linalg.norm(signs @ vectors, axis=1), m, d, draws=draws, seed=seed, exact=exact
    )


def rademacher_gap_bound(complexity: float, samples: int, failure_probability: float = 1e-3) -> float:
    """2 R + 3 sqrt(ln(2 / delta) / (2 m)), which bounds all gaps at once (theorem "ERC bounds generalization gap").

    Args:
        complexity: R, of the class of losses, which are between 0 and 1, on the sample.
        samples: m.
        failure_probability: delta, the probability that the bound does not hold.
    """
    if not is_finite(complexity) or complexity < 0:
        raise InputError(f"complexity must be a finite number of at least 0; got {shorten_repr(complexity)}")
    if not is_finite(failure_probability) or not 0.0 < failure_probability < 1.0:
        raise InputError(f"failure_probability must be between 0 and 1; got {shorten_repr(failure_probability)}")
    return 2 * complexity + 3 * math.sqrt(math.log(2 / failure_probability) / (2 * check_count("samples", samples)))


def _compute_expectation(
    supremum: Callable[[Signs], NDArray[Any]],
    m: int,
    width: int,
    *,
    draws: int,
    seed: int,
    exact: bool | None,
) -> Complexity:
    """The mean of a function of sign vectors, (draws, m) to (draws,), which makes `width` numbers of each of them."""
    check_count("draws", draws, least=2)
    if exact and m > MAX_EXACT_POINTS:
        raise InputError(f"exact goes through 2^m signs, for m up to {MAX_EXACT_POINTS}; got m = {m}")
    enumerated = m <= MAX_EXACT_POINTS and 2**m <= draws if exact is None else exact
    # Never all draws at once: signs and results are thrown away block by block.
    rows = max(1, BLOCK_SIZE // (m + width))
    blocks = _enumerate_signs(m, rows) if enumerated else _draw_signs(m, draws, rows, seed)
    count, total, square = 0, 0.0, 0.0
    for signs in blocks:
        found = supremum(signs)
        count, total, square = count + len(found), total + float(found.sum()), square + float(found @ found)
    mean = total / count
    # The variance of one draw, at least 0 where rounding would have it below.
    variance = max(0.0, square / count - mean * mean) * count / max(1, count - 1)
    return Complexity(mean, 0.0 if enumerated else math.sqrt(variance / count))


def _enumerate_signs(m: int, rows: int) -> Iterator[Signs]:
    """Every vector of m signs once: the binary digits of 0 .. 2^m - 1."""
    for first in range(0, 2**m, rows):
        numbers = np.arange(first, min(first + rows, 2**m))
        yield 2.0 * (numbers[:, None] >> np.arange(m) & 1) - 1.0


def _draw_signs(m: int, draws: int, rows: int, seed: int) -> Iterator[Signs]:
    rng = make_rng(seed, "rademacher")
    for first in range(0, draws, rows):
        # Floats, one per sign, so that the signs do not depend on how they fall into blocks.
        yield np.where(rng.random((min(rows, draws - first), m)) < 0.5, -1.0, 1.0)


def check_matrix(name: str, given: ArrayLike, shape: str) -> Float[np.ndarray, "a b"]:
    """The argument as finite numbers of that shape, or a clear error."""
    try:
        array = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be numbers of the shape {shape}; got {shorten_repr(given)}") from None
    if array.ndim != 2 or array.size == 0:
        raise InputError(f"{name} must be of the shape {shape}, none of them 0; got {array.shape}")
    if not np.isfinite(array).all():
        raise InputError(f"{name} must be finite numbers")
    return array
