"""A command with the options of what its arguments name, a scenario or a body, made before they are parsed."""

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
    """A command with the options of the scenario and the body that its arguments name; any other command as it is.

    A command that takes scenarios has the fields `scenario`, `options` and `plugin`, and perhaps `default_options`, a
    function of the scenario's class whose options are the defaults in place of the scenario's own. One that takes a
    world, or several, has the field `world`, whose default is `EnvironmentOptions` or `EnvironmentAxes`.
    """
    ours = {each.name: each for each in fields(command)} if is_dataclass(command) else {}
    if "plugin" in ours:
        # A plugin may register the scenario, controller or body that other options name.
        import_plugin(_find_option_value("plugin", arguments))
    made: dict[str, Any] = {}
    known = set(ours) | (set(ENVIRONMENT_OPTIONS) if "world" in ours else set())
    usual = None
    if {"scenario", "options", "plugin"} <= set(ours):
        # The scenario with its defaults, or those of the command, which help shows.
        name = _find_option_value("scenario", arguments) or str(ours["scenario"].default)
        kind = scenario_class(name.partition(":")[0])
        usual = make_scenario(name, command.default_options(kind) if hasattr(command, "default_options") else None)
        made["options"] = make_options_class(usual, known)
        known |= set(collect_options(usual))
    if "world" in ours:
        body = _find_option_value("body", arguments) or DEFAULT_BODY_NAME
        holder: Any = ours["world"].default_factory
        made["world"] = holder.make_class_for(body, known)
        known |= {each.name for each in fields(made["world"])}
        check_body_options(body, arguments, known)
    if usual is not None:
        check_scenario_options(usual, arguments, known)
    return _replace_fields(command, made) if made else command


def _replace_fields(command: Any, made: dict[str, Any]) -> Any:
    """A subclass of the command whose fields of these names have the types that were made for its arguments."""
    changed = [
        (name, Annotated[kind, tyro.conf.arg(name="")], field(default_factory=kind)) for name, kind in made.items()
    ]
    found = make_dataclass(command.__name__, changed, bases=(command,), frozen=True)
    found.__doc__ = command.__doc__
    return found


def _find_option_value(option: str, arguments: Sequence[str]) -> str | None:
    """The value of an option in unparsed arguments, the last one if it is repeated; None if it is not there."""
    found = None
    for word, following in pairwise([*arguments, ""]):
        if word == f"--{option}" and not following.startswith("--"):
            found = following or None
        elif word.startswith(f"--{option}="):
            found = word.partition("=")[2] or None
    return found
