"""Validation of input: errors state in one line what was expected and what was received."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NoReturn

import numpy as np

LARGEST_COUNT = 2**63 - 1
"""Largest int64."""
MAX_EDITS, MIN_PREFIX = 2, 3
"""How close a known name must be for a suggestion: the largest edit distance, and the least length of a prefix."""


class InputError(ValueError):
    """Invalid input. The message states what was expected and what was received."""


class NumericRangeError(InputError):
    """A flight left the range that float64 can represent."""


def check_positive(name: str, value: float) -> float:
    """Return `value` as a float; raise InputError if it is not a finite number above 0. Booleans are not numbers."""
    if not is_finite(value) or value <= 0:
        raise InputError(f"{name} must be a finite number above 0; got {shorten_repr(value)}")
    return float(value)


def check_nonnegative(name: str, value: float) -> float:
    """Return `value` as a float; raise InputError if it is not a finite number of at least 0, or is a boolean."""
    if not is_finite(value) or value < 0:
        raise InputError(f"{name} must be a finite number of at least 0; got {shorten_repr(value)}")
    return float(value)


def check_count(name: str, value: int, least: int = 1) -> int:
    """Return `value` as an int; raise InputError if it is a bool, or not an integer from `least` to 2^63 - 1."""
    # Python treats True and False as integers; here they are mistakes.
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}; got {shorten_repr(value)}")
    if value > LARGEST_COUNT:
        raise InputError(f"{name} must be at most {LARGEST_COUNT:,}; got {shorten_repr(value)}")
    return int(value)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    """Return `value`; raise InputError, with a suggestion if one is close, if it is not one of `choices`."""
    if value not in choices:
        raise_wrong_choice(name, value, choices)
    return value


def raise_wrong_choice(name: str, value: object, choices: tuple[str, ...], more: str = "") -> NoReturn:
    """Raise InputError for a name that is not among `choices`; `more` continues the list, such as ", or a file"."""
    hint = format_suggestion(str(value), choices)
    raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}{more}; got {value!r}{hint}")


def suggest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` is probably a misspelling of, or None if none is close.

    Close names differ by an edit distance of at most `MAX_EDITS`, or one begins with the other, which then has at least
    `MIN_PREFIX` letters. Case is ignored. Names that begin with `name` come first, then those of least distance.
    """
    typed = name.casefold()
    distances = {each: _compute_edit_distance(typed, each.casefold()) for each in known}
    close = [each for each, distance in distances.items() if _is_close(typed, each.casefold(), distance)]
    return min(close, key=lambda each: (not each.casefold().startswith(typed), distances[each]), default=None)


def format_suggestion(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'tanner'?" as the end of an error message, or "" if no known name is close."""
    suggestion = suggest_name(name, known)
    return "" if suggestion is None else f"; did you mean {suggestion!r}?"


def _is_close(a: str, b: str, distance: int) -> bool:
    """Return whether two names with this edit distance are close enough for a suggestion (see `suggest_name`)."""
    short, long = sorted((a, b), key=len)
    # Two short names, such as "no" and "xy", may be two edits apart and have nothing in common.
    return distance <= min(MAX_EDITS, len(short) - 1) or (len(short) >= MIN_PREFIX and long.startswith(short))


def _compute_edit_distance(a: str, b: str) -> int:
    """Return the Levenshtein distance: the least number of insertions, deletions and substitutions from a to b."""
    # Dynamic programming over prefixes of a; `row[j]` is the distance from the current prefix to b[:j].
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, start=1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(b, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (letter != other))
    return row[-1]


def is_finite(value: object) -> bool:
    """Return whether `value` is a Python or NumPy number that is finite as a float; False for booleans and all else."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # such as 10**400
        return False


def shorten_repr(value: object) -> str:
    """Return repr(value) in one line, cut to at most 80 characters, for error messages."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an integer of thousands of digits
        text = "a number of too many digits"
    return text if len(text) <= 80 else f"{text[:77]}..."
