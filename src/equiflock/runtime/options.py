"""Names with options as one word, for the command line and for tables: `tanner:clamp=5`, `obstacles:sides=48`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from equiflock.runtime.checks import InputError

WORDS: dict[str, Any] = {"none": None, "true": True, "false": False}
"""Words that stand for a value rather than for themselves."""


def read_options(text: str) -> dict[str, Any]:
    """The options in key=value:key=value; a value is a number, true, false, none, or else a word.

    A whole number alone is a seed: `etdagnn:1` is short for `etdagnn:seed=1`.
    """
    if text.isdecimal():
        return {"seed": int(text)}
    options: dict[str, Any] = {}
    for part in text.split(":"):
        key, equals, value = part.partition("=")
        if not equals or not key.isidentifier() or not value or key in options:
            raise InputError(f"options after a name must be such as key=value:key=value, each once; got {text!r}")
        options[key] = _value(value)
    return options


def write_options(name: str, options: Mapping[str, Any]) -> str:
    """A name with its options after it, as one word, which `read_options` reads again."""
    return ":".join([name, *(f"{key}={_word(value)}" for key, value in options.items())])


def _word(value: Any) -> str:
    return next((word for word, constant in WORDS.items() if value is constant), str(value))


def _value(text: str) -> Any:
    """The value of one option: one of `WORDS`, a number, or the text itself."""
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
