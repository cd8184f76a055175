"""Scenarios and laws that a page may choose, with their options: read from their definitions, those of plugins too."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable
from dataclasses import fields
from types import NoneType
from typing import Any, get_args

from equiflock.controllers import load
from equiflock.controllers.controller_options import ControllerOption, controller_options
from equiflock.controllers.registry import find_definition
from equiflock.controllers.trained import bundled_names
from equiflock.runtime.checks import is_finite
from equiflock.runtime.docstrings import read_field_docstrings
from equiflock.runtime.options import list_choices, read_annotations
from equiflock.scenarios.registry import scenario_class, scenario_names


def list_scenarios(excluded_fields: Collection[str]) -> list[dict[str, Any]]:
    """Name, help and options of each scenario, as JSON would hold them.

    An option is a field of the scenario's dataclass whose default is a finite number, True or False, or a word of a
    `Literal` in its type; its help is the docstring below the field.

    Args:
        excluded_fields: fields that a page chooses elsewhere, such as the number of agents.
    """
    return [
        {"name": name, "help": _extract_class_help(kind), "options": _describe_scenario_options(kind, excluded_fields)}
        for name, kind in ((name, scenario_class(name)) for name in sorted(scenario_names()))
    ]


def list_laws(names: Iterable[str]) -> list[dict[str, Any]]:
    """Name, help and options of each controller that is no trained network, as JSON would hold them.

    An option is a number, which may be none if it is annotated so, and is above zero if the law refuses that; a switch;
    or a word of a `Literal` in its type. Options of other kinds keep their defaults.

    Args:
        names: controllers, with units of robots after their name or not.
    """
    found = []
    for name in sorted(names):
        head = name.partition(":")[0]
        if head in bundled_names():
            continue
        options = [
            told for option in controller_options(head) if (told := _describe_law_option(head, option)) is not None
        ]
        options.sort(key=lambda told: bool(told["may_be_none"]))  # limits that may be left out come last
        found.append({"name": name, "help": _extract_class_help(find_definition(head)), "options": options})
    return found


def _describe_law_option(law: str, option: ControllerOption) -> dict[str, Any] | None:
    """One option of a law; None if a page cannot offer it."""
    # The types of its values, but for none.
    types = set(get_args(option.hint) or (option.hint,)) - {NoneType}
    # Where none is usual, only a type of nothing but numbers tells that a number is the other choice.
    if is_finite(option.default) or (option.default is None and types and types <= {int, float}):
        kind = "whole" if types == {int} else "number"
    elif (found := _choose_input_kind(option.default, option.choices)) is not None:
        kind = found
    else:
        return None
    told = {"name": option.name, "kind": kind, "default": option.default, "help": _flatten_text(option.help)}
    must_be_positive = kind in ("whole", "number") and not _accepts_value(law, option.name, 0)
    return {**told, "choices": list(option.choices), "may_be_none": option.may_be_none, "above_zero": must_be_positive}


def _accepts_value(law: str, name: str, value: float) -> bool:
    """Whether a law can be made with that value of an option."""
    try:
        load(law, **{name: value})
    except Exception:  # whatever the class of a plugin may raise
        return False
    return True


def _describe_scenario_options(kind: type[Any], excluded_fields: Collection[str]) -> list[dict[str, Any]]:
    """The options of one scenario class; fields of other kinds than numbers, switches, choices keep their defaults."""
    texts = read_field_docstrings(kind)  # type: ignore[arg-type]  # classes can be hashed
    types = read_annotations(kind)
    found = []
    for field in fields(kind):
        choices = list_choices(types.get(field.name))
        offered = _choose_input_kind(field.default, choices)
        if field.init and offered is not None and field.name not in excluded_fields:
            told = {"name": field.name, "kind": offered, "default": field.default, "choices": list(choices)}
            found.append({**told, "help": _flatten_text(texts.get(field.name, ""))})
    return found


def _choose_input_kind(default: object, choices: Collection[str]) -> str | None:
    """What a page shall offer for an option: a switch, a menu, a box for a whole number or for any, or nothing."""
    # is_finite refuses True and False, which are integers to Python.
    if isinstance(default, bool):
        return "switch"
    if is_finite(default):
        return "whole" if isinstance(default, int) else "number"
    return "choice" if isinstance(default, str) and default in choices else None


def _extract_class_help(kind: Any) -> str:
    """The first paragraph of a docstring; nothing if it is the signature that dataclasses fill in."""
    text = inspect.cleandoc(kind.__doc__ or "")
    return "" if text.startswith(f"{kind.__name__}(") else _flatten_text(text.split("\n\n")[0])


def _flatten_text(text: str) -> str:
    """A docstring as one line of plain text."""
    return " ".join(text.replace("`", "").split())
