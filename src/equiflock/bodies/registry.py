"""Registry of bodies. `@body("name")` adds one, `make_body("name")` returns one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar, cast

from equiflock._runtime.registry import Registry
from equiflock._runtime.specs import parse_spec
from equiflock.protocols import AnyBody

BODIES: Registry[type[Any]] = Registry("body")
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
    BODIES.check_new_name(name)

    def add(definition: Definition) -> Definition:
        BODIES.check_class(name, definition, "advance")
        BODIES.parts[name] = definition
        return definition

    return add


def body_names() -> tuple[str, ...]:
    """Return the names that `make_body` accepts."""
    return BODIES.names()


def body_class(name: str) -> type[Any]:
    """Return the class of a body by its name without options; raise InputError if it is unknown."""
    return BODIES.find(name)


def make_body(name: str, **options: Any) -> AnyBody:
    """Return the body of that name; raise InputError if it is unknown or an option is unknown or invalid.

    Args:
        name: name such as "double-integrator", or with options "unicycle:max_turn_rate=2".
        options: fields of the body; an option in the name, too, must have the same value there.
    """
    spec = parse_spec(name)
    definition = body_class(spec.name)
    known = [field.name for field in fields(definition) if field.init]
    return cast(AnyBody, BODIES.construct(spec.name, definition, BODIES.merge_options(spec, options, known)))
