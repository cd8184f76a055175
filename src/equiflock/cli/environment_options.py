"""Command-line options of the environment: radio, body and failures."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass
from itertools import product
from types import NoneType
from typing import Annotated, Any, ClassVar, NamedTuple, get_args, get_type_hints

import tyro

from equiflock.bodies import body_names, make_body
from equiflock.cli.console import out
from equiflock.cli.scenario_options import is_plain, list_option_names
from equiflock.cli.terminal import parse_floats, parse_integers
from equiflock.experiments.environment_text import describe_environment
from equiflock.experiments.world import (
    BODY_OPTION_NAMES,
    DEFAULT_BODY_NAME,
    FAILURE_OPTIONS,
    RADIO_OPTIONS,
    World,
    make_world,
)
from equiflock.runtime.checks import InputError
from equiflock.runtime.docstrings import read_field_docstrings
from equiflock.runtime.options import CONSTANT_WORDS
from equiflock.senses.radio import Radio
from equiflock.simulation.failures import Failures

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
