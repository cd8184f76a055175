"""Options that commands share: of a scenario, of an environment (radio, body, failures), and of worker processes.

The options of a scenario or a body depend on its name, so `add_dynamic_options` adds them before a command is parsed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass
from itertools import pairwise, product
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args, get_origin, get_type_hints

import tyro

from equiflock._runtime.checks import InputError, format_names, format_suggestion
from equiflock._runtime.specs import CONSTANT_WORDS, format_spec, is_union, parse_spec, read_field_docstrings
from equiflock.bodies import body_names, make_body
from equiflock.cli.jobs import WorkerOptions
from equiflock.cli.plugins import import_plugin
from equiflock.cli.terminal import err, out, parse_floats, parse_integers, print_warning
from equiflock.controllers.gain_schedule import describe_long_time_step
from equiflock.controllers.loading import read_own_radius
from equiflock.controllers.registry import parse_controller_name, split_unit_options
from equiflock.controllers.safety_limits import SafetyLimits
from equiflock.observations.radio import Radio
from equiflock.scenarios import RandomDisk, Scenario, make_scenario, scenario_names
from equiflock.scenarios.registry import (
    collect_options,
    describe_disagreement,
    describe_unsuitability,
    scenario_class,
)
from equiflock.simulation.environment import (
    DEFAULT_BODY_NAME,
    FAILURE_OPTIONS,
    RADIO_OPTIONS,
    Environment,
    describe_environment,
    map_body_options,
)
from equiflock.simulation.failures import Failures
from equiflock.simulation.simulate import compute_flown_duration, count_steps
from equiflock.simulation.trajectory import Trajectory, load_trajectories

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


# Scenarios.


@dataclass(frozen=True)
class ScenarioOptions:
    """Options of a scenario. The fields are in the subclasses that `make_class_for` makes for a scenario."""

    switches: ClassVar[Mapping[str, Any]] = {}
    """Options such as `orbit` that are switches, with their values when on; they are None when off."""

    @classmethod
    def make_class_for(cls, scenario: Scenario, reserved_names: Collection[str]) -> type[ScenarioOptions]:
        """Return a dataclass whose fields are the options of the scenario and of its disk, with its values as defaults.

        Options that cannot be written on a command line, or whose names the command uses itself, are left out.
        """
        values = collect_options(scenario)
        options: dict[str, Any] = {}
        switches = {}
        kinds: tuple[Any, ...] = type(scenario), RandomDisk
        for kind in kinds:
            hints, helps = get_type_hints(kind), read_field_docstrings(kind)
            names = [each.name for each in fields(kind) if each.name in values]
            for name in names:
                if name in options or name in reserved_names:
                    continue
                hint, default = hints[name], values[name]
                # An option such as `orbit: Orbit | None` becomes a switch; other types that are not plain are left out.
                if (switch_value := _get_switch_value(hint, default)) is not None:
                    switches[name], hint, default = switch_value, bool, default is not None
                elif not _is_plain(hint):
                    continue
                argument = tyro.conf.arg(help=helps.get(name, ""))
                options[name] = name, Annotated[hint, argument], field(default=default)
        namespace = {"switches": switches, "__annotations__": {}}
        return make_dataclass("Options", options.values(), bases=(cls,), frozen=True, namespace=namespace)

    @property
    def option_values(self) -> dict[str, Any]:
        """Options by name, as keywords of `make_scenario`; switches have their value when on, and None when off."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return values | {name: on if values[name] else None for name, on in self.switches.items()}


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


def report_duration(duration: float, time_step: float) -> float:
    """Return the duration that is flown; print a notice if the given one is not a whole number of steps."""
    flown = compute_flown_duration(duration, time_step)
    if flown != duration:
        steps = f"{count_steps(duration, time_step):,} steps of {time_step:g} s"
        err.print(f"flying {steps}: {flown:g} s, not {duration:g} s", highlight=False, soft_wrap=True)
    return flown


def warn_about_flight(scenario: Scenario, name: str, controller: object, time_step: float) -> None:
    """Print a warning if the controller is not made for the scenario, or they differ in an option that they share.

    Also print one if the time step is longer than those of the controller's training, or if R is not the controller's.
    """
    print_warning(describe_unsuitability(scenario, name) or describe_disagreement(scenario, controller))
    warn_about_radius(collect_options(scenario).get("comm_radius"), name)
    warn_about_time_step(controller, time_step)


def warn_about_radius(radius: float | None, name: str) -> None:
    """Print a warning if R differs from that of a controller, which is then not scaled to it.

    None if `radius` is None, or for users' laws, whose units are unknown.
    """
    own = read_own_radius(name)
    if radius is None or own is None or math.isclose(radius, own, rel_tol=1e-9):
        return
    head, options = parse_controller_name(name)
    scaled = format_spec(head, **split_unit_options(options)[1], comm_radius=f"{radius:.12g}")
    print_warning(
        f"{name} is for comm_radius = {own:g} and is not scaled to {radius:g}: to scale it, use {scaled}:time_scale=.. "
        "(equiflock fit chooses the time scale)"
    )


def warn_about_time_step(controller: object, time_step: float) -> None:
    """Print a warning if the time step is longer than those of the controller's training."""
    print_warning(describe_long_time_step(controller, time_step))


def _is_plain(hint: Any) -> bool:
    """Return whether a type is bool, int, float, str, Literal or a union of these and None, as on a command line."""
    if is_union(hint):
        return all(_is_plain(part) for part in get_args(hint) if part is not NoneType)
    return hint in (bool, int, float, str) or get_origin(hint) is Literal


def _get_switch_value(hint: Any, default: Any) -> Any:
    """Return the value of an option of type `SomeDataclass | None` when it is on; None for other types.

    This is the default or, if that is None, a new instance.
    """
    kinds = [part for part in get_args(hint) if is_dataclass(part)]
    if NoneType not in get_args(hint) or len(kinds) != 1:
        return None
    return kinds[0]() if default is None else default  # type: ignore[operator]


# Saved flights.


def load_flights(path: Path, comm_radius: float | None) -> list[Trajectory]:
    """Return the flights saved at a path, or that of a flight log (.csv), which needs the radius of its robots.

    Raise InputError if there are none, or they are damaged.
    """
    if path.suffix != ".csv":
        return load_trajectories(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    if comm_radius is None:
        raise InputError(
            f"{path}: for a flight log pass --comm-radius, the communication radius of its robots; the result of a job "
            "must be a file jobs/*.csv in a run directory"
        )
    return [Trajectory.from_csv(path, comm_radius=comm_radius)]


def check_radius_has_effect(paths: Sequence[Path], comm_radius: float | None) -> None:
    """Raise InputError if there are saved flights but no flight log among them, while a radius is given."""
    if comm_radius is not None and paths and all(path.suffix != ".csv" for path in paths):
        raise InputError("--comm-radius has no effect on saved flights, only on flight logs (.csv): leave it out")


# Limits.

SafetyArgument = Annotated[
    str | None,
    tyro.conf.arg(
        metavar="{None}|STR",
        help="Limits that each agent keeps, in the robots' units and seconds, such as "
        "max_acceleration=4:max_speed=1.5:min_separation=0.3:max_silence=1:fence=-5,-5,5,5. max_acceleration is "
        "required; braking_time is the time in which limits correct a velocity, by default four steps.",
    ),
]
"""Type of the option `--safety` of a command."""


def parse_safety(text: str | None) -> SafetyLimits | None:
    """Return the limits of the option `--safety`; None if it is not given."""
    return None if text is None else SafetyLimits.parse(text)


# Environments.


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
        option_fields = []
        for name, hint, default, help_text in _iter_options([body], reserved_names):
            metavar = None
            # Parse integers as numbers, so that a fraction raises the one-line error of the dataclass, not tyro's.
            if hint is int or int in get_args(hint):
                hint, metavar = hint | float, "INT" if hint is int else "{None}|INT"
            argument = tyro.conf.arg(help=help_text, metavar=metavar)
            option_fields.append((name, Annotated[hint, argument], field(default=default)))
        return make_dataclass("Environment", option_fields, bases=(cls,), frozen=True)

    def build(self) -> Environment:
        """Return the environment. Raise InputError for an option that has no effect without another one."""
        changed = {
            each.name: getattr(self, each.name) for each in fields(self) if getattr(self, each.name) != each.default
        }
        _check_dependencies({name: [value] for name, value in changed.items()})
        # Options that follow the body's name are defaults here, so they need not be passed again.
        return Environment.from_options(**{"body": getattr(self, "body", DEFAULT_BODY_NAME), **changed})


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
        options = {option.name: option for option in _iter_options(body.split(","), reserved_names)}
        option_fields: list[Any] = []
        for name, _, default, help_text in options.values():
            # An option that is given, even with its default value, becomes a column of the table; None is not given.
            argument = tyro.conf.arg(help=help_text, metavar="STR", help_behavior_hint=f"(default: {default})")
            option_fields.append((name, Annotated[str | None, argument], None))
        namespace = {"options": options, "__annotations__": {}}
        return make_dataclass("Environments", option_fields, bases=(cls,), frozen=True, namespace=namespace)

    def build(self) -> list[tuple[dict[str, Any], Environment]]:
        """Return every combination of the given values, as options by name, with its environment.

        Raise InputError for an option that has no effect without another one.
        """
        texts = {name: getattr(self, name) for name in self.options}
        axes = {name: _parse_values(self.options[name], text) for name, text in texts.items() if text is not None}
        _check_dependencies(axes)
        points = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
        return [(point, Environment.from_options(**point)) for point in points]


EnvironmentAxesArgument = Annotated[EnvironmentAxes, tyro.conf.arg(name="")]
"""Type of the field of a command that holds lists of options; they have no prefix."""


def print_environment(environment: Environment) -> None:
    """Print how the environment differs from the paper's; nothing if it does not."""
    text = describe_environment(environment)
    if text:
        out.print(f"environment: {text}", highlight=False, markup=False, soft_wrap=True)


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
            help_text = help_text.replace(f"`{other_field}`", _format_option(other_name))
        help_text = f"{help_text} {HELP_SUFFIXES.get(name, '')}".strip()
        yield Option(name, hints[field_name], getattr(part, field_name), help_text)


def _iter_body_options(name: str) -> Iterator[Option]:
    """Yield the options of a body whose values can be written on a command line."""
    body: Any = make_body(name)
    hints = get_type_hints(type(body))
    names = map_body_options(body).items()
    yield from _iter_part_options(body, {option: name for option, name in names if _is_plain(hints[name])})


def _parse_values(option: Option, text: str) -> list[Any]:
    """Parse a list of values: numbers such as 0-4 or 0.8,1,1.5, words, and none if the option is optional.

    Ranges include both ends. None comes last, wherever it is in the list. Raise InputError if a value is invalid or
    repeated.
    """
    kinds = {option.hint, *get_args(option.hint)}
    parts = [part.strip() for part in text.split(",")]
    words = [part for part in parts if NoneType not in kinds or part.lower() != "none"]
    nones = [None] * (len(parts) - len(words))
    if len(nones) > 1 or (option.hint is str and len(set(parts)) < len(parts)):
        raise InputError(f"{option.name} must list each value once; got {text!r}")
    if not words:
        return nones
    if int in kinds:
        return [*parse_integers(option.name, ",".join(words)), *nones]
    if float in kinds:
        return [*parse_floats(option.name, ",".join(words)), *nones]
    return [*(CONSTANT_WORDS.get(word, word) for word in words), *nones]


def _check_dependencies(given: Mapping[str, Sequence[Any]]) -> None:
    """Raise InputError for an option in `given`, name -> values, that has no effect without one that is above 0."""
    for name, others in OPTION_DEPENDENCIES.items():
        if name in given and not any(value for other in others for value in given.get(other, ())):
            required = " or ".join(map(_format_option, others))
            raise InputError(f"{_format_option(name)} has no effect without {required}")


def _format_option(name: str) -> str:
    """Return an option as it is written on the command line: --packet-loss for `packet_loss`."""
    return f"--{name.replace('_', '-')}"


PluginName = Annotated[
    str | None,
    tyro.conf.arg(
        help="Python module or file to import first, which may register your own controllers, scenarios, bodies and "
        "metrics."
    ),
]


# Options of the scenario and the body that unparsed arguments name.


def add_dynamic_options(command: Any, arguments: Sequence[str]) -> Any:
    """Return the command with the options of the scenario and the body that its arguments name.

    A command that takes scenarios has the fields `scenario`, `options` and `plugin`. It may have `get_default_options`,
    a function of the scenario's class that returns option values which replace the scenario's defaults. A command that
    takes environments has the field `environment`, whose default is `EnvironmentOptions` or `EnvironmentAxes`. Any
    other command is returned unchanged. A plugin that the arguments name is imported.
    """
    command_fields = {each.name: each for each in fields(command)} if is_dataclass(command) else {}
    if "plugin" in command_fields:
        # A plugin may register the scenario, controller or body that other options name.
        import_plugin(_find_option_value("plugin", arguments))
    option_classes: dict[str, Any] = {}
    known = set(command_fields) | (set(ENVIRONMENT_OPTIONS) if "environment" in command_fields else set())
    scenario = None
    if {"scenario", "options", "plugin"} <= set(command_fields):
        # Help shows the defaults of the command, if it has any, or else those of the scenario.
        name = _find_option_value("scenario", arguments) or str(command_fields["scenario"].default)
        kind = scenario_class(parse_spec(name).name)
        defaults = command.get_default_options(kind) if hasattr(command, "get_default_options") else None
        scenario = make_scenario(name, defaults)
        option_classes["options"] = ScenarioOptions.make_class_for(scenario, known)
        known |= set(collect_options(scenario))
    if "environment" in command_fields:
        body = _find_option_value("body", arguments) or DEFAULT_BODY_NAME
        base_class: Any = command_fields["environment"].default_factory
        option_classes["environment"] = base_class.make_class_for(body, known)
        known |= {each.name for each in fields(option_classes["environment"])}
        _check_body_options(body, _list_option_names(arguments) - known)
    if scenario is not None:
        _check_scenario_options(scenario, _list_option_names(arguments) - known)
    return _replace_fields(command, option_classes) if command_fields else command


def _replace_fields(command: Any, option_classes: dict[str, Any]) -> Any:
    """Return a subclass of the command whose fields of these names have these classes as types and defaults.

    `--help` lists the options of workers, which a command inherits, after its own.
    """
    changed = [
        (name, Annotated[kind, tyro.conf.arg(name="")], field(default_factory=kind))
        for name, kind in option_classes.items()
    ]
    subclass: Any = make_dataclass(command.__name__, changed, bases=(command,), frozen=True)
    subclass.__doc__ = command.__doc__
    inherited = {each.name for each in fields(WorkerOptions)}
    names = sorted(subclass.__dataclass_fields__, key=inherited.__contains__)
    subclass.__dataclass_fields__ = {name: subclass.__dataclass_fields__[name] for name in names}
    return subclass


def _check_body_options(body: str, unknown: Collection[str]) -> None:
    """Raise InputError if an unknown option is one that only other bodies have; tyro would not say so."""
    for other in body_names():
        for option in _iter_body_options(other):
            if option.name in unknown:
                # This raises the body's error, which lists its options.
                Environment.from_options(body=body.partition(",")[0], **{option.name: option.default})


def _check_scenario_options(scenario: Scenario, unknown: Collection[str]) -> None:
    """Raise InputError if an unknown option is one that only other scenarios have; tyro would not say so."""
    other_options = {each.name for name in scenario_names() for each in fields(scenario_class(name))}
    for name in other_options.intersection(unknown):
        options = sorted(collect_options(scenario))
        raise InputError(
            f"scenario {scenario.name!r} has no option {name!r}; it has {format_names(options)}"
            f"{format_suggestion(name, options)}"
        )


def _list_option_names(arguments: Sequence[str]) -> set[str]:
    """Return the names of the options in unparsed arguments, as field names: `orbit` for --orbit or --no-orbit."""
    words = [word.partition("=")[0].removeprefix("--") for word in arguments if word.startswith("--")]
    return {word.removeprefix("no-").replace("-", "_") for word in words}


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
