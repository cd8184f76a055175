"""Wrong input is refused in one short line."""

from __future__ import annotations

import numpy as np
import pytest

from equiflock._runtime.checks import (
    InputError,
    check_count,
    check_positive,
    format_names,
    raise_wrong_choice,
    suggest_name,
)


def test_counts_are_whole_numbers() -> None:
    assert check_count("n", np.int64(3)) == 3
    for wrong in (0, 2.0, True, "3"):
        with pytest.raises(InputError, match="n must be a whole number of at least 1"):
            check_count("n", wrong)


def test_a_misspelled_name_gets_a_suggestion() -> None:
    with pytest.raises(InputError, match="did you mean 'tanner-dynamic'"):
        raise_wrong_choice("controller", "taner-dinamic", ("tanner", "tanner-dynamic"))


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("taner", "tanner"),  # edit distance 1
        ("tarner-", "tanner"),  # 2
        ("terner-", None),  # 3
        ("Tanner", "tanner"),
        ("tan", "tanner"),  # a prefix
        ("tanner-dyn", "tanner-dynamic"),
        ("ta", None),  # too short a prefix
        ("reynolds-local", "reynolds"),  # the known name is a prefix
        ("nosuch", None),
        ("ab", None),  # edit distance 2 from "go", with no letter in common
        ("max", None),  # edit distance 2 from "mean", with two of three letters changed
        ("maen", "mean"),  # two letters swapped
        ("tanenr", "tanner"),
        ("tanner" * 100_000, "tanner"),  # at once, although it is long
        ("x" * 1_000_000, None),
        ("", None),
    ],
)
def test_suggestions_are_close(name: str, suggestion: str | None) -> None:
    assert suggest_name(name, ("tanner", "tanner-dynamic", "reynolds", "go", "mean")) == suggestion


def test_long_lists_of_names_are_shortened() -> None:
    names = tuple(f"name-{number}" for number in range(23))
    with pytest.raises(InputError) as error:
        raise_wrong_choice("name", "x" * 1000, names, ", or your own")
    text = str(error.value)
    assert text.startswith("name must be one of 'name-0', 'name-1', 'name-2', 'name-3', 'name-4' and 18 more, or your")
    assert len(text) < 220
    assert format_names(names[:12]) == ", ".join(names[:12])


@pytest.mark.parametrize(
    "value", [10**400, -(10**400), float("inf"), "1", None, True, 1j, [1.0]], ids=lambda value: type(value).__name__
)
def test_what_is_no_finite_number_is_refused_in_one_short_line(value: object) -> None:
    with pytest.raises(InputError, match="size must be a finite number above 0; got ") as caught:
        check_positive("size", value)
    assert len(str(caught.value)) < 150


@pytest.mark.parametrize(
    "value", [10**5000, 10**400, 2**63, "1", None, True, 1.0], ids=lambda value: type(value).__name__
)
def test_what_cannot_be_counted_is_refused_in_one_short_line(value: object) -> None:
    with pytest.raises(InputError, match="size must be") as caught:
        check_count("size", value)
    assert len(str(caught.value)) < 150
