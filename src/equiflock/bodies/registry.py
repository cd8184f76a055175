"""Bodies by name. `@body("name")` adds one, `make_body("name")` makes one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar

from equiflock.protocols import AnyBody
from equiflock.runtime.checks import InputError, format_suggestion, raise_wrong_choice, shorten_repr
from equiflock.runtime.options import parse_options

_bodies: dict[str, type[Any]] = {}
Definition = TypeVar("Definition", bound=type[Any])


def body(name: str) -> Callable[[Definition], Definition]:
    """Add a body under a name, for `make_body` and the command line.

        @ef.body("sledge")
        @dataclass(frozen=True)
        class Sledge:
            friction: float = 0.1

            def advance(self, positions, velocities, roles, accelerations, time_step, active): ...

    It is a frozen dataclass with `advance` (see `Body`), and with `init_state` if it remembers more than position and
    velocity (see `StatefulBody`). Its fields are its options: `make_body("sledge", friction=0.2)`, and
    `sledge:friction=0.2` as one word.
    """
    if not isinstance(name, str) or not name or ":" in name:
        raise InputError(f"a body's name must be a word without a colon; got {shorten_repr(name)}")

    def add(definition: Definition) -> Definition:
        if name in _bodies:
            raise InputError(f"a body named {name!r} is registered already")
        frozen = is_dataclass(definition) and definition.__dataclass_params__.frozen  # type: ignore[attr-defined]
        if not (isinstance(definition, type) and frozen and callable(getattr(definition, "advance", None))):
            raise InputError(
                f"the body {name!r} must be a frozen dataclass with advance(); got {shorten_repr(definition)}"
            )
        for field in fields(definition):
            if field.init and field.default is MISSING and field.default_factory is MISSING:
                raise InputError(f"the body {name!r} must have a default for its field {field.name!r}")
        _bodies[name] = definition
        return definition

    return add


def body_names() -> tuple[str, ...]:
    """The names that `make_body` knows."""
    return tuple(_bodies)


def body_class(name: str) -> type[Any]:
    """The class of a body, by its name without options; a clear error if there is none."""
    if name not in _bodies:
        more = ", or one of your own that was registered first (on the command line by --plugin)"
        raise_wrong_choice("body", name, body_names(), more)
    return _bodies[name]


def make_body(name: str, **options: Any) -> AnyBody:
    """The body of that name.

    Args:
        name: such as "double-integrator", or with options, "unicycle:max_turn_rate=2".
        options: its fields.
    """
    if not isinstance(name, str):
        raise InputError(f"a body must be named; got {shorten_repr(name)}")
    head, colon, told = name.partition(":")
    kind = body_class(head)
    # Options in the name and options beside it are the same; no one may be given twice.
    named = parse_options(told) if colon else {}
    for key in named.keys() & options.keys():
        if named[key] != options[key]:
            raise InputError(f"option {key!r} is given twice, as {named[key]!r} in {name!r} and as {options[key]!r}")
    own = [field.name for field in fields(kind) if field.init]
    unknown = sorted({**named, **options}.keys() - set(own))
    if unknown:
        raise InputError(
            f"body {head!r} has no option {unknown[0]!r}; it has {', '.join(own) or 'none'}"
            f"{format_suggestion(unknown[0], own)}"
        )
    try:
        found: AnyBody = kind(**named, **{key: value for key, value in options.items() if key not in named})
    except InputError:
        raise
    except Exception as error:  # whatever a class of somebody else's raises
        raise InputError(f"body {head!r} cannot be made: {type(error).__name__}: {error}") from None
    return found
