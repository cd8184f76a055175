"""Options of the scenario and body that unparsed arguments name, added to a command before parsing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, fields, is_dataclass, make_dataclass
from itertools import pairwise
from typing import Annotated, Any

import tyro

from equiflock.cli.environment_options import ENVIRONMENT_OPTIONS, check_body_options
from equiflock.cli.plugins import import_plugin
from equiflock.cli.scenario_options import check_scenario_options, make_options_class
from equiflock.experiments.world import DEFAULT_BODY_NAME
from equiflock.scenarios import make_scenario
from equiflock.scenarios.registry import collect_options, scenario_class


def add_dynamic_options(command: Any, arguments: Sequence[str]) -> Any:
    """Return the command with the options of the scenario and the body that its arguments name.

    A command that takes scenarios has the fields `scenario`, `options` and `plugin`. It may have `get_default_options`,
    a function of the scenario's class that returns option values which replace the scenario's defaults. A command that
    takes environments has the field `world`, whose default is `EnvironmentOptions` or `EnvironmentAxes`. Any other
    command is returned unchanged. A plugin that the arguments name is imported.
    """
    command_fields = {each.name: each for each in fields(command)} if is_dataclass(command) else {}
    if "plugin" in command_fields:
        # A plugin may register the scenario, controller or body that other options name.
        import_plugin(_find_option_value("plugin", arguments))
    option_classes: dict[str, Any] = {}
    known = set(command_fields) | (set(ENVIRONMENT_OPTIONS) if "world" in command_fields else set())
    scenario = None
    if {"scenario", "options", "plugin"} <= set(command_fields):
        # Help shows the defaults of the command, if it has any, or else those of the scenario.
        name = _find_option_value("scenario", arguments) or str(command_fields["scenario"].default)
        kind = scenario_class(name.partition(":")[0])
        scenario = make_scenario(
            name, command.get_default_options(kind) if hasattr(command, "get_default_options") else None
        )
        option_classes["options"] = make_options_class(scenario, known)
        known |= set(collect_options(scenario))
    if "world" in command_fields:
        body = _find_option_value("body", arguments) or DEFAULT_BODY_NAME
        base_class: Any = command_fields["world"].default_factory
        option_classes["world"] = base_class.make_class_for(body, known)
        known |= {each.name for each in fields(option_classes["world"])}
        check_body_options(body, arguments, known)
    if scenario is not None:
        check_scenario_options(scenario, arguments, known)
    return _replace_fields(command, option_classes) if option_classes else command


def _replace_fields(command: Any, option_classes: dict[str, Any]) -> Any:
    """Return a subclass of the command whose fields of these names have these classes as types and defaults."""
    changed = [
        (name, Annotated[kind, tyro.conf.arg(name="")], field(default_factory=kind))
        for name, kind in option_classes.items()
    ]
    subclass = make_dataclass(command.__name__, changed, bases=(command,), frozen=True)
    subclass.__doc__ = command.__doc__
    return subclass


def _find_option_value(option: str, arguments: Sequence[str]) -> str | None:
    """Return the value of an option, `--option value` or `--option=value`, in unparsed arguments.

    The last one counts if it is repeated. None if it is absent or empty.
    """
    value = None
    for word, following in pairwise([*arguments, ""]):
        if word == f"--{option}" and not following.startswith("--"):
            value = following or None
        elif word.startswith(f"--{option}="):
            value = word.partition("=")[2] or None
    return value
