"""A command with the options of what its arguments name, a scenario or a body, made before they are parsed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, fields, is_dataclass, make_dataclass
from itertools import pairwise
from typing import Annotated, Any

import tyro

from equiflock.cli.plugins import import_plugin
from equiflock.cli.scenarios import check_known, options_class
from equiflock.cli.world import WORLD, check_body
from equiflock.experiments.world import USUAL_BODY
from equiflock.scenarios import make_scenario
from equiflock.scenarios.registry import options_of, scenario_class


def fitted(command: Any, arguments: Sequence[str]) -> Any:
    """A command with the options of the scenario and the body that its arguments name; any other command as it is.

    A command that takes scenarios has the fields `scenario`, `options` and `plugin`, and perhaps `usual_options`, a
    function of the scenario's class whose options are the defaults in place of the scenario's own. One that takes a
    world, or several, has the field `world`, whose default is `WorldOptions` or `WorldAxes`.
    """
    ours = {each.name: each for each in fields(command)} if is_dataclass(command) else {}
    if "plugin" in ours:
        # A plugin may register the scenario, controller or body that other options name.
        import_plugin(_value("plugin", arguments))
    made: dict[str, Any] = {}
    known = set(ours) | (set(WORLD) if "world" in ours else set())
    usual = None
    if {"scenario", "options", "plugin"} <= set(ours):
        # The scenario with its defaults, or those of the command, which help shows.
        name = _value("scenario", arguments) or str(ours["scenario"].default)
        kind = scenario_class(name.partition(":")[0])
        usual = make_scenario(name, command.usual_options(kind) if hasattr(command, "usual_options") else None)
        made["options"] = options_class(usual, known)
        known |= set(options_of(usual))
    if "world" in ours:
        body = _value("body", arguments) or USUAL_BODY
        holder: Any = ours["world"].default_factory
        made["world"] = holder.made_for(body, known)
        known |= {each.name for each in fields(made["world"])}
        check_body(body, arguments, known)
    if usual is not None:
        check_known(usual, arguments, known)
    return _with_fields(command, made) if made else command


def _with_fields(command: Any, made: dict[str, Any]) -> Any:
    """A subclass of the command whose fields of these names have the types that were made for its arguments."""
    changed = [
        (name, Annotated[kind, tyro.conf.arg(name="")], field(default_factory=kind)) for name, kind in made.items()
    ]
    found = make_dataclass(command.__name__, changed, bases=(command,), frozen=True)
    found.__doc__ = command.__doc__
    return found


def _value(option: str, arguments: Sequence[str]) -> str | None:
    """The value of an option in unparsed arguments, the last one if it is repeated; None if it is not there."""
    found = None
    for word, following in pairwise([*arguments, ""]):
        if word == f"--{option}" and not following.startswith("--"):
            found = following or None
        elif word.startswith(f"--{option}="):
            found = word.partition("=")[2] or None
    return found
