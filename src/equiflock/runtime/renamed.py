"""Names of version 0.1, each of which raises an error that names the new one. The changelog has the whole table."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from importlib.abc import MetaPathFinder
from typing import Any, NoReturn, TypeVar

from equiflock.runtime.checks import InputError

Definition = TypeVar("Definition", bound=Callable[..., Any])
Kind = TypeVar("Kind", bound=type[Any])

MODULES = {
    "equiflock.checks": "equiflock.runtime.checks",
    "equiflock.controllers.layers": "equiflock.controllers.networks.layers",
    "equiflock.controllers.tanner": "equiflock.controllers.classical.tanner",
    "equiflock.controllers.tolstaya": "equiflock.controllers.networks.tolstaya",
    "equiflock.course": "equiflock.scenarios.passing",
    "equiflock.flight": "equiflock.simulation.flight and equiflock.simulation.assembly",
    "equiflock.graph": "equiflock.senses.graph",
    "equiflock.imitation": "equiflock.learning",
    "equiflock.initial": "equiflock.scenarios",
    "equiflock.messages": "equiflock.senses.aggregation",
    "equiflock.metrics": "equiflock.simulation.metrics",
    "equiflock.orbit": "equiflock.senses.orbit",
    "equiflock.threads": "equiflock.runtime.threads",
    "equiflock.trajectory": "equiflock.simulation.trajectory",
    "equiflock.types": "equiflock.flock, equiflock.outcomes and equiflock.protocols",
    "equiflock.world": "equiflock.bodies and equiflock.scenarios.disconnection",
}
"""The modules that users had reason to import, and where their content is now."""


class _Moved(MetaPathFinder):
    """The last finder of Python's import, which is asked only for modules that no other finder knows."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname in MODULES:
            raise ModuleNotFoundError(f"{fullname} of version 0.1 is now {MODULES[fullname]}", name=fullname)


def tell_of_moved_modules() -> None:
    """Let the import of a module that has moved raise an error that says where its content is now."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.append(_Moved())


def moved_names(module: str, **places: str) -> Callable[[str], NoReturn]:
    """The `__getattr__` of a module: its names of version 0.1, and the modules that they are in now."""

    def refuse(name: str) -> NoReturn:
        if name in places:
            raise ImportError(f"{name} of {module} in version 0.1 is now in {places[name]}")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return refuse


def renamed_arguments(**names: str) -> Callable[[Definition], Definition]:
    """Decorate a function or class so that arguments of version 0.1 raise an error that names those in their place."""

    def wrap(function: Any, called: str) -> Any:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            if options.keys() & names.keys():
                _refuse(called, names, options)
            return function(*arguments, **options)

        return call

    def decorate(definition: Definition) -> Definition:
        if not isinstance(definition, type):
            wrapped: Definition = wrap(definition, definition.__name__)
            return wrapped
        # A class stays the same class, for isinstance; only the making of objects is wrapped.
        made: Any = definition
        made.__init__ = wrap(made.__init__, made.__name__)
        return definition

    return decorate


def _refuse(called: str, names: Mapping[str, str], options: Mapping[str, object]) -> NoReturn:
    old = next(name for name in names if name in options)
    raise InputError(f"{called} takes {names[old]} in place of {old}, which it took in version 0.1")


def renamed_attributes(**names: str) -> Callable[[Kind], Kind]:
    """Decorate a class so that attributes of version 0.1 raise an error that names the new ones."""

    def decorate(definition: Kind) -> Kind:
        for old, new in names.items():
            refuse = _refusal(definition.__name__, old, new)
            # Setting the old name is refused as well: it would otherwise have no effect, silently.
            setattr(definition, old, property(refuse, refuse))
        return definition

    return decorate


def _refusal(kind: str, old: str, new: str) -> Callable[..., NoReturn]:
    def refuse(*_: object) -> NoReturn:
        raise AttributeError(f"{kind}.{old} of version 0.1 is now {kind}.{new}")

    return refuse
