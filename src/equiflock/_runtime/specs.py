"""Specs: names with options, such as `tanner:clamp=5` or `obstacles:sides=48`, and how options are documented."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import cache
from itertools import pairwise
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from equiflock._runtime.checks import InputError

# Names with options, such as `tanner:clamp=5` or `obstacles:sides=48`, and the annotations of options.

CONSTANT_WORDS: dict[str, Any] = {"none": None, "true": True, "false": False}
"""Words that are parsed as constants."""
SAFE_PATTERN = "safe_pattern"
"""Key in a dataclass field's metadata: a regular expression of words that the live page may send, besides those of a
`Literal` in the field's type. The class must never use such a word as a file name."""


def read_annotations(factory: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotated types of fields or parameters; an empty dict if they cannot be resolved."""
    annotated = factory.__init__ if isinstance(factory, type) and not is_dataclass(factory) else factory  # type: ignore[misc]
    try:
        return get_type_hints(annotated)
    except (NameError, TypeError):  # such as names that are imported for type checkers only
        return {}


def list_choices(hint: Any) -> tuple[str, ...]:
    """Return the words of a `Literal` type or of a union with one; () otherwise, or if a word is not a string."""
    parts = get_args(hint) if is_union(hint) else (hint,)
    words = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
    return tuple(words) if all(isinstance(word, str) for word in words) else ()


def is_union(hint: Any) -> bool:
    """Return whether a type is a union, such as `float | None`."""
    return get_origin(hint) in (Union, UnionType)


def parse_options(text: str) -> dict[str, Any]:
    """Return the options in key=value:key=value; a value is a number, true, false, none, or else a word.

    A single integer is a seed: `etdagnn:1` is short for `etdagnn:seed=1`. Raise InputError if the text has another
    form, is empty, or repeats a key.
    """
    if text.isdecimal():
        return {"seed": int(text)}
    options: dict[str, Any] = {}
    for part in text.split(":"):
        key, equals, value = part.partition("=")
        if not equals or not key.isidentifier() or not value or key in options:
            raise InputError(f"options must have the form key=value:key=value, each key once; got {text!r}")
        options[key] = _parse_value(value)
    return options


def format_options(name: str, options: Mapping[str, Any]) -> str:
    """Return a name followed by its options, which `parse_options` reads."""
    return ":".join([name, *(f"{key}={_format_value(value)}" for key, value in options.items())])


def _format_value(value: Any) -> str:
    """Return the text of a value: one of `CONSTANT_WORDS` for None, True and False, else str(value)."""
    return next((word for word, constant in CONSTANT_WORDS.items() if value is constant), str(value))


def _parse_value(text: str) -> Any:
    """Return the value of an option: one of `CONSTANT_WORDS`, a number, or the text itself."""
    if text.lower() in CONSTANT_WORDS:
        return CONSTANT_WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


# Docstrings of dataclass fields, which Python does not keep; the command line and the page show them as help.


@cache
def read_field_docstrings(kind: type[Any]) -> dict[str, str]:
    """Return the docstring below each field of a class and its bases, as one line each.

    Fields without a docstring and classes without source code are left out.
    """
    docstrings: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        except (OSError, SyntaxError, TypeError):
            continue
        for statement, below in pairwise(getattr(body, "body", [])):
            match statement, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    docstrings[name] = " ".join(text.split())
    return docstrings
