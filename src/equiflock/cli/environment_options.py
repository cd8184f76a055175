"""The world that flocks fly in, as options of a command: those of radio, failures and the body that is chosen."""

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
"""The options that every world has."""
OPTION_DEPENDENCIES: Mapping[str, tuple[str, ...]] = {
    "burst": ("packet_loss",),
    "fail_time": ("fail",),
    "fail_kind": ("fail", "fail_rate"),
}
"""Options that have an effect only if one of others is above 0."""
HELP_SUFFIXES: Mapping[str, str] = {
    "radio_seed": "(Of the radio alone.)",
    "top_speed": "Not --max-speed, which bounds the velocities with which flocks begin.",
}
"""What the docstring of a part does not say, as it does not know the options beside it."""


class Option(NamedTuple):
    """One option of a world."""

    name: str
    hint: Any
    """The type of its values."""
    default: Any
    help: str


@dataclass(frozen=True)
class EnvironmentOptions:
    """The options of a world, as fields of subclasses that are made for a body; this class itself has none."""

    @classmethod
    def make_class_for(cls, body: str, reserved_names: Collection[str]) -> type[EnvironmentOptions]:
        """A dataclass whose fields are the options of a world with this body, but for the body's that are `reserved_names`."""
        made = [_make_field(option) for option in _iter_options([body], reserved_names)]
        return make_dataclass("World", made, bases=(cls,), frozen=True)

    @property
    def world(self) -> World:
        """The world with these options."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        usual = {each.name: each.default for each in fields(self)}
        _check_dependencies({name: [value] for name, value in given.items() if value != usual[name]})
        # Those that follow the body's name are defaults here, and need not be given again.
        return make_world(**{name: value for name, value in given.items() if name == "body" or value != usual[name]})


EnvironmentArgument = Annotated[EnvironmentOptions, tyro.conf.arg(name="")]
"""The field of a command that holds the options; they appear without a prefix."""


@dataclass(frozen=True)
class EnvironmentAxes:
    """The options of several worlds, as `EnvironmentOptions` has those of one: each a list of values."""

    options: ClassVar[Mapping[str, Option]] = {}

    @classmethod
    def make_class_for(cls, body: str, reserved_names: Collection[str]) -> type[EnvironmentAxes]:
        """A dataclass whose fields are lists of values, as texts, of all options that worlds with these bodies have."""
        options = list(_iter_options(body.split(","), reserved_names))
        made: list[Any] = []
        for name, _, default, told in options:
            # Not given is not the same as given with the usual value, which makes a column of the table.
            told_so = tyro.conf.arg(help=told, metavar="STR", help_behavior_hint=f"(default: {default})")
            made.append((name, Annotated[str | None, told_so], None))
        namespace = {"options": {option.name: option for option in options}, "__annotations__": {}}
        return make_dataclass("Worlds", made, bases=(cls,), frozen=True, namespace=namespace)

    @property
    def axes(self) -> dict[str, list[Any]]:
        """The values of all options that were given."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: _parse_values(self.options[name], text) for name, text in given.items() if text is not None}

    @property
    def worlds(self) -> list[tuple[dict[str, Any], World]]:
        """Every combination of these values, with its world."""
        axes = self.axes
        _check_dependencies(axes)
        points = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
        return [(point, make_world(**point)) for point in points]


EnvironmentAxesArgument = Annotated[EnvironmentAxes, tyro.conf.arg(name="")]
"""The same for several worlds."""


def print_environment(world: World) -> None:
    """Say what is not as in the paper, if anything is."""
    words = describe_environment(world)
    if words:
        out.print(f"world: {words}", highlight=False, markup=False, soft_wrap=True)


def check_body_options(body: str, arguments: Sequence[str], known: Collection[str]) -> None:
    """Raise a clear error for an option that only other bodies have, which tyro would just call unrecognized."""
    for other in body_names():
        for option in _iter_body_options(other):
            if option.name not in known and option.name in list_option_names(arguments):
                # The body itself says what it has.
                make_world(body=body.partition(",")[0], **{option.name: option.default})


def _iter_options(bodies: Sequence[str], reserved_names: Collection[str]) -> Iterator[Option]:
    """The options of worlds with these bodies, each once: of the radio, of bodies, and of failures."""
    yield from _iter_part_options(Radio, RADIO_OPTIONS)
    yield Option(
        "body",
        str,
        DEFAULT_BODY_NAME,
        f"What a commanded acceleration does to an agent: {', '.join(body_names())}, or one of your own (see --plugin)."
        " Its options are options of this command, or follow the name: unicycle:max_turn_rate=2.",
    )
    found = {*ENVIRONMENT_OPTIONS, *reserved_names}
    for body in bodies:
        for option in _iter_body_options(body):
            if option.name not in found:
                found.add(option.name)
                yield option
    yield from _iter_part_options(Failures, FAILURE_OPTIONS)


def _iter_part_options(part: Any, names: Mapping[str, str]) -> Iterator[Option]:
    """The options of a part, a dataclass or an object of one: its values are defaults, its docstrings are help."""
    kind = part if isinstance(part, type) else type(part)
    hints, helps = get_type_hints(kind), read_field_docstrings(kind)
    for name, own in names.items():
        told = helps.get(own, "")
        # A docstring calls other fields by their names there.
        for option, other in names.items():
            told = told.replace(f"`{other}`", f"--{option.replace('_', '-')}")
        yield Option(name, hints[own], getattr(part, own), f"{told} {HELP_SUFFIXES.get(name, '')}".strip())


def _iter_body_options(name: str) -> Iterator[Option]:
    """The options of a body that can be written on a command line."""
    body: Any = make_body(name)
    hints = get_type_hints(type(body))
    back = {own: option for option, own in BODY_OPTION_NAMES.items()}
    own = [each.name for each in fields(body) if each.init] if is_dataclass(body) else []
    yield from _iter_part_options(body, {back.get(each, each): each for each in own if is_plain(hints[each])})


def _make_field(option: Option) -> tuple[str, Any, Any]:
    """The field of a dataclass for an option."""
    hint, metavar = option.hint, None
    # A fraction where a count is wanted gets the part's own error, one line, if it is read as a number.
    if hint is int or int in get_args(hint):
        hint, metavar = hint | float, "INT" if hint is int else "{None}|INT"
    return option.name, Annotated[hint, tyro.conf.arg(help=option.help, metavar=metavar)], field(default=option.default)


def _parse_values(option: Option, text: str) -> list[Any]:
    """The values of an option in a text: numbers such as 0-4 or 0.8,1,1.5, words, and none where that is a value."""
    kinds = {option.hint, *get_args(option.hint)}
    parts = [part.strip() for part in text.split(",")]
    # None goes last, wherever it is in the list.
    nothing = [None for part in parts if NoneType in kinds and part.lower() == "none"]
    rest = ",".join(part for part in parts if not (nothing and part.lower() == "none"))
    if len(nothing) > 1 or (option.hint is str and len(set(parts)) < len(parts)):
        raise InputError(f"{option.name} must have each value once; got {text!r}")
    if nothing and not rest:
        return [None]
    if int in kinds:
        return [*parse_integers(option.name, rest), *nothing]
    if float in kinds:
        return [*parse_floats(option.name, rest), *nothing]
    return [*(CONSTANT_WORDS.get(part, part) for part in rest.split(",")), *nothing]


def _check_dependencies(given: Mapping[str, Sequence[Any]]) -> None:
    """Raise a clear error for an option that would have no effect, as the user expects something of it."""
    for name, others in OPTION_DEPENDENCIES.items():
        if name in given and not any(value for other in others for value in given.get(other, ())):
            wanted = " or ".join(f"--{other.replace('_', '-')}" for other in others)
            raise InputError(f"--{name.replace('_', '-')} goes with {wanted}")
