"""The types of a recipe's fields: a recipe may come from a file, where nothing has checked them."""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.learning.ranges import Range, parse_range
from equiflock.runtime.checks import LARGEST_COUNT, InputError, is_finite, shorten_repr

NAME_TYPES = {"str": "a name"} | dict.fromkeys(("RadiusRule", "VelocityRule", "Schedule"), "the name of a rule")
"""Annotations of fields that are words, and what they are called in errors."""


def check_field(name: str, kind: str, value: Any) -> Any:
    """The value of a field as a recipe keeps it; a clear error unless it has the type of the field's annotation.

    Args:
        name: the field's, for errors.
        kind: its annotation, as text; that of a number that may be a range ends in "| str".
        value: what was given; its range is checked elsewhere.
    """
    if isinstance(value, np.generic):  # JSON, in which recipes are kept, knows plain numbers only
        value = value.item()
    number = kind.removesuffix(" | str")
    if number != kind and isinstance(value, str):
        found = parse_range(name, value, "uniform_integer" if number == "int" else "uniform")
        return str(found) if isinstance(found, Range) else found
    if not _has_type(number, value):
        raise InputError(f"{name} must be {_format_type(number)}; got {shorten_repr(value)}")
    return value


def _has_type(kind: str, value: object) -> bool:
    """Whether a value has the type of an annotation."""
    if value is None:
        return kind.endswith("| None")
    if kind in NAME_TYPES:
        return isinstance(value, str)
    # True and False are integers to Python, but no number of epochs.
    if kind == "bool" or isinstance(value, bool):
        return kind == "bool" and isinstance(value, bool)
    if kind.startswith("float"):
        return is_finite(value)
    return isinstance(value, int) and abs(value) <= LARGEST_COUNT


def _format_type(kind: str) -> str:
    """An annotation in words, for errors."""
    words = {**NAME_TYPES, "bool": "True or False", "float": "a finite number"}
    return words.get(kind.removesuffix(" | None"), "a whole number below 2^63")
