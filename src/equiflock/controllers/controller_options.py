"""Options of a controller, read from the class or function that defines it."""

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
    """Name for `load` and the command line."""
    default: Any
    """Default value."""
    help: str = ""
    """Description: the docstring below the field of a dataclass."""
    hint: Any = None
    """Type annotation, if there is one."""
    safe_pattern: str = ""
    """Regular expression for words, besides the choices, that a live page may set; empty for none."""

    @property
    def choices(self) -> tuple[str, ...]:
        """Allowed words, if the type is a `Literal` of words or a union with one; otherwise empty."""
        return list_choices(self.hint)

    def is_safe(self, word: str) -> bool:
        """Return whether a live page may set this word: it is a choice, or `safe_pattern` matches it."""
        return word in self.choices or re.fullmatch(self.safe_pattern or "(?!)", word) is not None

    @property
    def may_be_none(self) -> bool:
        """Whether None is allowed."""
        return self.default is None or type(None) in get_args(self.hint)


def controller_options(name: str) -> tuple[ControllerOption, ...]:
    """Return the options of a controller that have a default: fields of a dataclass, or arguments.

    `comm_radius` and `time_scale`, which every controller takes, are omitted. Networks have no options here, as their
    options describe another network, without trained weights. Unregistered names have none either.
    """
    definition = None if name in bundled_names() else find_definition(name)
    if definition is None or (isinstance(definition, type) and is_module(definition)):
        return ()
    hints = read_annotations(definition)
    texts: dict[str, str] = {}
    patterns: dict[str, str] = {}
    if isinstance(definition, type) and is_dataclass(definition):
        texts = read_field_docstrings(definition)
        own = fields(definition)
        patterns = {field.name: field.metadata.get(SAFE_PATTERN, "") for field in own}
        defaults = {field.name: field.default for field in own if field.init and field.default is not MISSING}
    else:
        defaults = _read_defaults(definition)
    return tuple(
        ControllerOption(name, default, texts.get(name, ""), hints.get(name), patterns.get(name, ""))
        for name, default in defaults.items()
    )


def _read_defaults(definition: Callable[..., Any]) -> dict[str, Any]:
    """Return the arguments that have a default, in their order; {} for a builtin without a signature."""
    try:
        parameters = inspect.signature(definition).parameters.values()
    except ValueError:  # some builtins have no signature
        return {}
    return {parameter.name: parameter.default for parameter in parameters if parameter.default is not parameter.empty}


def split_law_options(name: str) -> tuple[str, dict[str, Any]]:
    """Split a name such as `tanner:clamp=5:time_scale=2` into the name without a law's options, and these options.

    `comm_radius` and `time_scale` stay in the name. A name without a colon or of a controller without options of its
    own, such as a network, is returned unchanged, with {}.
    """
    head, colon, text = name.partition(":")
    if not colon or not controller_options(head):
        return name, {}
    options = {key: value for key, value in parse_options(text).items() if key not in UNIT_OPTIONS}
    units = [part for part in text.split(":") if part.partition("=")[0] in UNIT_OPTIONS]
    return ":".join([head, *units]), options
