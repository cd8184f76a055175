"""Covers cover, the lemmas' covering numbers are above real ones, and the proof's inequalities hold one by one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError
from equiflock.theory import (
    Bound,
    dudley_bound,
    greedy_cover,
    log_class_cover,
    log_matrix_cover,
    log_score_lipschitz,
    rademacher_complexity,
)

NORMS = st.sampled_from([1.0, 2.0, math.inf])


@st.composite
def bounds(draw: st.DrawFn) -> Bound:
    """Classes of networks of all sizes, with few samples and with very many."""
    norms = draw(st.lists(st.floats(0, 50), min_size=1, max_size=6))
    return Bound(
        samples=draw(st.sampled_from([1, 10, 30_150, 10**10])),
        largest_dimension=draw(st.integers(1, 40)),
        data_bound=draw(st.floats(1, 1e6)),
        lipschitz=draw(st.floats(1, 3)),
        norms=tuple(norms),
        loss_scale=draw(st.floats(1, 9)),
    )


def points_in_a_ball(seed: int, count: int, d: int, radius: float) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(count, d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return radius * directions * rng.random((count, 1)) ** (1 / d)


@given(st.integers(0, 2**32), st.integers(1, 200), st.integers(1, 4), st.floats(0.05, 3), NORMS)
def test_a_greedy_cover_covers_and_its_centres_are_apart(
    seed: int, count: int, d: int, radius: float, norm: float
) -> None:
    points = points_in_a_ball(seed, count, d, 1.0)
    centres = points[greedy_cover(points, radius, norm)]
    distances = np.linalg.norm(points[:, None] - centres, ord=norm, axis=-1)
    assert distances.min(axis=1).max() <= radius
    between = np.linalg.norm(centres[:, None] - centres, ord=norm, axis=-1)
    assert (between + np.eye(len(centres)) * 9 > radius).all()


@given(st.integers(0, 2**32), st.integers(1, 60), st.floats(0.02, 0.5))
def test_greedy_covers_are_on_both_sides_of_the_smallest_on_a_line(seed: int, count: int, radius: float) -> None:
    points = np.sort(np.random.default_rng(seed).random(count))
    # The fewest intervals of length 2 r: each begins at the first point that is not covered yet.
    fewest, end = 0, -math.inf
    for point in points:
        if point > end:
            fewest, end = fewest + 1, point + 2 * radius
    lower, upper = (len(greedy_cover(points[:, None], each)) for each in (2 * radius, radius))
    assert lower <= fewest <= upper


@given(st.integers(0, 2**32), st.integers(1, 2), st.floats(0.1, 4), st.floats(0.1, 2))
def test_the_lemmas_number_is_above_a_cover_of_a_ball_of_matrices(
    seed: int, dimension: int, norm: float, share: float
) -> None:
    points = points_in_a_ball(seed, 2000, dimension**2, norm)
    cover = greedy_cover(points, share * norm)
    assert math.log(len(cover)) <= log_matrix_cover(norm, share * norm, dimension)


def test_the_lemmas_number_by_hand() -> None:
    assert log_matrix_cover(3.0, 0.5, 4) == pytest.approx(16 * math.log(1 + 2 * 3 * 2 / 0.5), rel=1e-14)
    assert log_matrix_cover(3.0, 0.5) == pytest.approx(math.log(1 + 2 * 3 / 0.5), rel=1e-14)


@given(bounds(), st.floats(1e-6, 10))
def test_the_class_has_the_product_of_its_parts_numbers(bound: Bound, radius: float) -> None:
    product = math.prod(bound.lipschitz * max(1.0, norm) for norm in bound.norms)
    largest_b = math.sqrt(bound.loss_scale)
    constant = 2 * (largest_b + (1 + product) * bound.data_bound**2 * product)
    assert math.exp(log_score_lipschitz(bound)) == pytest.approx(constant, rel=1e-9)
    finer = radius / (bound.layers * constant)
    expected = log_matrix_cover(largest_b, finer)
    expected += sum(log_matrix_cover(max(1.0, norm), finer, bound.largest_dimension) for norm in bound.norms)
    assert log_class_cover(bound, radius, parts=bound.layers) == pytest.approx(expected, rel=1e-9)
    assert log_class_cover(bound, radius) > log_class_cover(bound, radius, parts=bound.layers)


@pytest.mark.slow
@given(bounds())
def test_the_proof_line_by_line_from_dudleys_bound_to_the_closed_form(bound: Bound) -> None:
    m, D, L = bound.samples, bound.largest_dimension, bound.layers

    def complexity(log_cover: float) -> float:
        return 4 / m + 24 / math.sqrt(m) * math.sqrt(log_cover)

    integral = dudley_bound(lambda r: log_class_cover(bound, r, parts=L), m, variant="printed")
    # alpha = 1 / sqrt(m), and the largest value of the integrand for all of it; the integral here is an upper sum.
    assert integral <= 1.01 * complexity(log_class_cover(bound, 1 / math.sqrt(m), parts=L))
    cover = log_class_cover(bound, 1 / (2 * math.sqrt(m)), parts=L)
    constant, largest_b = log_score_lipschitz(bound), math.log(bound.loss_scale) / 2
    # ln(1 + 4 x) <= ln(5 x) for x >= 1, and D^2 for b, too: D^2 times Sigma.
    common = math.log(5 * L * math.sqrt(m)) + constant
    sigma = common + largest_b + L * (common + math.log(D) / 2) + bound.norm_sum
    assert cover <= D**2 * sigma * (1 + 1e-12)
    # The bound on the constant, and the last lines.
    product = L * math.log(bound.lipschitz) + bound.norm_sum
    assert constant <= 3 * math.log(2) + largest_b + 2 * math.log(bound.data_bound) + 2 * product + 1e-9
    assert sigma <= bound.root**2 * (1 + 1e-12)
    assert complexity(cover) <= bound.rademacher_term * (1 + 1e-12)
    assert 2 * bound.rademacher_term + bound.confidence_term == pytest.approx(bound.value, rel=1e-14)


@pytest.mark.slow
@given(bounds())
def test_the_closed_form_holds_with_the_lemma_and_the_number_of_parts_as_they_must_be(bound: Bound) -> None:
    """From five samples on: the integral of the root is at most that of ln N's mean, which has no m in it."""
    m, D, n = max(5, bound.samples), bound.largest_dimension, bound.layers + 1
    bound = replace(bound, samples=m)
    integral = dudley_bound(lambda r: log_class_cover(bound, r, parts=n), m)
    # (12 / sqrt(m)) int_0^2 sqrt(ln N(s)) ds is at most 24 / sqrt(m) times the root of the mean of ln N over [0, 2],
    # and the mean of ln(1 + a / s) is at most ln(a) + 1.
    common = math.log(2 * math.e * n) + log_score_lipschitz(bound)
    mean = common + math.log(bound.loss_scale) / 2
    mean += D**2 * (bound.layers * (common + math.log(D) / 2) + bound.norm_sum)
    assert integral <= 1.01 * 24 / math.sqrt(m) * math.sqrt(mean)
    assert 24 / math.sqrt(m) * math.sqrt(mean) <= bound.rademacher_term


# All functions from m points to -1 and 1, and the function 0.


def log_covers_of_signs(m: int) -> Callable[[float], float]:
    """Their covering numbers in the supremum norm: one ball of radius 1, else a ball for each."""
    return lambda radius: 0.0 if radius >= 1 else math.log(2**m + 1)


def test_dudleys_bound_as_printed_does_not_hold_and_as_proven_it_does() -> None:
    for m in (4, 8):
        functions = np.vstack([np.zeros(m), 2.0 * (np.arange(2**m)[:, None] >> np.arange(m) & 1) - 1])
        log_cover = log_covers_of_signs(m)
        for radius in (0.3, 0.99, 1.0):
            assert math.exp(log_cover(radius)) == pytest.approx(len(greedy_cover(functions, radius, math.inf)))
        assert rademacher_complexity(functions).value == 1.0
    # Larger classes have a complexity of 1, too.
    m, log_cover = 18, log_covers_of_signs(18)
    assert dudley_bound(log_cover, m, variant="printed") == pytest.approx(4 / math.sqrt(m), rel=0.01)  # 0.94
    assert dudley_bound(log_cover, m) >= 1.0


def test_the_line_with_24_over_m_does_not_hold_and_with_24_over_the_root_it_does() -> None:
    m = 1000  # the class of all signs has the complexity 1, and ln N = m ln 2
    root = math.sqrt(m * math.log(2))
    assert 4 / m + 24 / m * root < 1.0 < 4 / m + 24 / math.sqrt(m) * root


@pytest.mark.parametrize(("functions", "m"), [(3, 6), (20, 10), (200, 12)])
def test_dudleys_bound_is_above_the_complexity_of_a_random_class(functions: int, m: int) -> None:
    values = np.vstack([np.zeros(m), np.random.default_rng(m).uniform(-1, 1, (functions, m))])

    @cache
    def log_cover(exponent: int) -> float:
        return math.log(len(greedy_cover(values, 2 ** (exponent / 4), math.inf)))

    # A smaller radius has a larger cover, so radii may be rounded down.
    found = dudley_bound(lambda radius: log_cover(math.floor(4 * math.log2(radius))), m)
    assert rademacher_complexity(values).value <= found


def test_dudleys_bound_of_a_known_integrand() -> None:
    """ln N(r) = (1 - r / 2)^2 for B = 1: the infimum is at alpha = 0 if m >= 9, and the integral is sqrt(m)."""
    m = 144
    found = dudley_bound(lambda r: (1 - r / 2) ** 2, m)
    assert 12 / m * math.sqrt(m) <= found <= 1.01 * 12 / m * math.sqrt(m)


def test_more_samples_help_and_more_dimensions_hurt() -> None:
    bound = Bound(10**8, 8, data_bound=50.0, lipschitz=1.1, norms=(3.0, 2.0, 0.5))

    def complexity(of: Bound) -> float:
        return dudley_bound(lambda r: log_class_cover(of, r), of.samples)

    assert complexity(replace(bound, samples=10**9)) < complexity(bound) < complexity(replace(bound, samples=10**7))
    assert complexity(bound) < complexity(replace(bound, largest_dimension=9))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: greedy_cover([1.0], 1.0), r"points must have the shape \(points, d\)"),
        (lambda: greedy_cover([[1.0]], 0.0), "radius must be a finite number above 0"),
        (lambda: greedy_cover([[1.0]], 1.0, 3), "norm must be 1, 2 or math.inf"),
        (lambda: log_matrix_cover(1.0, -1.0), "radius must be a finite number above 0"),
        (lambda: log_matrix_cover(1.0, 1.0, 0), "dimension must be a whole number"),
        (lambda: dudley_bound(lambda r: r, 10), "log_cover must return the finite logarithm"),
        (lambda: dudley_bound(lambda r: 1.0, 10, variant="hoped"), "variant must be one of"),
    ],
)
def test_wrong_input_is_refused_in_one_line(call: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()
