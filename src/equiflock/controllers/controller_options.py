"""The options that a controller takes, read from the class or function that defines it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, get_args

from equiflock.controllers.registry import UNIT_OPTIONS, find_definition, is_module
from equiflock.controllers.trained import bundled_names
from equiflock.runtime.docstrings import read_field_docstrings
from equiflock.runtime.options import SAFE_PATTERN, list_choices, parse_options, read_annotations


@dataclass(frozen=True)
class ControllerOption:
    """One option of a controller."""

    name: str
    """As `load` and the command line take it."""
    default: Any
    """Its value if it is left out."""
    help: str = ""
    """What it means: the docstring below the field of a dataclass."""
    hint: Any = None
    """The type that it is annotated with, if that is known."""
    safe_pattern: str = ""
    """A regular expression for words, beside its choices, that a live page may choose; none if it is empty."""

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it can be, where its type is a `Literal` of words or a union with one; none otherwise."""
        return list_choices(self.hint)

    def is_safe(self, word: str) -> bool:
        """Whether a word may come from a live page: its definition names it, or says that all such words are safe."""
        return word in self.choices or re.fullmatch(self.safe_pattern or "(?!)", word) is not None

    @property
    def may_be_none(self) -> bool:
        """Whether its type says that it may be None."""
        return self.default is None or type(None) in get_args(self.hint)


def controller_options(name: str) -> tuple[ControllerOption, ...]:
    """The options of the controller of that name: all that have a default.

    Of a dataclass they are its fields, of any other class or of a function its arguments. The units of robots, which
    every controller takes, are left out. A network has none here: its options make another network, with weights that
    nobody has trained. Nor has a name that nobody has registered.
    """
    found = None if name in bundled_names() else find_definition(name)
    if found is None or (isinstance(found, type) and is_module(found)):
        return ()
    hints = read_annotations(found)
    texts: dict[str, str] = {}
    safe: dict[str, str] = {}
    if isinstance(found, type) and is_dataclass(found):
        texts = read_field_docstrings(found)
        safe = {each.name: each.metadata.get(SAFE_PATTERN, "") for each in fields(found)}
        given = {each.name: each.default for each in fields(found) if each.init and each.default is not MISSING}
    else:
        given = _read_defaults(found)
    return tuple(
        ControllerOption(name, given[name], texts.get(name, ""), hints.get(name), safe.get(name, "")) for name in given
    )


def _read_defaults(found: Callable[..., Any]) -> dict[str, Any]:
    """The arguments that have a default, in their order."""
    try:
        arguments = inspect.signature(found).parameters.values()
    except ValueError:  # some builtins have no signature
        return {}
    return {each.name: each.default for each in arguments if each.default is not each.empty}


def split_law_options(name: str) -> tuple[str, dict[str, Any]]:
    """A name such as `tanner:clamp=5:time_scale=2` in two: the options of a law, and the name without them.

    Units of robots stay with the name, and so does all that follows the name of anything else than a law.
    """
    head, colon, told = name.partition(":")
    if not colon or not controller_options(head):
        return name, {}
    options = {key: value for key, value in parse_options(told).items() if key not in UNIT_OPTIONS}
    units = [part for part in told.split(":") if part.partition("=")[0] in UNIT_OPTIONS]
    return ":".join([head, *units]), options
