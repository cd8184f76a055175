"""Empirical Rademacher complexity: how well a class of functions can fit random signs (section 4.1 of the paper).

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

from equiflock._runtime.checks import InputError, check_count, check_nonnegative, is_finite, shorten_repr
from equiflock._runtime.randomness import make_rng

Signs = Float[np.ndarray, "draws m"]

BLOCK_SIZE = 2**20
"""Numbers in memory at a time: signs and function values."""
MAX_EXACT_POINTS = 24
"""Largest m for which all 2^m sign vectors can be enumerated: a minute for a class of hundreds of functions."""


@dataclass(frozen=True)
class Complexity:
    """An empirical Rademacher complexity."""

    value: float
    """R."""
    standard_error: float
    """Standard error of the value over random signs; 0 if all sign vectors were enumerated."""


def rademacher_complexity(
    values: ArrayLike, *, draws: int = 10_000, seed: int = 0, exact: bool | None = None
) -> Complexity:
    """Return the complexity of a finite class on a sample (definition "Empirical Rademacher complexity").

    `values` (functions, m) are f(x_i) of every function on every point. The mean runs over `draws` random sign vectors,
    which are the same for all classes on m points, so that a larger class never has a smaller estimate; or over all 2^m
    if `exact`, for m up to 24, or if that is None and 2^m <= draws.
    """
    functions = check_matrix("values", values, "(functions, m)")
    count, m = functions.shape
    return _compute_expectation(lambda signs: (signs @ functions.T).max(axis=1) / m, m, count, draws, seed, exact)


def linear_rademacher_complexity(
    points: ArrayLike, norm: float = 1.0, *, draws: int = 10_000, seed: int = 0, exact: bool | None = None
) -> Complexity:
    """Return the complexity of all linear functions <w, x>, |w| <= W, on points (m, d): (W / m) E |sum_i sigma_i x_i|.

    It is at most (W / m) sqrt(sum_i |x_i|^2). W is `norm`; `draws`, `seed` and `exact` are as for
    `rademacher_complexity`.
    """
    vectors = check_matrix("points", points, "(m, d)")
    check_nonnegative("norm", norm)
    m, d = vectors.shape

    def compute_supremum(signs: Signs) -> NDArray[Any]:
        # It is attained by the w parallel to the sum.
        return np.asarray(norm / m * np.linalg.norm(signs @ vectors, axis=1))

    return _compute_expectation(compute_supremum, m, d, draws, seed, exact)


def rademacher_gap_bound(complexity: float, samples: int, failure_probability: float = 1e-3) -> float:
    """Return 2 R + 3 sqrt(ln(2 / delta) / (2 m)), which bounds all gaps (theorem "ERC bounds generalization gap").

    R is the `complexity` of the class of losses, which must be between 0 and 1, on the m `samples`.
    """
    check_nonnegative("complexity", complexity)
    if not is_finite(failure_probability) or not 0.0 < failure_probability < 1.0:
        raise InputError(f"failure_probability must be between 0 and 1; got {shorten_repr(failure_probability)}")
    return 2 * complexity + 3 * math.sqrt(math.log(2 / failure_probability) / (2 * check_count("samples", samples)))


def _compute_expectation(
    supremum: Callable[[Signs], NDArray[Any]], m: int, width: int, draws: int, seed: int, exact: bool | None
) -> Complexity:
    """Return mean and standard error of `supremum`, a function of sign vectors, (draws, m) to (draws,).

    `width` is the number of values that `supremum` needs per vector, which limits the size of a block.
    """
    check_count("draws", draws, least=2)
    if exact and m > MAX_EXACT_POINTS:
        raise InputError(
            f"exact enumerates 2^m sign vectors, for m up to {MAX_EXACT_POINTS}; got m = {m}: use exact=False"
        )
    enumerated = m <= MAX_EXACT_POINTS and 2**m <= draws if exact is None else exact
    # Process signs in blocks to limit memory.
    rows = max(1, BLOCK_SIZE // (m + width))
    blocks = _enumerate_signs(m, rows) if enumerated else _draw_signs(m, draws, rows, seed)
    count, total, square = 0, 0.0, 0.0
    for signs in blocks:
        suprema = supremum(signs)
        count, total, square = count + len(suprema), total + float(suprema.sum()), square + float(suprema @ suprema)
    mean = total / count
    # The variance of one draw; rounding may make it negative, so clamp it to 0.
    variance = max(0.0, square / count - mean * mean) * count / max(1, count - 1)
    return Complexity(mean, 0.0 if enumerated else math.sqrt(variance / count))


def _enumerate_signs(m: int, rows: int) -> Iterator[Signs]:
    """Yield every vector of m signs once, in blocks of at most `rows`: bits 0 and 1 of 0 .. 2^m - 1 become -1 and 1."""
    for first in range(0, 2**m, rows):
        numbers = np.arange(first, min(first + rows, 2**m))
        yield 2.0 * (numbers[:, None] >> np.arange(m) & 1) - 1.0


def _draw_signs(m: int, draws: int, rows: int, seed: int) -> Iterator[Signs]:
    """Yield `draws` random sign vectors in blocks of at most `rows`, which do not change the signs."""
    rng = make_rng(seed, "rademacher")
    for first in range(0, draws, rows):
        # Draw one float per sign, so that the signs do not depend on the block size.
        yield np.where(rng.random((min(rows, draws - first), m)) < 0.5, -1.0, 1.0)


def check_matrix(name: str, given: ArrayLike, shape: str) -> Float[np.ndarray, "a b"]:
    """Return the argument as a float64 matrix; raise InputError if it is empty, not finite or not two-dimensional."""
    try:
        array = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be numbers of shape {shape}; got {shorten_repr(given)}") from None
    if array.ndim != 2 or array.size == 0:
        raise InputError(f"{name} must have the shape {shape}, without axes of length 0; got {array.shape}")
    if not np.isfinite(array).all():
        raise InputError(f"{name} must be finite numbers; got NaN or infinity")
    return array
