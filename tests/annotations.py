"""How annotations are enforced while tests run: in the first calls of each function in a test.

As Python's typing has it, an int will do where a float is declared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype

CHECKED_CALLS = 10
"""Calls of a function that are checked in one test: checks take longer than most functions."""

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))

_call_counts: dict[int, int] = {}
"""Calls in the present test, by the identity of the function's code; closures of one function share it."""
_jaxtyped = jaxtyping.jaxtyped


def check_first_calls(function: Any = None, *, typechecker: Callable[..., Any]) -> Any:
    """Return a function, or a class, whose first calls in a test are checked; the check is built at the first call."""
    if function is None:
        return functools.partial(check_first_calls, typechecker=typechecker)
    if not isinstance(function, FunctionType):
        return _jaxtyped(function, typechecker=typechecker)  # which comes back for the functions of a class or property
    if hasattr(function, "is_checked"):  # the __init__ that a class inherits
        return function
    key, checking = id(function.__code__), None

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal checking
        count = _call_counts.get(key, 0)
        if count >= CHECKED_CALLS:
            return function(*arguments, **options)
        _call_counts[key] = count + 1
        checking = checking or _jaxtyped(function, typechecker=typechecker)
        return checking(*arguments, **options)

    call.is_checked = True  # type: ignore[attr-defined]
    return call


def begin_test() -> None:
    """Check the first calls again."""
    _call_counts.clear()


def install(modules: list[str]) -> None:
    """Check the functions of these modules, which must not have been imported yet."""
    for module in (jaxtyping, jaxtyping._decorator):
        module.jaxtyped = check_first_calls  # type: ignore[attr-defined]
    jaxtyping.install_import_hook(modules, f"{__name__}.checked")
