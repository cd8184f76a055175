"""Registry of bodies. `@body("name")` adds one, `make_body("name")` returns one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar

from equiflock._runtime.checks import InputError, format_suggestion, raise_wrong_choice, shorten_repr
from equiflock._runtime.specs import parse_options
from equiflock.protocols import AnyBody

_bodies: dict[str, type[Any]] = {}
Definition = TypeVar("Definition", bound=type[Any])


def body(name: str) -> Callable[[Definition], Definition]:
    """Register a body under a name, for `make_body` and the command line.

        @ef.body("sledge")
        @dataclass(frozen=True)
        class Sledge:
            friction: float = 0.1

            def advance(self, step): ...

    A body is a frozen dataclass with `advance` (see `BodyStep`), and with `init_state` if it has a state beyond
    position and velocity (see `StatefulBody`). Its fields are its options: `make_body("sledge", friction=0.2)`, or
    `make_body("sledge:friction=0.2")`. Raise InputError if the name is taken, or a field has no default.
    """
    if not isinstance(name, str) or not name or ":" in name:
        raise InputError(f"a body's name must be a non-empty string without a colon; got {shorten_repr(name)}")

    def add(definition: Definition) -> Definition:
        if name in _bodies:
            raise InputError(f"a body named {name!r} is already registered")
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
    """Return the names that `make_body` accepts."""
    return tuple(_bodies)


def body_class(name: str) -> type[Any]:
    """Return the class of a body by its name without options; raise InputError if it is unknown."""
    if name not in _bodies:
        hint = ", or a body that you registered first (on the command line with --plugin)"
        raise_wrong_choice("body", name, body_names(), hint)
    return _bodies[name]


def make_body(name: str, **options: Any) -> AnyBody:
    """Return the body of that name; raise InputError if it is unknown or an option is unknown or invalid.

    Args:
        name: name such as "double-integrator", or with options "unicycle:max_turn_rate=2".
        options: fields of the body; an option in the name, too, must have the same value there.
    """
    if not isinstance(name, str):
        raise InputError(f"the name of a body must be a string; got {shorten_repr(name)}")
    head, colon, text = name.partition(":")
    definition = body_class(head)
    # An option may be given in the name or as an argument, but not with two values.
    named = parse_options(text) if colon else {}
    for key in named.keys() & options.keys():
        if named[key] != options[key]:
            raise InputError(f"option {key!r} is given twice, as {named[key]!r} in {name!r} and as {options[key]!r}")
    known = [field.name for field in fields(definition) if field.init]
    unknown = sorted({**named, **options}.keys() - set(known))
    if unknown:
        raise InputError(
            f"body {head!r} has no option {unknown[0]!r}; it has {', '.join(known) or 'none'}"
            f"{format_suggestion(unknown[0], known)}"
        )
    try:
        result: AnyBody = definition(**named, **{key: value for key, value in options.items() if key not in named})
    except InputError:
        raise
    except Exception as error:  # a user's class may raise anything
        raise InputError(f"body {head!r} cannot be made: {type(error).__name__}: {error}") from None
    return result
