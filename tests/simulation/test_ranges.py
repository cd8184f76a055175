"""Parsing of ranges such as 0-0.5, and their distributions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equiflock._runtime.checks import InputError
from equiflock.simulation.environment_ranges import Distribution, Range, parse_range


@pytest.mark.parametrize(
    ("text", "distribution", "expected"),
    [
        ("0-0.5", "uniform", Range(0.0, 0.5)),
        (" 0 - .5 ", "uniform", Range(0.0, 0.5)),
        ("0-2", "uniform_integer", Range(0, 2, "uniform_integer")),
        ("3-100", "log_uniform", Range(3.0, 100.0, "log_uniform")),
        ("1e-3-1e-2", "uniform", Range(0.001, 0.01)),
        ("0-1e-3", "uniform", Range(0.0, 0.001)),
        ("1E+1-2.5e1", "uniform", Range(10.0, 25.0)),
        ("1e-3", "uniform", 0.001),
        ("0.2", "uniform", 0.2),
        ("3", "uniform_integer", 3),
        ("0.2-0.2", "uniform", 0.2),
        ("2-2", "uniform_integer", 2),
    ],
)
def test_texts_are_read_as_ranges_or_numbers_and_the_minus_of_an_exponent_is_no_range(
    text: str, distribution: Distribution, expected: Range | float
) -> None:
    found = parse_range("x", text, distribution)
    assert found == expected
    assert type(found) is type(expected)


@given(st.lists(st.floats(0.0, 1e300), min_size=2, max_size=2, unique=True))
def test_a_range_is_read_again_from_its_own_text_to_the_last_bit(ends: list[float]) -> None:
    values = Range(min(ends), max(ends))
    assert parse_range("x", str(values), "uniform") == values


def test_the_text_of_a_range_is_as_short_as_a_user_writes_it() -> None:
    assert str(Range(0.0, 0.5)) == "0-0.5"
    assert str(Range(3.0, 100.0, "log_uniform")) == "3-100"
    assert str(Range(0, 2, "uniform_integer")) == "0-2"


@pytest.mark.parametrize(
    ("text", "distribution", "message"),
    [
        ("a", "uniform", "x must be a number, or a range such as 0-0.5; got 'a'"),
        ("", "uniform", "x must be a number, or a range such as 0-0.5; got ''"),
        ("0-0.5-1", "uniform", "x must be a number, or a range"),
        ("-1-2", "uniform", "x must be a number, or a range"),
        ("0-", "uniform", "x must be a number, or a range"),
        ("nan", "uniform", "x must be a number, or a range"),
        ("0-inf", "uniform", "x must be a number, or a range"),
        ("0,0.5", "log_uniform", "x must be a number, or a range such as 3-100; got '0,0.5'"),
        ("0-0.5", "uniform_integer", "x must be a whole number, or a range of them such as 0-2; got '0-0.5'"),
        ("0-" + "9" * 5000, "uniform_integer", "x must be a whole number, or a range of them"),
        ("5-3", "uniform", "x must be a range from low to high, 3-5; got '5-3'"),
        ("2-0", "uniform_integer", "x must be a range from low to high, 0-2; got '2-0'"),
    ],
)
def test_any_other_text_is_refused_in_one_line(text: str, distribution: Distribution, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse_range("x", text, distribution)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def drawn(values: Range, count: int = 4_000) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.array([values.draw(rng) for _ in range(count)])


def test_uniform_integers_include_both_ends_and_are_equally_likely() -> None:
    found = Range(0, 2, "uniform_integer").draw(np.random.default_rng(0))
    assert type(found) is int
    numbers, counts = np.unique(drawn(Range(0, 2, "uniform_integer")), return_counts=True)
    assert list(numbers) == [0, 1, 2]
    # The standard deviation of each share is 0.0075.
    np.testing.assert_allclose(counts / 4_000, 1 / 3, atol=0.03)


def test_a_uniform_range_is_covered_evenly() -> None:
    found = drawn(Range(0.1, 0.5))
    assert 0.1 <= found.min() < 0.101
    assert 0.499 < found.max() <= 0.5
    np.testing.assert_allclose(np.quantile(found, (0.25, 0.5, 0.75)), (0.2, 0.3, 0.4), atol=0.015)


def test_the_median_of_a_log_uniform_range_is_its_geometric_mean() -> None:
    found = drawn(Range(3.0, 300.0, "log_uniform"))
    assert 3.0 <= found.min() < 3.03
    assert 297.0 < found.max() <= 300.0
    assert np.median(found) == pytest.approx(30.0, rel=0.1)
    # As likely from 3 to 9.5 as from 95 to 300: a quarter each.
    low, high = (found < 3.0 * 10**0.5).mean(), (found > 30.0 * 10**0.5).mean()
    assert low == pytest.approx(0.25, abs=0.03)
    assert high == pytest.approx(0.25, abs=0.03)


def test_the_middle_depends_on_the_distribution() -> None:
    assert Range(0.1, 0.5).middle == pytest.approx(0.3)
    assert Range(4.0, 100.0, "log_uniform").middle == pytest.approx(20.0)
    assert [Range(0, high, "uniform_integer").middle for high in (1, 2, 3)] == [0, 1, 1]
    assert type(Range(0, 3, "uniform_integer").middle) is int


def test_a_log_uniform_range_never_draws_beyond_its_ends() -> None:
    # exp(log(x)) is not always x, and the drawn number must be one that was checked.
    values = Range(0.1, np.nextafter(0.1, 1.0), "log_uniform")
    assert set(drawn(values, 100)) <= {values.low, values.high}
