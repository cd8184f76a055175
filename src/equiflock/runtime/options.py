"""Names with options as one word, `tanner:clamp=5`, `obstacles:sides=48`, and what their annotations say of options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from equiflock.runtime.checks import InputError

CONSTANT_WORDS: dict[str, Any] = {"none": None, "true": True, "false": False}
"""Words that stand for a value rather than for themselves."""
SAFE_PATTERN = "safe_pattern"
"""In the metadata of a dataclass's field: a regular expression for words, beside those of a `Literal` in its type, that
may come from a live page. The class must never take such a word for the name of a file."""


def read_annotations(found: Callable[..., Any]) -> dict[str, Any]:
    """The types that fields or arguments are annotated with; none if they cannot be made out."""
    annotated = found.__init__ if isinstance(found, type) and not is_dataclass(found) else found  # type: ignore[misc]
    try:
        return get_type_hints(annotated)
    except (NameError, TypeError):  # such as names that are imported for type checkers only
        return {}


def list_choices(hint: Any) -> tuple[str, ...]:
    """The words of a type that is a `Literal` of words, or a union with one; none otherwise."""
    parts = get_args(hint) if is_union(hint) else (hint,)
    words = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
    return tuple(words) if all(isinstance(word, str) for word in words) else ()


def is_union(hint: Any) -> bool:
    """Whether a type is one of several, such as `float | None`."""
    return get_origin(hint) in (Union, UnionType)


def parse_options(text: str) -> dict[str, Any]:
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
        options[key] = _parse_value(value)
    return options


def format_options(name: str, options: Mapping[str, Any]) -> str:
    """A name with its options after it, as one word, which `parse_options` reads again."""
    return ":".join([name, *(f"{key}={_format_value(value)}" for key, value in options.items())])


def _format_value(value: Any) -> str:
    return next((word for word, constant in CONSTANT_WORDS.items() if value is constant), str(value))


def _parse_value(text: str) -> Any:
    """The value of one option: one of `CONSTANT_WORDS`, a number, or the text itself."""
    if text.lower() in CONSTANT_WORDS:
        return CONSTANT_WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
