"""Names with options are parsed and formatted, and fields have docstrings."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from equiflock._runtime.checks import InputError
from equiflock._runtime.specs import (
    Spec,
    format_spec,
    parse_options,
    parse_spec,
    parse_weighted_specs,
    read_field_docstrings,
)


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
    written = format_spec("law", **options)
    assert written == "law:clamp=none:beta=0.25:hops=1:cut_off=false:by=norm"
    assert parse_spec(written) == Spec("law", options)
    assert format_spec("law") == "law"


def test_a_spec_is_a_name_with_or_without_options() -> None:
    assert parse_spec("tanner") == Spec("tanner", {})
    assert parse_spec("etdagnn:1") == Spec("etdagnn", {"seed": 1})
    assert parse_spec("obstacles:sides=48:orbit=none") == Spec("obstacles", {"sides": 48, "orbit": None})
    with pytest.raises(InputError, match="options must have the form"):
        parse_spec("tanner:")
    with pytest.raises(InputError, match="a name must be a string; got 3"):
        parse_spec(3)  # type: ignore[arg-type]


def test_weighted_specs_are_terms_with_weights_or_a_single_spec() -> None:
    two = [(0.5, Spec("flocking", {"disk_radius": 3.0})), (2.0, Spec("leaders", {"leaders": 1}))]
    assert parse_weighted_specs("tasks", " .5 * flocking:disk_radius=3e+0 +2*leaders:leaders=1", "") == two
    assert parse_weighted_specs("tasks", " leaders:leaders=1", "") == [(1.0, Spec("leaders", {"leaders": 1}))]
    assert parse_weighted_specs("tasks", "a+b:c=1", "", ("a+b",)) == [(1.0, Spec("a+b", {"c": 1}))]


@pytest.mark.parametrize("text", ["", "a+b", "1*a+b", "1*a+1*", "1*a b", "1*a+b*c"])
def test_malformed_weighted_specs_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"tasks must be a name, or several with their shares such as 1\*a; got"):
        parse_weighted_specs("tasks", text, "1*a")


@dataclass
class Base:
    """A class."""

    first: int = 1
    """The
    first."""
    second: int = 2
    third: int = 3
    """Third of the base."""


@dataclass
class Derived(Base):
    third: int = 4
    """Its own third."""
    size = 3
    """No field."""


def test_a_docstring_belongs_to_the_field_above_it() -> None:
    assert read_field_docstrings(Base) == {"first": "The first.", "third": "Third of the base."}


def test_fields_that_are_inherited_keep_theirs_unless_they_are_declared_again() -> None:
    assert read_field_docstrings(Derived) == {"first": "The first.", "third": "Its own third."}


def test_a_class_without_source_has_none() -> None:
    assert read_field_docstrings(dataclass(type("Made", (), {"__annotations__": {"x": int}}))) == {}
