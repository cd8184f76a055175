"""Fields have docstrings, though Python forgets them."""

from __future__ import annotations

from dataclasses import dataclass

from equiflock._runtime.specs import read_field_docstrings


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
