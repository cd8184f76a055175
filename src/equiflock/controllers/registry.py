"""Controllers by name. `@register("name")` adds one, `load("name")` makes one."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from equiflock.checks import InputError, check_choice, check_count, short, wrong_choice
from equiflock.controllers.bridge import check_float32, takes_numpy
from equiflock.controllers.options import read_options
from equiflock.controllers.trained import TRAINED, trained_weights
from equiflock.types import Controller, Messages, Neighbourhood, OneHop

WEIGHTS = ".safetensors"
"""How the name of a file of weights ends."""

_factories: dict[str, Callable[..., Controller]] = {}
Definition = TypeVar("Definition", bound=Callable[..., Any])


@dataclass(frozen=True)
class Law:
    """A local controller that is a plain function of the messages, and perhaps of options."""

    name: str
    function: Callable[..., NDArray[Any]]
    hops: int
    one_hop: OneHop
    neighbourhood: Neighbourhood
    options: Mapping[str, Any]

    def __call__(self, messages: Messages) -> NDArray[Any]:
        """Accelerations (B, N, D) from messages (B, N, K, 3, D)."""
        return self.function(messages, **self.options)


@overload
def register(name: Definition) -> Definition: ...


@overload
def register(
    name: str, *, hops: int = 1, one_hop: OneHop = "mean", neighbourhood: Neighbourhood = "moving"
) -> Callable[[Definition], Definition]: ...


def register(name: Any, *, hops: int = 1, one_hop: OneHop = "mean", neighbourhood: Neighbourhood = "moving") -> Any:
    """Add a controller under a name, for `load` and the command line.

    On a function of messages (B, N, K, 3, D) that returns accelerations (B, N, D), the arguments say what it
    needs to hear:

        @ef.register("brake", hops=1, one_hop="mean")
        def brake(messages, gain=1.0):
            return -gain * messages[:, :, 0, 0]  # against its velocity relative to its neighbours

    More arguments of the function are options: `load("brake", gain=4)`, and `brake:gain=4` on the command line.

    A class is registered as it is, and declares `hops`, `one_hop` and what else it needs itself (see `LocalController`
    and `PrivilegedController`); `load("name", **options)` passes options to it. A torch module takes NumPy arrays from
    then on, too. Without a name, `@ef.register` takes the definition's own.
    """
    if callable(name) and hasattr(name, "__name__"):
        return register(name.__name__)(name)
    if not isinstance(name, str) or not name or ":" in name or name.endswith(WEIGHTS):
        raise InputError(f"a controller's name must be a word without a colon, not a file's; got {short(name)}")
    check_count("hops", hops)
    check_choice("one_hop", one_hop, ("sum", "mean"))
    check_choice("neighbourhood", neighbourhood, ("moving", "frozen"))

    def add(definition: Definition) -> Definition:
        if name in names():
            raise InputError(f"a controller named {name!r} is registered already")
        if not callable(definition):
            raise InputError(f"a controller must be a function or a class; got {short(definition)}")
        if isinstance(definition, type):
            definition.name = name  # type: ignore[attr-defined]
            _factories[name] = takes_numpy(definition) if _is_module(definition) else definition
        else:
            _factories[name] = partial(_law, name, definition, hops, one_hop, neighbourhood)
        return definition

    return add


def _law(
    name: str,
    function: Callable[..., NDArray[Any]],
    hops: int,
    one_hop: OneHop,
    neighbourhood: Neighbourhood,
    /,
    **options: Any,
) -> Law:
    inspect.signature(function).bind(None, **options)  # a TypeError unless these are arguments of it
    return Law(name, function, hops, one_hop, neighbourhood, options)


def names() -> tuple[str, ...]:
    """The names that `load` knows."""
    return (*_factories, *TRAINED)


def registered_modules() -> dict[str, Callable[..., Any]]:
    """Those registered classes that are torch modules."""
    return {name: make for name, make in _factories.items() if isinstance(make, type) and _is_module(make)}


def _is_module(definition: type) -> bool:
    torch = sys.modules.get("torch")  # a module can only come from where torch was imported
    return torch is not None and issubclass(definition, torch.nn.Module)


def load(name: str | os.PathLike[str], **options: Any) -> Controller:
    """The controller of that name, or from a file of weights, ready to fly.

    `load("tanner")`, `load("tanner", clamp=None)`, `load("etdagnn")`, `load("etdagnn", seed=3)` (that was trained with
    that seed), `load("mine.safetensors")`. Options may be part of the name, as on the command line: `tanner:clamp=5`,
    and `etdagnn:3` for `etdagnn:seed=3`.
    """
    if not isinstance(name, (str, os.PathLike)):
        raise InputError(f"a controller must be a name or the path of a file of weights; got {short(name)}")
    name, options = _with_options(os.fspath(name), options)
    if name not in names() and not name.endswith(WEIGHTS):
        if name and Path(name).is_dir():
            raise InputError(f"{name} is a folder: name the file of weights in it, such as {name}/weights.safetensors")
        wrong_choice("controller", name, names())
    try:
        if name in TRAINED:
            return _from_file(trained_weights(name, **options))  # its only option is the seed
        if name in _factories:
            return _factories[name](**options)
        return _from_file(name, **options)
    except TypeError as error:
        raise _wrong_options(name, options, error) from None


def _wrong_options(name: str, options: Mapping[str, Any], error: TypeError) -> InputError:
    return InputError(f"controller {name!r} cannot be made with the options {dict(options)}: {error}")


def save(network: Any, path: str | os.PathLike[str], extra: Mapping[str, Any] | None = None) -> Path:
    """Write the weights of a network, one of the paper's or a registered torch module of one's own, for `load`.

    Args:
        network: what builds it again is its attribute `options`, a dict such as JSON can hold; none if it has no such.
        path: ends in .safetensors; a file of that name is replaced.
        extra: more metadata, such as JSON can hold.
    """
    from equiflock.controllers.networks import NETWORKS, new_network  # torch takes seconds to import
    from equiflock.controllers.weights import write_weights

    if not _is_module(type(network)):
        raise InputError(f"only a torch module has weights to save; got {short(network)}")
    if Path(path).suffix != WEIGHTS:
        raise InputError(f"the name of a file of weights must end in {WEIGHTS}; got {Path(path).name!r}")
    name, options = getattr(network, "name", type(network).__name__), getattr(network, "options", {})
    if name not in NETWORKS | registered_modules():
        raise InputError(f"{name} is not registered, so it could not be loaded: decorate its class with @ef.register")
    own = (NETWORKS | registered_modules())[name]
    if isinstance(own, type) and type(network) is not own:
        raise InputError(f"{type(network).__name__} is not registered, only the class that it is made of: register it")
    check_float32(network)
    if not all(bool(weight.isfinite().all()) for weight in network.parameters()):
        raise InputError("the weights are not finite")
    if not _same(network, new_network(name, **options)):
        raise InputError(
            f"a {name} made with the options {options} is another network than this one: its attribute options must "
            "tell all that builds it again"
        )
    return write_weights(network, path, extra)


def _same(network: Any, again: Any) -> bool:
    """Whether two networks hear alike, and with the weights of the first answer alike."""
    try:
        again.load_state_dict(network.state_dict())
    except RuntimeError:  # other names or shapes
        return False
    declared = "hops", "one_hop", "neighbourhood"
    if any(getattr(network, name, None) != getattr(again, name, None) for name in declared):
        return False
    shape = 1, 7, network.hops, 3, getattr(network, "dimensions", 2)
    messages = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    learning = network.training
    answers = [takes_numpy(type(each)).__call__(each.eval(), messages) for each in (network, again)]
    network.train(learning)
    return np.array_equal(*answers)


def is_bundled(name: str) -> bool:
    """Whether a controller of that name, options or not, comes with the package."""
    head = name.partition(":")[0]
    return head in TRAINED or getattr(_factories.get(head), "__module__", "").startswith("equiflock.")


def weights_file(name: str, **options: Any) -> Path | None:
    """The file of weights that `load` reads for a name, the package's or one's own; None for whatever has none."""
    name, options = _with_options(name, options)
    if name in TRAINED:
        try:
            return trained_weights(name, **options)
        except TypeError as error:
            raise _wrong_options(name, options, error) from None
    return Path(name) if name not in _factories and name.endswith(WEIGHTS) else None


def _with_options(name: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name and options that such as `tanner:clamp=5` stand for; others as they are."""
    head, colon, told = name.partition(":")
    if colon and head in names():
        return head, {**read_options(told), **options}
    return name, options


def _from_file(path: str | os.PathLike[str]) -> Controller:
    from equiflock.controllers.networks import load_network  # torch takes seconds to import

    return cast(Controller, load_network(path))
