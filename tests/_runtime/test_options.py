"""Names with options are read as one word."""

from __future__ import annotations

import pytest

from equiflock._runtime.checks import InputError
from equiflock._runtime.specs import format_options, parse_options


def test_values_are_numbers_truths_nothing_or_words() -> None:
    assert parse_options("clamp=5:near=0.5:orbit=none:connected=False:split=test") == {
        "clamp": 5,
        "near": 0.5,
        "orbit": None,
        "connected": False,
        "split": "test",
    }


def test_a_whole_number_alone_is_a_seed() -> None:
    assert parse_options("3") == {"seed": 3}


@pytest.mark.parametrize("text", ["", "clamp", "clamp=", "=5", "a=1:a=2", "two words=1", "1.5"])
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError, match="options must have the form key=value:key=value"):
        parse_options(text)


def test_a_name_with_options_is_written_as_it_is_read() -> None:
    options = {"clamp": None, "beta": 0.25, "hops": 1, "cut_off": False, "by": "norm"}
    written = format_options("law", options)
    assert written == "law:clamp=none:beta=0.25:hops=1:cut_off=false:by=norm"
    assert parse_options(written.removeprefix("law:")) == options
    assert format_options("law", {}) == "law"
