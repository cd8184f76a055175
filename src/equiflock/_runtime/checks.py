"""Validation of input: errors state in one line what was expected and what was received."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NoReturn

import numpy as np

LARGEST_COUNT = 2**63 - 1
"""Largest int64."""
MAX_EDITS, LETTERS_PER_EDIT, MIN_PREFIX = 2, 3, 3
"""How close a known name must be for a suggestion: the largest edit distance, the letters for each edit after the
first, and the least length of a prefix."""
MAX_LISTED_NAMES, SHORT_LIST_NAMES = 12, 5
"""Most names that an error lists, and how many it lists if there are more."""


class TimeStepWarning(UserWarning):
    """The time step of a flight is longer than those of the controller's training."""


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
    raise InputError(f"{name} must be one of {format_names(map(repr, choices))}{more}; got {shorten_repr(value)}{hint}")


def format_names(names: Iterable[str]) -> str:
    """Return names separated by commas; of more than MAX_LISTED_NAMES the first few "and 18 more"."""
    names = list(names)
    if len(names) <= MAX_LISTED_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:SHORT_LIST_NAMES])} and {len(names) - SHORT_LIST_NAMES} more"


def suggest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` is probably a misspelling of, or None if none is close.

    Close names differ by an edit distance of at most `MAX_EDITS`, or 1 if they have fewer than six letters, or one
    begins with the other, which then has at least `MIN_PREFIX` letters. Case is ignored. Names that begin with `name`
    come first, then those of least distance.
    """
    typed = name.casefold()
    close = {each: each.casefold() for each in known if _is_close(typed, each.casefold())}
    order = {each: (not word.startswith(typed), _compute_edit_distance(typed, word)) for each, word in close.items()}
    return min(order, key=order.__getitem__, default=None)


def format_suggestion(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'tanner'?" as the end of an error message, or "" if no known name is close."""
    suggestion = suggest_name(name, known)
    return "" if suggestion is None else f"; did you mean {suggestion!r}?"


def _is_close(a: str, b: str) -> bool:
    """Return whether two names are close enough for a suggestion (see `suggest_name`)."""
    short, long = sorted((a, b), key=len)
    if len(short) >= MIN_PREFIX and long.startswith(short):
        return True
    # Two short names, such as "max" and "mean", may be two edits apart and have little in common.
    most = min(MAX_EDITS, max(len(short) // LETTERS_PER_EDIT, 1), len(short) - 1)
    # The distance is at least the difference in length, which takes no time for a long text.
    return len(long) - len(short) <= most and _compute_edit_distance(short, long) <= most


def _compute_edit_distance(a: str, b: str) -> int:
    """Return the least number of edits from a to b: insert, delete or replace a letter, or swap two adjacent ones.

    No letter is edited twice (optimal string alignment).
    """
    # Dynamic programming over prefixes of a: `row[j]` is the distance from the current prefix to b[:j].
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a):
        following = [i + 1]
        for j, other in enumerate(b):
            distance = min(row[j + 1] + 1, following[j] + 1, row[j] + (letter != other))
            if i > 0 and j > 0 and letter == b[j - 1] and a[i - 1] == other:
                distance = min(distance, before[j - 1] + 1)
            following.append(distance)
        before, row = row, following
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
