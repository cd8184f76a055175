"""Command-line options of a scenario."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass
from itertools import pairwise, product
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args, get_origin, get_type_hints

import tyro

from equiflock._runtime.checks import InputError, format_suggestion
from equiflock._runtime.specs import CONSTANT_WORDS, is_union, parse_spec, read_field_docstrings
from equiflock.bodies import body_names, make_body
from equiflock.cli.plugins import import_plugin
from equiflock.cli.terminal import err, out, parse_floats, parse_integers
from equiflock.observations.radio import Radio
from equiflock.scenarios import RandomDisk, Scenario, make_scenario, scenario_names
from equiflock.scenarios.registry import collect_options, describe_disagreement, scenario_class
from equiflock.simulation.environment import (
    BODY_OPTION_NAMES,
    DEFAULT_BODY_NAME,
    FAILURE_OPTIONS,
    RADIO_OPTIONS,
    World,
    describe_environment,
    make_world,
)
from equiflock.simulation.failures import Failures

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


# Command-line options of the environment: radio, body and failures.

ENVIRONMENT_OPTIONS = (*RADIO_OPTIONS, "body", *FAILURE_OPTIONS)
"""Options of every environment, whatever its body."""
OPTION_DEPENDENCIES: Mapping[str, tuple[str, ...]] = {
    "burst": ("packet_loss",),
    "fail_time": ("fail",),
    "fail_kind": ("fail", "fail_rate"),
}
"""Options that have an effect only if one of these other options is above 0."""
HELP_SUFFIXES: Mapping[str, str] = {
    "radio_seed": "(Radio only.)",
    "top_speed": "(--max-speed bounds the initial velocities.)",
}
"""Text appended to an option's help: relations to other options, which its docstring cannot name."""


class Option(NamedTuple):
    """One option of an environment."""

    name: str
    hint: Any
    """Type of its values."""
    default: Any
    help: str


@dataclass(frozen=True)
class EnvironmentOptions:
    """Options of an environment. The fields are in the subclasses that `make_class_for` makes for a body."""

    @classmethod
    def make_class_for(cls, body: str, reserved_names: Collection[str]) -> type[EnvironmentOptions]:
        """Return a dataclass whose fields are the options of an environment with this body.

        Options of the body whose names the command uses itself, `reserved_names`, are left out.
        """
        options = [_make_field(option) for option in _iter_options([body], reserved_names)]
        return make_dataclass("Environment", options, bases=(cls,), frozen=True)

    @property
    def world(self) -> World:
        """Environment with these options. Raises InputError for an option that has no effect without another one."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        changed = {each.name: values[each.name] for each in fields(self) if values[each.name] != each.default}
        _check_dependencies({name: [value] for name, value in changed.items()})
        # Options that follow the body's name are defaults here, so they need not be passed again.
        return make_world(**{name: value for name, value in values.items() if name == "body" or name in changed})


EnvironmentArgument = Annotated[EnvironmentOptions, tyro.conf.arg(name="")]
"""Type of the field of a command that holds the options; they have no prefix."""


@dataclass(frozen=True)
class EnvironmentAxes:
    """Options of several environments: as `EnvironmentOptions`, with a list of values for each option."""

    options: ClassVar[Mapping[str, Option]] = {}

    @classmethod
    def make_class_for(cls, body: str, reserved_names: Collection[str]) -> type[EnvironmentAxes]:
        """Return a dataclass whose fields are lists of values, as text, of all options of an environment.

        `body` may name several bodies, separated by commas. Fields are None by default: not given. Options of the
        bodies in `reserved_names` are left out.
        """
        options = list(_iter_options(body.split(","), reserved_names))
        option_fields: list[Any] = []
        for name, _, default, help_text in options:
            # An option that is given, even with its default value, becomes a column of the table; None is not given.
            argument = tyro.conf.arg(help=help_text, metavar="STR", help_behavior_hint=f"(default: {default})")
            option_fields.append((name, Annotated[str | None, argument], None))
        namespace = {"options": {option.name: option for option in options}, "__annotations__": {}}
        return make_dataclass("Environments", option_fields, bases=(cls,), frozen=True, namespace=namespace)

    @property
    def axes(self) -> dict[str, list[Any]]:
        """List of values of each option that was given."""
        texts = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: _parse_values(self.options[name], text) for name, text in texts.items() if text is not None}

    @property
    def worlds(self) -> list[tuple[dict[str, Any], World]]:
        """Every combination of the given values, as options by name, with its environment.

        Raises InputError for an option that has no effect without another one.
        """
        axes = self.axes
        _check_dependencies(axes)
        points = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
        return [(point, make_world(**point)) for point in points]


EnvironmentAxesArgument = Annotated[EnvironmentAxes, tyro.conf.arg(name="")]
"""Type of the field of a command that holds lists of options; they have no prefix."""


def print_environment(world: World) -> None:
    """Print how the environment differs from the paper's; nothing if it does not."""
    text = describe_environment(world)
    if text:
        out.print(f"environment: {text}", highlight=False, markup=False, soft_wrap=True)


def check_body_options(body: str, arguments: Sequence[str], known: Collection[str]) -> None:
    """Raise InputError for an option in `arguments` that only other bodies have; tyro would report it as unrecognized.

    `known` are the options of the command.
    """
    for other in body_names():
        for option in _iter_body_options(other):
            if option.name not in known and option.name in list_option_names(arguments):
                # This raises the body's error, which lists its options.
                make_world(body=body.partition(",")[0], **{option.name: option.default})


def _iter_options(bodies: Sequence[str], reserved_names: Collection[str]) -> Iterator[Option]:
    """Yield the options of environments with these bodies, each once: of the radio, the bodies and failures.

    Options of bodies in `reserved_names` are left out.
    """
    yield from _iter_part_options(Radio, RADIO_OPTIONS)
    yield Option(
        "body",
        str,
        DEFAULT_BODY_NAME,
        f"Dynamics of an agent: {', '.join(body_names())}, or your own (see --plugin). Options of the body are options "
        "of this command, or follow the name: unicycle:max_turn_rate=2.",
    )
    seen = {*ENVIRONMENT_OPTIONS, *reserved_names}
    for body in bodies:
        for option in _iter_body_options(body):
            if option.name not in seen:
                seen.add(option.name)
                yield option
    yield from _iter_part_options(Failures, FAILURE_OPTIONS)


def _iter_part_options(part: Any, names: Mapping[str, str]) -> Iterator[Option]:
    """Yield the options of a dataclass (`Radio`, `Failures`) or an instance (a body).

    Field values are the defaults, field docstrings the help. `names` maps option names to field names.
    """
    kind = part if isinstance(part, type) else type(part)
    hints, helps = get_type_hints(kind), read_field_docstrings(kind)
    for name, field_name in names.items():
        help_text = helps.get(field_name, "")
        # Docstrings refer to fields by their names; help refers to options.
        for other_name, other_field in names.items():
            help_text = help_text.replace(f"`{other_field}`", f"--{other_name.replace('_', '-')}")
        help_text = f"{help_text} {HELP_SUFFIXES.get(name, '')}".strip()
        yield Option(name, hints[field_name], getattr(part, field_name), help_text)


def _iter_body_options(name: str) -> Iterator[Option]:
    """Yield the options of a body whose values can be written on a command line."""
    body: Any = make_body(name)
    hints = get_type_hints(type(body))
    option_names = {field_name: option for option, field_name in BODY_OPTION_NAMES.items()}
    field_names = [each.name for each in fields(body) if each.init] if is_dataclass(body) else []
    yield from _iter_part_options(
        body, {option_names.get(each, each): each for each in field_names if is_plain(hints[each])}
    )


def _make_field(option: Option) -> tuple[str, Any, Any]:
    """Return the dataclass field of an option: name, annotated type, default."""
    hint, metavar = option.hint, None
    # Parse integers as numbers, so that a fraction raises the one-line error of the dataclass, not tyro's.
    if hint is int or int in get_args(hint):
        hint, metavar = hint | float, "INT" if hint is int else "{None}|INT"
    return option.name, Annotated[hint, tyro.conf.arg(help=option.help, metavar=metavar)], field(default=option.default)


def _parse_values(option: Option, text: str) -> list[Any]:
    """Parse a list of values: numbers such as 0-4 or 0.8,1,1.5, words, and none if the option is optional.

    Ranges include both ends. None comes last. Raise InputError if a value is invalid or repeated.
    """
    kinds = {option.hint, *get_args(option.hint)}
    parts = [part.strip() for part in text.split(",")]
    # None comes last, wherever it is in the list.
    nones = [None for part in parts if NoneType in kinds and part.lower() == "none"]
    rest = ",".join(part for part in parts if not (nones and part.lower() == "none"))
    if len(nones) > 1 or (option.hint is str and len(set(parts)) < len(parts)):
        raise InputError(f"{option.name} must list each value once; got {text!r}")
    if nones and not rest:
        return [None]
    if int in kinds:
        return [*parse_integers(option.name, rest), *nones]
    if float in kinds:
        return [*parse_floats(option.name, rest), *nones]
    return [*(CONSTANT_WORDS.get(part, part) for part in rest.split(",")), *nones]


def _check_dependencies(given: Mapping[str, Sequence[Any]]) -> None:
    """Raise InputError for an option that has no effect, as none of the options that it depends on is above 0.

    `given` has the values of each option that was given.
    """
    for name, others in OPTION_DEPENDENCIES.items():
        if name in given and not any(value for other in others for value in given.get(other, ())):
            required = " or ".join(f"--{other.replace('_', '-')}" for other in others)
            raise InputError(f"--{name.replace('_', '-')} has no effect without {required}")


# Options of the scenario and body that unparsed arguments name, added to a command before parsing.


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
        kind = scenario_class(parse_spec(name).name)
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
