"""Controllers by name. `@register("name")` adds one, `load("name")` makes one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from numpy.typing import NDArray

from equiflock.controllers.trained import TRAINED, trained_weights
from equiflock.types import (
    Controller,
    InputError,
    Messages,
    Neighbourhood,
    OneHop,
    check_choice,
    check_count,
    wrong_choice,
)

_factories: dict[str, Callable[..., Controller]] = {}
Definition = TypeVar("Definition", bound=Callable[..., Any])


@dataclass(frozen=True)
class Law:
    """A local controller that is a plain function of the messages."""

    name: str
    function: Callable[[Messages], NDArray[Any]]
    hops: int
    one_hop: OneHop
    neighbourhood: Neighbourhood

    def __call__(self, messages: Messages) -> NDArray[Any]:
        """Accelerations (B, N, D) from messages (B, N, K, 3, D)."""
        return self.function(messages)


def register(
    name: str, *, hops: int = 1, one_hop: OneHop = "mean", neighbourhood: Neighbourhood = "moving"
) -> Callable[[Definition], Definition]:
    """Add a controller under a name, for `load` and the command line.

    On a function of messages (B, N, K, 3, D) that returns accelerations (B, N, D), the arguments say what it
    needs to hear:

        @ef.register("brake", hops=1, one_hop="mean")
        def brake(messages):
            return -messages[:, :, 0, 0]  # against its velocity relative to its neighbours

    A class is registered as it is, and declares `hops`, `one_hop` and what else it needs itself (see
    `LocalController` and `PrivilegedController`); `load("name", **options)` passes options to it.
    """
    check_count("hops", hops)
    check_choice("one_hop", one_hop, ("sum", "mean"))
    check_choice("neighbourhood", neighbourhood, ("moving", "frozen"))

    def add(definition: Definition) -> Definition:
        if name in names():
            raise InputError(f"a controller named {name!r} is registered already")
        if isinstance(definition, type):
            definition.name = name  # type: ignore[attr-defined]
            _factories[name] = definition
        else:
            _factories[name] = lambda: Law(name, definition, hops, one_hop, neighbourhood)
        return definition

    return add


def names() -> tuple[str, ...]:
    """The names that `load` knows."""
    return (*_factories, *TRAINED)


def registered_modules() -> dict[str, Callable[..., Any]]:
    """Those registered classes that are torch modules."""
    torch = sys.modules.get("torch")  # a module can only come from where torch was imported
    return {
        name: make
        for name, make in _factories.items()
        if torch is not None and isinstance(make, type) and issubclass(make, torch.nn.Module)
    }


def load(name: str | os.PathLike[str], **options: Any) -> Controller:
    """The controller of that name, or from a file of weights, ready to fly.

    `load("tanner")`, `load("tanner", clamp=None)`, `load("etdagnn")`, `load("etdagnn", seed=3)` (that was trained with
    that seed; on the command line `etdagnn:3`), `load("mine.safetensors")`.
    """
    name, options = _with_seed(os.fspath(name), options)
    if name not in names() and not name.endswith(".safetensors"):
        if Path(name).is_dir():
            raise InputError(f"{name} is a folder: name the file of weights in it, such as {name}/weights.safetensors")
        wrong_choice("controller", name, names())
    try:
        if name in TRAINED:
            return _from_file(trained_weights(name, **options))
        if name in _factories:
            return _factories[name](**options)
        return _from_file(name, **options)
    except TypeError as error:
        raise InputError(f"controller {name!r} does not take these options: {error}") from None


def weights_file(name: str, **options: Any) -> Path | None:
    """The file of weights that `load` reads for a name, the package's or one's own; None for whatever has none."""
    name, options = _with_seed(name, options)
    if name in TRAINED:
        return trained_weights(name, **options)
    return Path(name) if name not in _factories and name.endswith(".safetensors") else None


def _with_seed(name: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name and options that `etdagnn:3` stands for; others as they are."""
    network, colon, seed = name.partition(":")
    if network in TRAINED and colon and seed.isdecimal() and not options:
        return network, {"seed": int(seed)}
    return name, options


def _from_file(path: str | os.PathLike[str]) -> Controller:
    from equiflock.controllers.networks import load_network  # torch takes seconds to import

    return cast(Controller, load_network(path))
