"""Specs: names with options, such as `tanner:clamp=5` or `obstacles:sides=48`, and how options are documented."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Collection
from dataclasses import is_dataclass
from functools import cache
from itertools import pairwise
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from equiflock._runtime.checks import InputError, shorten_repr

CONSTANT_WORDS: dict[str, Any] = {"none": None, "true": True, "false": False}
"""Words that are parsed as constants."""
NUMBER_PATTERN = r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
"""Regular expression of a number without a sign; it includes the minus of an exponent, so 1e-3 is not a range."""
SAFE_PATTERN = "safe_pattern"
"""Key in a dataclass field's metadata: a regular expression of words that the live page may send, besides those of a
`Literal` in the field's type. The class must never use such a word as a file name."""


class Spec(NamedTuple):
    """A name with its options."""

    name: str
    options: dict[str, Any]


def parse_spec(text: str) -> Spec:
    """Parse a name with or without options, such as tanner:clamp=5; raise InputError if the options are malformed."""
    if not isinstance(text, str):
        raise InputError(f"a name must be a string; got {shorten_repr(text)}")
    name, colon, options = text.partition(":")
    return Spec(name, parse_options(options) if colon else {})


def parse_options(text: str) -> dict[str, Any]:
    """Parse options key=value:key=value; a value is a number, true, false, none, or else a word.

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


def parse_weighted_specs(
    label: str, text: str, example: str, known_names: Collection[str] = ()
) -> list[tuple[float, Spec]]:
    """Parse a weighted sum such as 0.5*flocking+1*obstacles:sides=48; the first weight may be omitted, and is then 1.

    Weights are not normalized. Raise InputError, which names the setting `label` and a valid `example`, if the text is
    malformed. A name with a plus is an error too, unless it stands alone and is one of the `known_names`.
    """
    message = f"{label} must be a name, or several with their shares such as {example}; got {text!r:.80}"
    weight = rf"\s*{NUMBER_PATTERN}\s*\*"
    # A plus before a weight separates two terms; any other, as in 1e+3, belongs to an option. [::2] drops the weights
    # that the lookahead captured, which re.split inserts between the terms.
    first, *others = re.split(rf"\+(?={weight})", text)[::2]
    if not re.match(weight, first):
        if not others:
            spec = parse_spec(text.strip())
            if not spec.name or ("+" in spec.name and spec.name not in known_names):
                raise InputError(message)
            return [(1.0, spec)]
        first = f"1*{first}"
    terms = []
    for term in (first, *others):
        match = re.fullmatch(rf"{weight}\s*([^\s+:]+(?::\S+)?)\s*", term)
        if match is None:
            raise InputError(message)
        terms.append((float(match[1]), parse_spec(match[2])))
    return terms


def format_spec(name: str, /, **options: Any) -> str:
    """Return a name followed by its options, as `parse_spec` reads them."""
    return ":".join([name, *(f"{key}={_format_value(value)}" for key, value in options.items())])


def _format_value(value: Any) -> str:
    """Return the text of a value: one of `CONSTANT_WORDS` for None, True and False, else str(value)."""
    return next((word for word, constant in CONSTANT_WORDS.items() if value is constant), str(value))


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
