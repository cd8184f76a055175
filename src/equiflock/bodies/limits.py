"""Checks of the numbers that bodies share."""

from __future__ import annotations

from equiflock.runtime.checks import InputError, check_positive, is_finite, short


def check_limits(body: object, *names: str) -> None:
    """Raise a clear error unless each of these fields is a finite number above 0, or None for no limit."""
    for name in names:
        if getattr(body, name) is not None:
            check_positive(name, getattr(body, name))


def check_not_negative(body: object, *names: str) -> None:
    """Raise a clear error unless each of these fields is a finite number of at least 0."""
    for name in names:
        value = getattr(body, name)
        if not is_finite(value) or value < 0:
            raise InputError(f"{name} must be a finite number of at least 0; got {short(value)}")
