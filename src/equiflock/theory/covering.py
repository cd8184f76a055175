"""Covering numbers, and the bound on the Rademacher complexity by them (section 4.1 and the appendix of the paper).

The covering number N(Z, r) of a set Z is the smallest number of balls of radius r that cover it. `log_matrix_cover`
bounds it for balls of numbers or matrices, `log_class_cover` for classes of networks, whose scores are Lipschitz in the
weights; and Dudley's integral over r turns it into a bound on the complexity. All functions return ln N, because N
would overflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Int64
from numpy.typing import ArrayLike

from equiflock._runtime.checks import InputError, check_choice, check_count, check_positive
from equiflock.theory.bound import Bound, Variant
from equiflock.theory.rademacher import check_matrix

GRID_POINTS = 4_000
"""Number of radii at which the integrand is evaluated."""
DECADES = 12
"""Powers of ten that the radii span."""


def log_matrix_cover(norm: float, radius: float, dimension: int = 1) -> float:
    """Return D^2 ln(1 + 2 B sqrt(D) / r) >= ln N for D x D matrices with |W|_F <= B, in the Frobenius norm.

    This is Lemma 3.2 of Chen, Li and Zhao (2019) as the proof of the proposition uses it; D = 1 is a scalar, such as b.
    B is `norm`, r `radius`, and D `dimension`, the larger of the numbers of rows and columns.
    """
    check_count("dimension", dimension)
    log_ratio = math.log(check_positive("norm", norm)) - math.log(check_positive("radius", radius))
    return _compute_log_cover(log_ratio, dimension)


def _compute_log_cover(log_ratio: float, dimension: int) -> float:
    """Return the upper bound D^2 ln(1 + 2 sqrt(D) B / r) of ln N, given ln(B / r), because B / r could overflow."""
    return dimension**2 * float(np.logaddexp(0.0, math.log(2 * math.sqrt(dimension)) + log_ratio))


def log_score_lipschitz(bound: Bound) -> float:
    """Return ln of 2 (B_s + (1 + P) beta^2 P), the Lipschitz constant of scores b^2 + MSE in b and the weights.

    P is the product over matrices of C max(1, |W_l|_F), and B_s = sqrt(M) the largest b (proof of the proposition,
    after lemma "scoring-function-locally-lipshitz").
    """
    log_product = bound.layers * math.log(bound.lipschitz) + bound.norm_sum
    of_weights = float(np.logaddexp(0.0, log_product)) + 2 * math.log(bound.data_bound) + log_product
    return math.log(2) + float(np.logaddexp(math.log(bound.loss_scale) / 2, of_weights))


def log_class_cover(bound: Bound, radius: float, parts: int | None = None) -> float:
    """Return the proof's bound on ln N of all scores b^2 + MSE of networks with these norms, in the supremum norm.

    Distances of scores are at most Lambda (|b - b'| + sum_l |W_l - W_l'|_F), so covers of b and of each matrix with
    radius r / (n Lambda) give a cover of the class (Lemma G.1 of Karczewski et al., 2024). The number n of `parts` that
    share the radius is L + 1 by default, the matrices and b; the proof uses L, which is one too few. The bound's
    `samples` and `failure_probability` are not used.
    """
    n = bound.layers + 1 if parts is None else check_count("parts", parts)
    # ln(n Lambda / r), where r / (n Lambda) is the radius of each part.
    log_finer = math.log(n) + log_score_lipschitz(bound) - math.log(check_positive("radius", radius))
    of_score = _compute_log_cover(math.log(bound.loss_scale) / 2 + log_finer, 1)
    logs = (math.log(max(1.0, norm)) for norm in bound.norms)
    return of_score + sum(_compute_log_cover(log_norm + log_finer, bound.largest_dimension) for log_norm in logs)


def dudley_bound(
    log_cover: Callable[[float], float], samples: int, largest: float = 1.0, variant: Variant = "proven"
) -> float:
    """Return the bound on a class's complexity by its covering numbers, lemma "Bounding ERC":

        inf_alpha 4 alpha / sqrt(m) + (12 / m) int_alpha^(2 B sqrt(m)) sqrt(ln N(r / sqrt(m))) dr.

    Bartlett et al. (2017), who proved it, cover the values on the sample in the Euclidean norm, which is up to sqrt(m)
    times the supremum norm. The paper prints N(r) of the supremum norm, which does not hold: N(B) = 1, because the
    class contains the function 0, so that alpha = B would bound every complexity by 4 B / sqrt(m); but the class of all
    functions from m points to {-B, B} has complexity B.

    `log_cover` returns ln N(r) of the class in the supremum norm, or an upper bound, for any r > 0; it must not grow
    with r. m is `samples`, and B is `largest`, the largest absolute value of any function. The variant "proven" has
    N(r / sqrt(m)), "printed" has N(r).

    The integral is an upper sum over radii that span twelve powers of ten, and the infimum is over these radii, so the
    result is never too small; it is too large by less than a percent.
    """
    m = check_count("samples", samples)
    check_choice("variant", variant, ("proven", "printed"))
    top = 2 * check_positive("largest", largest) * math.sqrt(m)
    radii = np.geomspace(top * 10.0**-DECADES, top, GRID_POINTS)
    scale = math.sqrt(m) if variant == "proven" else 1.0
    logs = np.array([log_cover(radius / scale) for radius in radii.tolist()])
    if not (np.isfinite(logs).all() and (logs >= 0).all() and (np.diff(logs) <= 1e-9 * logs[:-1]).all()):
        raise InputError("log_cover must return the finite logarithm of a covering number, which does not grow with r")
    # On each interval, the integrand is at most its value at the left end.
    terms = np.sqrt(logs[:-1]) * np.diff(radii)
    integrals = np.append(np.cumsum(terms[::-1])[::-1], 0.0)  # from each radius to the largest
    return float((4 * radii / math.sqrt(m) + 12 / m * integrals).min())


def greedy_cover(points: ArrayLike, radius: float, norm: float = 2.0) -> Int64[np.ndarray, " centres"]:
    """Return the indices of centres such that each point is within r of one: a cover, not always a smallest one.

    The first centre is point 0 and each next one the point farthest from all centres so far, until all points are
    within r, so centres are more than r apart. This gives bounds on both sides: len(greedy_cover(points, 2 r)) <= N(r)
    <= len(greedy_cover(points, r)), because no ball of radius r holds two points that are more than 2 r apart. The
    order of the norm is 2, 1, or math.inf for the largest entry.
    """
    vectors = check_matrix("points", points, "(points, d)")
    check_positive("radius", radius)
    if norm not in (1, 2, math.inf):
        raise InputError(f"norm must be 1, 2 or math.inf; got {norm!r}")
    centres, farthest = [], 0
    distances = np.full(len(vectors), math.inf)
    while distances[farthest] > radius:
        centres.append(farthest)
        np.minimum(distances, np.linalg.norm(vectors - vectors[farthest], ord=norm, axis=1), out=distances)
        farthest = int(distances.argmax())
    return np.array(centres, np.int64)
