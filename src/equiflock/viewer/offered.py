"""The scenarios that a page may choose, with the options that each has: read from their classes, plugins' included."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Collection
from dataclasses import fields
from itertools import pairwise
from typing import Any

from equiflock.scenarios.registry import scenario_class, scenario_names


def offered_scenarios(without: Collection[str]) -> list[dict[str, Any]]:
    """Name, help and options of each scenario, as JSON would hold them.

    An option is a field of the scenario's dataclass whose default is a number, or True or False; its help is the
    docstring below the field.

    Args:
        without: fields that a page chooses elsewhere, such as the number of agents.
    """
    return [
        {"name": name, "help": _class_help(kind), "options": _options(kind, without)}
        for name, kind in ((name, scenario_class(name)) for name in sorted(scenario_names()))
    ]


def _options(kind: type[Any], without: Collection[str]) -> list[dict[str, Any]]:
    helps = _field_helps(kind)
    return [
        {"name": field.name, "kind": _kind(field.default), "default": field.default, "help": helps.get(field.name, "")}
        for field in fields(kind)
        if field.init and isinstance(field.default, bool | int | float) and field.name not in without
    ]


def _kind(default: float) -> str:
    """What a page shall offer for an option: a switch, or a box for a whole number or for any."""
    return "switch" if isinstance(default, bool) else "whole" if isinstance(default, int) else "number"


def _class_help(kind: type[Any]) -> str:
    """The first paragraph of a class's docstring; nothing if it is the signature that dataclasses fill in."""
    text = inspect.cleandoc(kind.__doc__ or "")
    return "" if text.startswith(f"{kind.__name__}(") else _plain(text.split("\n\n")[0])


def _field_helps(kind: type[Any]) -> dict[str, str]:
    """The docstrings below the fields of a class and of those it inherits from, where their source can be read."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        except (OSError, SyntaxError, TypeError):
            continue
        statements = body.body if isinstance(body, ast.ClassDef) else []
        for field, below in pairwise(statements):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = _plain(text)
    return found


def _plain(text: str) -> str:
    """A docstring as one line of plain text."""
    return " ".join(text.replace("`", "").split())
