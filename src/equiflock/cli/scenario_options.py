"""Command-line options of a scenario."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import tyro

from equiflock.cli.console import err
from equiflock.runtime.checks import InputError, format_suggestion
from equiflock.runtime.docstrings import read_field_docstrings
from equiflock.runtime.options import is_union
from equiflock.scenarios import RandomDisk, Scenario, make_scenario, scenario_names
from equiflock.scenarios.registry import collect_options, describe_disagreement, scenario_class

PLAIN_TYPES = (bool, int, float, str)
"""Types whose values can be written on a command line."""


@dataclass(frozen=True)
class ScenarioOptions:
    """Options of a scenario. The fields are in the subclasses that `make_options_class` makes for a scenario."""

    switches: ClassVar[Mapping[str, Any]] = {}
    """Options such as `orbit` that are switches, with their values when on; they are None when off."""

    @property
    def option_values(self) -> dict[str, Any]:
        """Options by name, as keywords of `make_scenario`; switches have their value when on, and None when off."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: (self.switches[name] if value else None) if name in self.switches else value
            for name, value in values.items()
        }


ScenarioName = Annotated[
    str,
    tyro.conf.arg(
        help=f"Scenario: {', '.join(scenario_names())}, or your own (see --plugin). Its options are options of this "
        "command, or follow the name: obstacles:sides=48."
    ),
]
ScenarioOptionsArgument = Annotated[ScenarioOptions, tyro.conf.arg(name="")]
"""Type of the field of a command that holds the options; they have no prefix."""


def build_scenario(scenario: str, options: ScenarioOptions) -> Scenario:
    """Return the scenario of a command from its name, which may include options, and the command-line options."""
    return make_scenario(scenario, **options.option_values)


def warn_about_disagreement(scenario: Scenario, controller: object) -> None:
    """Print a warning if scenario and controller differ in an option that they must share, such as a pattern."""
    text = describe_disagreement(scenario, controller)
    if text is not None:
        err.print(text, style="yellow", highlight=False, markup=False, soft_wrap=True)


def make_options_class(default_scenario: Scenario, reserved_names: Collection[str]) -> type[ScenarioOptions]:
    """Return a dataclass whose fields are the options of the scenario and of its disk, with its values as defaults.

    `reserved_names`, which the command uses itself, and options that cannot be written on a command line are left out.
    """
    values = collect_options(default_scenario)
    option_fields: list[Any] = []
    switches = {}
    # The scenario's options first, then those of its disk.
    kinds: tuple[Any, ...] = type(default_scenario), RandomDisk
    for kind in kinds:
        hints, helps = get_type_hints(kind), read_field_docstrings(kind)
        for each in fields(kind):
            name = each.name
            if name not in values or name in reserved_names or name in (previous for previous, *_ in option_fields):
                continue
            hint, default = hints[name], values[name]
            # An option such as `orbit: Orbit | None` becomes a switch; other types that are not plain are left out.
            if not is_plain(hint):
                value_when_on = _get_switch_value(hint, default)
                if value_when_on is None:
                    continue
                switches[name], hint, default = value_when_on, bool, default is not None
            argument = tyro.conf.arg(help=helps.get(name, ""))
            option_fields.append((name, Annotated[hint, argument], field(default=default)))
    namespace = {"switches": switches, "__annotations__": {}}
    return make_dataclass("Options", option_fields, bases=(ScenarioOptions,), frozen=True, namespace=namespace)


def is_plain(hint: Any) -> bool:
    """Return whether values of a type can be written on a command line.

    These are bool, int, float, str, Literal, and unions of them and None.
    """
    if get_origin(hint) is Literal:
        return True
    parts = [part for part in get_args(hint) if part is not NoneType]
    return hint in PLAIN_TYPES or (is_union(hint) and all(map(is_plain, parts)))


def _get_switch_value(hint: Any, default: Any) -> Any:
    """Return the value of an option of type `SomeDataclass | None` when it is on.

    This is the default or, if that is None, a new instance. Return None for other types.
    """
    kinds = [part for part in get_args(hint) if is_dataclass(part)]
    if NoneType not in get_args(hint) or len(kinds) != 1:
        return None
    return kinds[0]() if default is None else default  # type: ignore[operator]


def check_scenario_options(default_scenario: Scenario, arguments: Sequence[str], known: Collection[str]) -> None:
    """Raise InputError for an option in `arguments` that only other scenarios have, which tyro would not recognize.

    `known` are the options of the command.
    """
    other_options = {each.name for name in scenario_names() for each in fields(scenario_class(name))}
    for name in list_option_names(arguments):
        if name in other_options and name not in known:
            options = sorted(collect_options(default_scenario))
            raise InputError(
                f"scenario {default_scenario.name!r} has no option {name!r}; it has {', '.join(options)}"
                f"{format_suggestion(name, options)}"
            )


def list_option_names(arguments: Sequence[str]) -> list[str]:
    """Return the names of the options in unparsed arguments, as field names: `orbit` for --orbit or --no-orbit."""
    words = [word.partition("=")[0].removeprefix("--") for word in arguments if word.startswith("--")]
    return [word.removeprefix("no-").replace("-", "_") for word in words]
