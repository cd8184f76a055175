"""Rademacher complexities against closed forms, Massart's lemma and each other, and the theorem by simulation."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError
from equiflock.theory import linear_rademacher_complexity, rademacher_complexity, rademacher_gap_bound


@st.composite
def classes(draw: st.DrawFn) -> NDArray[Any]:
    """The values of up to 30 functions on up to 10 points."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return rng.normal(size=(draw(st.integers(1, 30)), draw(st.integers(1, 10)))) * draw(st.sampled_from([0.01, 1, 50]))


@given(classes())
def test_one_function_alone_fits_no_noise(values: NDArray[Any]) -> None:
    assert abs(rademacher_complexity(values[:1]).value) < 1e-12 * np.abs(values).max()
    drawn = rademacher_complexity(values[:1], exact=False, draws=2000)
    assert abs(drawn.value) <= 5 * drawn.standard_error


def test_a_function_and_its_negative_have_the_mean_distance_of_a_random_walk() -> None:
    # E |sigma_1 + .. + sigma_4| / 4 = (2 * 4 + 8 * 2 + 6 * 0) / 16 / 4
    found = rademacher_complexity([[1.0] * 4, [-1.0] * 4])
    assert (found.value, found.standard_error) == (0.375, 0.0)


def test_all_functions_to_minus_1_and_1_fit_every_noise() -> None:
    every = 2.0 * (np.arange(2**8)[:, None] >> np.arange(8) & 1) - 1
    assert rademacher_complexity(every).value == 1.0


@given(classes())
def test_random_signs_agree_with_all_signs(values: NDArray[Any]) -> None:
    exact, drawn = rademacher_complexity(values, exact=True), rademacher_complexity(values, exact=False)
    assert exact.standard_error == 0.0
    assert abs(drawn.value - exact.value) <= 5 * drawn.standard_error + 1e-12 * np.abs(values).max()


@given(classes())
def test_massarts_lemma_holds(values: NDArray[Any]) -> None:
    functions, m = values.shape
    largest = np.linalg.norm(values, axis=1).max()
    assert rademacher_complexity(values).value <= largest * math.sqrt(2 * math.log(functions)) / m + 1e-9 * largest


@given(classes(), st.floats(-4, 4), st.integers(0, 2**32))
def test_it_scales_with_the_functions_and_does_not_see_a_common_shift(
    values: NDArray[Any], factor: float, seed: int
) -> None:
    one, tolerance = rademacher_complexity(values).value, 1e-10 * np.abs(values).max()
    # -F has the complexity of F, as signs are as likely as their opposites.
    assert rademacher_complexity(factor * values).value == pytest.approx(abs(factor) * one, abs=tolerance)
    shift = np.random.default_rng(seed).normal(size=values.shape[1]) * np.abs(values).max()
    assert rademacher_complexity(values + shift).value == pytest.approx(one, abs=10 * tolerance)


@given(classes(), st.booleans())
def test_a_larger_class_has_a_larger_complexity_and_mixtures_add_nothing(values: NDArray[Any], exact: bool) -> None:
    whole = rademacher_complexity(values, exact=exact, draws=500).value
    assert rademacher_complexity(values[: len(values) // 2 + 1], exact=exact, draws=500).value <= whole + 1e-12
    mixed = np.vstack([values, values.mean(axis=0)])
    assert rademacher_complexity(mixed, exact=exact, draws=500).value == pytest.approx(whole, rel=1e-9, abs=1e-12)


@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(1, 4), st.floats(0, 5))
def test_linear_functions_are_the_limit_of_many_of_them(seed: int, m: int, d: int, norm: float) -> None:
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(m, d))
    found = linear_rademacher_complexity(points, norm)
    assert found.value <= norm / m * math.sqrt(np.square(points).sum()) + 1e-12
    weights = rng.normal(size=(300, d))
    weights *= norm / np.linalg.norm(weights, axis=1, keepdims=True)
    some = rademacher_complexity(weights @ points.T).value
    # In the plane, 300 random directions leave no large gap.
    assert (0.9 * found.value if d <= 2 else 0.0) <= some <= found.value + 1e-12


def test_memory_does_not_grow_with_draws() -> None:
    values = np.random.default_rng(0).normal(size=(400, 600))
    tracemalloc.start()
    rademacher_complexity(values, draws=20_000)  # 64 MB of results and 96 MB of signs, if they were kept
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40e6


@pytest.mark.parametrize("m", [20, 80])
def test_the_theorem_holds_on_a_small_class(m: int) -> None:
    """Thresholds on [0, 1] as classifiers of noisy labels: the largest gap exceeds the bound in hardly any sample."""
    rng, trials, delta = np.random.default_rng(0), 300, 0.1
    cuts, noise = np.linspace(0, 1, 21), 0.2
    # The expected loss of "1 above the cut", where the label is 1 above one half, turned over with probability 0.2.
    risks = noise + (1 - 2 * noise) * np.abs(cuts - 0.5)
    failures, smallest = 0, math.inf
    for trial in range(trials):
        x, flipped = rng.random(m), rng.random(m) < noise
        losses = ((x > cuts[:, None]) != ((x > 0.5) ^ flipped)).astype(float)
        gap = (risks - losses.mean(axis=1)).max()
        allowed = rademacher_gap_bound(rademacher_complexity(losses, draws=300, seed=trial).value, m, delta)
        failures, smallest = failures + (gap > allowed), min(smallest, allowed)
    assert failures <= delta * trials
    assert smallest < 1.0 or m < 50  # and from some fifty points on it says something


def test_the_theorem_as_printed() -> None:
    expected = 2 * 0.1 + 3 * math.sqrt(math.log(2 / 0.01) / (2 * 500))
    assert rademacher_gap_bound(0.1, 500, 0.01) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: rademacher_complexity([1.0, 2.0]), r"values must have the shape \(functions, m\)"),
        (lambda: rademacher_complexity([["a"]]), "values must be numbers"),
        (lambda: rademacher_complexity([[math.nan]]), "values must be finite"),
        (lambda: rademacher_complexity([[1.0]], draws=1), "draws must be a whole number of at least 2"),
        (lambda: rademacher_complexity(np.ones((1, 25)), exact=True), r"up to 24; got m = 25"),
        (lambda: linear_rademacher_complexity([[1.0]], norm=-1.0), "norm must be a finite number of at least 0"),
        (lambda: rademacher_gap_bound(-0.1, 5), "complexity must be a finite number of at least 0"),
        (lambda: rademacher_gap_bound(0.1, 5, 2.0), "failure_probability must be between 0 and 1"),
        (lambda: rademacher_gap_bound(0.1, 0), "samples must be a whole number"),
    ],
)
def test_wrong_input_is_refused_in_one_line(call: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()
