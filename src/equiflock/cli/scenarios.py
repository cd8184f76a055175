"""The options of a scenario on the command line, found before it is parsed: those that `make_scenario` takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass
from itertools import pairwise
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import tyro

from equiflock.cli.plugins import import_plugin
from equiflock.runtime.checks import InputError
from equiflock.runtime.docstrings import field_docstrings
from equiflock.scenarios import RandomDisk, Scenario, make_scenario, scenario_names
from equiflock.scenarios.registry import options_of, scenario_class

PLAIN = (bool, int, float, str)
"""Types of options that a command line can give."""


@dataclass(frozen=True)
class ScenarioOptions:
    """The options of a scenario, as fields; those of a command that was not chosen has none."""

    switches: ClassVar[Mapping[str, Any]] = {}
    """Options that are on or off, with what they are when they are on, such as `orbit`; None when off."""

    @property
    def given(self) -> dict[str, Any]:
        """By their names, as `make_scenario` takes them."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: (self.switches[name] if on else None) if name in self.switches else on for name, on in values.items()
        }


ScenarioName = Annotated[
    str,
    tyro.conf.arg(
        help=f"What a new flight is: {', '.join(scenario_names())}, or one of your own (see --plugin). Its options are "
        "options of this command, or follow the name: obstacles:sides=48."
    ),
]
Options = Annotated[ScenarioOptions, tyro.conf.arg(name="")]
"""Without a prefix of their own."""


def chosen(scenario: str, options: ScenarioOptions) -> Scenario:
    """The scenario that a command was given, a name perhaps with options, with these of the command line."""
    return make_scenario(scenario, **options.given)


def fitted(command: Any, arguments: Sequence[str]) -> Any:
    """A command with the options of the scenario that its arguments name; any other command as it is.

    A command that takes scenarios has the fields `scenario`, `options` and `plugin`, and perhaps `usual_options`, a
    function of the scenario's class whose options are the defaults in place of the scenario's own.
    """
    ours = {each.name: each for each in fields(command)} if is_dataclass(command) else {}
    if "plugin" in ours:
        import_plugin(_value("plugin", arguments))  # before options are checked, which may name what it registers
    if not {"scenario", "options", "plugin"} <= set(ours):
        return command
    name = _value("scenario", arguments) or str(ours["scenario"].default)
    kind = scenario_class(name.partition(":")[0])
    usual = make_scenario(name, command.usual_options(kind) if hasattr(command, "usual_options") else None)
    _check_known(usual, arguments, set(ours))
    options = _options_class(usual, set(ours))
    changed = ("options", Annotated[options, tyro.conf.arg(name="")], field(default_factory=options))
    made = make_dataclass(command.__name__, [changed], bases=(command,), frozen=True)
    made.__doc__ = command.__doc__
    return made


def _value(option: str, arguments: Sequence[str]) -> str | None:
    """What an option is given as, the last time; None if it is not."""
    found = None
    for word, following in pairwise([*arguments, ""]):
        if word == f"--{option}" and not following.startswith("--"):
            found = following or None
        elif word.startswith(f"--{option}="):
            found = word.partition("=")[2] or None
    return found


def _options_class(usual: Scenario, taken: set[str]) -> type[ScenarioOptions]:
    """A dataclass whose fields are the scenario's options, but for those whose names the command has itself."""
    values = options_of(usual)
    made: list[Any] = []
    switches = {}
    # The scenario's own options first, then those of its disk.
    kinds: tuple[Any, ...] = type(usual), RandomDisk
    for kind in kinds:
        hints, helps = get_type_hints(kind), field_docstrings(kind)
        for each in fields(kind):
            name = each.name
            if name not in values or name in taken or name in (before for before, *_ in made):
                continue
            hint, default, told = hints[name], values[name], helps.get(name, "")
            if not _is_plain(hint):
                on = _switched_on(hint, default)
                if on is None:
                    continue
                switches[name], hint, default = on, bool, default is not None
            made.append((name, Annotated[hint, tyro.conf.arg(help=told)], field(default=default)))
    namespace = {"switches": switches, "__annotations__": {}}
    return make_dataclass("Options", made, bases=(ScenarioOptions,), frozen=True, namespace=namespace)


def _is_plain(hint: Any) -> bool:
    """Whether a command line can give such values: numbers, words, choices, and None in place of them."""
    if get_origin(hint) is Literal:
        return True
    parts = [part for part in get_args(hint) if part is not NoneType]
    return hint in PLAIN or (bool(parts) and NoneType in get_args(hint) and all(map(_is_plain, parts)))


def _switched_on(hint: Any, default: Any) -> Any:
    """What `hint`, a dataclass or None, is when it is on; None if it is no such."""
    kinds = [part for part in get_args(hint) if is_dataclass(part)]
    if NoneType not in get_args(hint) or len(kinds) != 1:
        return None
    return kinds[0]() if default is None else default  # type: ignore[operator]


def _check_known(usual: Scenario, arguments: Sequence[str], taken: set[str]) -> None:
    """Raise a clear error for an option that other scenarios have and this one has not."""
    elsewhere = {each.name for name in scenario_names() for each in fields(scenario_class(name))}
    known = set(options_of(usual)) | taken
    for word in arguments:
        name = word.partition("=")[0].removeprefix("--").removeprefix("no-").replace("-", "_")
        if word.startswith("--") and name in elsewhere - known:
            raise InputError(
                f"scenario {usual.name!r} has no option {name!r}; it has {', '.join(sorted(options_of(usual)))}"
            )
