"""Scenarios and laws with their options, read from their definitions (also those of plugins), for the page's forms."""

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
    """Return a dict with name, help and options for each registered scenario, sorted by name, JSON-serializable.

    An option is a dict with name, kind (see `_choose_input_kind`), default, choices and help, made of a field of the
    scenario's dataclass whose default is a finite number, a boolean, or a value of a `Literal` in its type; its help is
    the docstring below the field. Other fields are skipped.

    Args:
        excluded_fields: fields that the page sets elsewhere, such as the number of agents.
    """
    return [
        {"name": name, "help": _extract_class_help(kind), "options": _describe_scenario_options(kind, excluded_fields)}
        for name, kind in ((name, scenario_class(name)) for name in sorted(scenario_names()))
    ]


def list_laws(names: Iterable[str]) -> list[dict[str, Any]]:
    """Return a dict with name, help and options for each law, sorted by name, JSON-serializable.

    An option (see `_describe_law_option`) is a number, a boolean, or a value of a `Literal` in its type; options of
    other types are skipped. Options that may be None come last.

    Args:
        names: controllers, with or without scaling options after the name, such as tanner:time_scale=2; bundled trained
            networks are skipped.
    """
    laws = []
    for name in sorted(names):
        head = name.partition(":")[0]
        if head in bundled_names():
            continue
        options = [
            description
            for option in controller_options(head)
            if (description := _describe_law_option(head, option)) is not None
        ]
        options.sort(key=lambda option: bool(option["may_be_none"]))  # optional limits come last
        laws.append({"name": name, "help": _extract_class_help(find_definition(head)), "options": options})
    return laws


def _describe_law_option(law: str, option: ControllerOption) -> dict[str, Any] | None:
    """Return name, kind, default, help, choices, may_be_none and must_be_positive of an option, for a form.

    Return None if it is no number, boolean or choice. `must_be_positive` is True if a law with 0 cannot be built, which
    is tried here; it is False for booleans and choices.
    """
    # Types of its values, without None.
    types = set(get_args(option.hint) or (option.hint,)) - {NoneType}
    # If the default is None, only a purely numeric type shows that the option is a number.
    if is_finite(option.default) or (option.default is None and types and types <= {int, float}):
        kind = "integer" if types == {int} else "number"
    elif (input_kind := _choose_input_kind(option.default, option.choices)) is not None:
        kind = input_kind
    else:
        return None
    return {
        "name": option.name,
        "kind": kind,
        "default": option.default,
        "help": _flatten_text(option.help),
        "choices": list(option.choices),
        "may_be_none": option.may_be_none,
        "must_be_positive": kind in ("integer", "number") and not _accepts_value(law, option.name, 0),
    }


def _accepts_value(law: str, name: str, value: float) -> bool:
    """Return whether `load` can build the law with this value of one option and the defaults of all others."""
    try:
        load(law, **{name: value})
    except Exception:  # a plugin may raise anything
        return False
    return True


def _describe_scenario_options(kind: type[Any], excluded_fields: Collection[str]) -> list[dict[str, Any]]:
    """Return name, kind, default, choices and help of each field of a scenario class that a form can set.

    Fields in `excluded_fields`, with init=False, or with a default that is no number, boolean or choice are skipped.
    """
    texts = read_field_docstrings(kind)  # type: ignore[arg-type]  # classes can be hashed
    types = read_annotations(kind)
    options = []
    for field in fields(kind):
        choices = list_choices(types.get(field.name))
        input_kind = _choose_input_kind(field.default, choices)
        if field.init and input_kind is not None and field.name not in excluded_fields:
            option = {"name": field.name, "kind": input_kind, "default": field.default, "choices": list(choices)}
            options.append({**option, "help": _flatten_text(texts.get(field.name, ""))})
    return options


def _choose_input_kind(default: object, choices: Collection[str]) -> str | None:
    """Return "boolean", "integer", "number" or "choice" by the type of an option's default.

    Return None if the default is none of these: infinite, None, or a text that is not among `choices`.
    """
    # is_finite refuses booleans, which are integers in Python.
    if isinstance(default, bool):
        return "boolean"
    if is_finite(default):
        return "integer" if isinstance(default, int) else "number"
    return "choice" if isinstance(default, str) and default in choices else None


def _extract_class_help(kind: Any) -> str:
    """Return the first paragraph of a docstring as one line; "" if it is missing or generated by `dataclass`."""
    text = inspect.cleandoc(kind.__doc__ or "")
    return "" if text.startswith(f"{kind.__name__}(") else _flatten_text(text.split("\n\n")[0])


def _flatten_text(text: str) -> str:
    """Return a docstring as one line, without backticks and repeated spaces."""
    return " ".join(text.replace("`", "").split())
