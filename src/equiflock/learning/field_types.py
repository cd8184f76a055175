"""Type checks of recipe fields, for recipes that come from a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.learning.ranges import Range, parse_range
from equiflock.runtime.checks import LARGEST_COUNT, InputError, is_finite, shorten_repr

NAME_TYPES = {"str": "a name"} | dict.fromkeys(("RadiusRule", "VelocityRule", "Schedule"), "the name of a rule")
"""Annotations of text fields, and the text that describes them in errors."""


def check_field(name: str, kind: str, value: Any) -> Any:
    """Return the value of a field as a recipe stores it; raise InputError if it does not match the field's annotation.

    NumPy numbers become Python numbers, texts of a range such as "0.0 - .5" become "0-0.5", and texts of one number
    become that number.

    Args:
        name: field name, for errors.
        kind: annotation as text; it ends in "| str" for a number that may be a range.
        value: the value; the caller checks its bounds.
    """
    if isinstance(value, np.generic):  # recipes are stored as JSON, which has plain numbers only
        value = value.item()
    number = kind.removesuffix(" | str")
    if number != kind and isinstance(value, str):
        result = parse_range(name, value, "uniform_integer" if number == "int" else "uniform")
        return str(result) if isinstance(result, Range) else result
    if not _has_type(number, value):
        raise InputError(f"{name} must be {_format_type(number)}; got {shorten_repr(value)}")
    return value


def _has_type(kind: str, value: object) -> bool:
    """Return whether a value has the type of an annotation, given as text.

    A bool is not a number, a float must be finite but may be an int, and an int must be within +-`LARGEST_COUNT`.
    """
    if value is None:
        return kind.endswith("| None")
    if kind in NAME_TYPES:
        return isinstance(value, str)
    # bool is a subclass of int, but True is not a number of epochs.
    if kind == "bool" or isinstance(value, bool):
        return kind == "bool" and isinstance(value, bool)
    if kind.startswith("float"):
        return is_finite(value)
    return isinstance(value, int) and abs(value) <= LARGEST_COUNT


def _format_type(kind: str) -> str:
    """Return the description of an annotation for errors."""
    words = {**NAME_TYPES, "bool": "True or False", "float": "a finite number"}
    return words.get(kind.removesuffix(" | None"), "a whole number below 2^63")
