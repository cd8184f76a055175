"""Checks of input, where it enters: one clear line that says what was expected and what was given."""

from __future__ import annotations

import difflib
import math
from typing import NoReturn

import numpy as np

LARGEST_COUNT = 2**63 - 1
"""The largest number that an int64 holds."""


class InputError(ValueError):
    """A wrong argument. The text says what was expected and what was given."""


class NumericRangeError(InputError):
    """A flight left the range of numbers in which float64 can compute it."""


def check_positive(name: str, value: float) -> float:
    """`value` if it is a finite number above zero, else a clear error."""
    if not is_finite(value) or value <= 0:
        raise InputError(f"{name} must be a finite number above 0; got {shorten_repr(value)}")
    return float(value)


def check_count(name: str, value: int, least: int = 1) -> int:
    """`value` if it is a whole number of at least `least`, else a clear error."""
    # True and False are whole numbers to Python, but hardly to whoever wrote them.
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}; got {shorten_repr(value)}")
    if value > LARGEST_COUNT:
        raise InputError(f"{name} must be at most {LARGEST_COUNT:,}; got {shorten_repr(value)}")
    return int(value)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    """`value` if it is one of `choices`, else a clear error."""
    if value not in choices:
        raise_wrong_choice(name, value, choices)
    return value


def raise_wrong_choice(name: str, value: object, choices: tuple[str, ...], more: str = "") -> NoReturn:
    """Raise the error for a name that is not among `choices`, with the nearest one as a suggestion.

    `more` says what else it may be.
    """
    near = difflib.get_close_matches(str(value), choices, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}{more}; got {value!r}{hint}")


def is_finite(value: object) -> bool:
    """Whether it is a number, and one that a float can hold."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # such as 10**400
        return False


def shorten_repr(value: object) -> str:
    """A value as the text of an error shows it: in one line of at most 80 characters."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # a whole number of thousands of digits
        text = "a number of too many digits"
    return text if len(text) <= 80 else f"{text[:77]}..."
