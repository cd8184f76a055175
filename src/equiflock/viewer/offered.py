"""The scenarios that a page may choose, with the options that each has: read from their classes, plugins' included."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from dataclasses import fields
from typing import Any

from equiflock.runtime.checks import is_finite
from equiflock.runtime.docstrings import field_docstrings
from equiflock.scenarios.registry import scenario_class, scenario_names


def offered_scenarios(without: Collection[str]) -> list[dict[str, Any]]:
    """Name, help and options of each scenario, as JSON would hold them.

    An option is a field of the scenario's dataclass whose default is a finite number, or True or False; its help is the
    docstring below the field.

    Args:
        without: fields that a page chooses elsewhere, such as the number of agents.
    """
    return [
        {"name": name, "help": _class_help(kind), "options": _options(kind, without)}
        for name, kind in ((name, scenario_class(name)) for name in sorted(scenario_names()))
    ]


def _options(kind: type[Any], without: Collection[str]) -> list[dict[str, Any]]:
    texts = field_docstrings(kind)
    return [
        {
            "name": field.name,
            "kind": _kind(field.default),
            "default": field.default,
            "help": _plain(texts.get(field.name, "")),
        }
        for field in fields(kind)
        if field.init and _is_plain(field.default) and field.name not in without
    ]


def _is_plain(default: object) -> bool:
    return isinstance(default, bool) or is_finite(default)


def _kind(default: object) -> str:
    """What a page shall offer for an option: a switch, or a box for a whole number or for any."""
    return "switch" if isinstance(default, bool) else "whole" if isinstance(default, int) else "number"


def _class_help(kind: type[Any]) -> str:
    """The first paragraph of a class's docstring; nothing if it is the signature that dataclasses fill in."""
    text = inspect.cleandoc(kind.__doc__ or "")
    return "" if text.startswith(f"{kind.__name__}(") else _plain(text.split("\n\n")[0])


def _plain(text: str) -> str:
    """A docstring as one line of plain text."""
    return " ".join(text.replace("`", "").split())
