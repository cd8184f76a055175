"""The options of a scenario as options of a command."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import tyro

from equiflock.cli.console import err
from equiflock.runtime.checks import InputError
from equiflock.runtime.docstrings import read_field_docstrings
from equiflock.runtime.options import is_union
from equiflock.scenarios import RandomDisk, Scenario, make_scenario, scenario_names
from equiflock.scenarios.registry import collect_options, describe_disagreement, scenario_class

PLAIN_TYPES = (bool, int, float, str)
"""Types of values that can be written on a command line."""


@dataclass(frozen=True)
class ScenarioOptions:
    """The options of a scenario, as fields of subclasses that are made for it; this class itself has none."""

    switches: ClassVar[Mapping[str, Any]] = {}
    """Options that are on or off, such as `orbit`, with their values when on; they are None when off."""

    @property
    def option_values(self) -> dict[str, Any]:
        """The options by their names, as `make_scenario` takes them."""
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
ScenarioOptionsArgument = Annotated[ScenarioOptions, tyro.conf.arg(name="")]
"""The field of a command that holds the options; they appear without a prefix."""


def build_scenario(scenario: str, options: ScenarioOptions) -> Scenario:
    """The scenario of a command: its name, perhaps with options, and the options of the command line."""
    return make_scenario(scenario, **options.option_values)


def warn_about_disagreement(scenario: Scenario, controller: object) -> None:
    """Print a line if scenario and controller must agree on something, such as a pattern, and do not."""
    text = describe_disagreement(scenario, controller)
    if text is not None:
        err.print(text, style="yellow", highlight=False, markup=False, soft_wrap=True)


def make_options_class(default_scenario: Scenario, reserved_names: Collection[str]) -> type[ScenarioOptions]:
    """A dataclass whose fields are the scenario's options, but for those whose names the command has itself."""
    values = collect_options(default_scenario)
    made: list[Any] = []
    switches = {}
    # The scenario's own options first, then those of its disk.
    kinds: tuple[Any, ...] = type(default_scenario), RandomDisk
    for kind in kinds:
        hints, helps = get_type_hints(kind), read_field_docstrings(kind)
        for each in fields(kind):
            name = each.name
            if name not in values or name in reserved_names or name in (before for before, *_ in made):
                continue
            hint, default, told = hints[name], values[name], helps.get(name, "")
            # An option such as `orbit: Orbit | None` becomes a switch; others that cannot be written are left out.
            if not is_plain(hint):
                on = _get_switch_value(hint, default)
                if on is None:
                    continue
                switches[name], hint, default = on, bool, default is not None
            made.append((name, Annotated[hint, tyro.conf.arg(help=told)], field(default=default)))
    namespace = {"switches": switches, "__annotations__": {}}
    return make_dataclass("Options", made, bases=(ScenarioOptions,), frozen=True, namespace=namespace)


def is_plain(hint: Any) -> bool:
    """Whether a command line can give such values: numbers, words, choices, and None in place of them."""
    if get_origin(hint) is Literal:
        return True
    parts = [part for part in get_args(hint) if part is not NoneType]
    return hint in PLAIN_TYPES or (is_union(hint) and all(map(is_plain, parts)))


def _get_switch_value(hint: Any, default: Any) -> Any:
    """The value of an option of type `SomeDataclass | None` when it is on; None for options of other types."""
    kinds = [part for part in get_args(hint) if is_dataclass(part)]
    if NoneType not in get_args(hint) or len(kinds) != 1:
        return None
    return kinds[0]() if default is None else default  # type: ignore[operator]


def check_scenario_options(default_scenario: Scenario, arguments: Sequence[str], known: Collection[str]) -> None:
    """Raise a clear error for an option that only other scenarios have, which tyro would just call unrecognized."""
    elsewhere = {each.name for name in scenario_names() for each in fields(scenario_class(name))}
    for name in list_option_names(arguments):
        if name in elsewhere and name not in known:
            raise InputError(
                f"scenario {default_scenario.name!r} has no option {name!r}; it has {', '.join(sorted(collect_options(default_scenario)))}"
            )


def list_option_names(arguments: Sequence[str]) -> list[str]:
    """The names of the options in unparsed arguments, as fields have them."""
    words = [word.partition("=")[0].removeprefix("--") for word in arguments if word.startswith("--")]
    return [word.removeprefix("no-").replace("-", "_") for word in words]
