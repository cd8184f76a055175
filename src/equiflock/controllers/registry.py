"""Controllers by name. `@controller("name")` adds one; `equiflock.controllers.loading` makes them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, overload

from numpy.typing import NDArray

from equiflock.controllers.torch_bridge import accept_numpy
from equiflock.controllers.trained import bundled_names
from equiflock.features import Senses, paper_senses
from equiflock.runtime.checks import InputError, shorten_repr
from equiflock.runtime.options import parse_options

WEIGHTS_SUFFIX = ".safetensors"
"""How the name of a file of weights ends."""

UNIT_OPTIONS = ("comm_radius", "time_scale")
"""Options that every controller takes: the units of the robots that it flies (see `equiflock.controllers.unit_scaling`)."""

_factories: dict[str, Callable[..., Any]] = {}
_describe_functions: dict[str, Callable[..., Any]] = {}
"""Functions that describe the networks of the package, each an `Architecture`, by their names."""
Definition = TypeVar("Definition", bound=Callable[..., Any])


@dataclass(frozen=True)
class FunctionController:
    """A controller made of a plain function of the observations, or for an expert of the flock and the observations.

    Attributes:
        name: under which it is registered.
        function: returns accelerations (B, N, D).
        senses: what it observes.
        options: further arguments of the function.
        privileged: whether it is an expert, which is given the flock first.
    """

    name: str
    function: Callable[..., NDArray[Any]]
    senses: Senses
    options: Mapping[str, Any]
    privileged: bool = False

    def __call__(self, *inputs: Any) -> NDArray[Any]:
        """Accelerations (B, N, D) from observations (B, N, K, C, D), or from the flock and its observations."""
        return self.function(*inputs, **self.options)


@overload
def controller(name: Definition) -> Definition: ...


@overload
def controller(
    name: str, *, senses: Senses | None = None, privileged: bool = False
) -> Callable[[Definition], Definition]: ...


def controller(name: Any, *, senses: Senses | None = None, privileged: bool = False) -> Any:
    """Add a controller under a name, for `load`, trainings and the command line.

    It decorates a function of observations (B, N, K, C, D) that returns accelerations (B, N, D). `senses` says which
    observations; if left out, one hop of the means of the paper's three features:

        @ef.controller("brake", senses=ef.Senses(channels=(("velocity", "mean"),), hops=1))
        def brake(observations, gain=1.0):
            return -gain * observations[:, :, 0, 0]  # against the mean velocity relative to its neighbours

    More arguments of the function are options: `load("brake", gain=4)`, and `brake:gain=4` on the command line. A
    `privileged` one, an expert, is a function of the flock and its observations.

    A class is added as it is, and declares `senses`, and `privileged` if it is, itself (see `LocalController` and
    `PrivilegedController`); `load("name", **options)` passes options to it. A torch module takes NumPy arrays from then
    on, too. Without a name, `@ef.controller` takes the definition's own. `comm_radius` and `time_scale` are options of
    every controller, so arguments need other names.
    """
    # `@controller` without parentheses.
    if callable(name) and hasattr(name, "__name__"):
        return controller(name.__name__)(name)
    if not isinstance(name, str) or not name or ":" in name or name.endswith(WEIGHTS_SUFFIX):
        raise InputError(f"a controller's name must be a word without a colon, not a file's; got {shorten_repr(name)}")
    if senses is not None and not isinstance(senses, Senses):
        raise InputError(f"senses must be such as equiflock.paper_senses() or Senses(...); got {shorten_repr(senses)}")

    def add(definition: Definition) -> Definition:
        if name in controller_names():
            raise InputError(f"a controller named {name!r} is registered already")
        if not callable(definition):
            raise InputError(f"a controller must be a function or a class; got {shorten_repr(definition)}")
        if taken := set(UNIT_OPTIONS) & set(_parameter_names(definition)):
            raise InputError(f"{min(taken)} is an option of every controller: that of {name!r} needs another name")
        if isinstance(definition, type):
            if senses is not None or privileged:
                raise InputError(f"the class {definition.__name__} must declare senses and privileged itself")
            # A class declares its own senses; files of weights and figures find its name on it.
            definition.name = name  # type: ignore[attr-defined]
            _factories[name] = accept_numpy(definition) if is_module(definition) else definition
        else:
            needed = paper_senses("mean", hops=1) if senses is None else senses
            # A function is made a controller when it is loaded, as only then its options are known.
            _factories[name] = partial(_make_function_controller, name, definition, needed, privileged)
        return definition

    return add


def _parameter_names(definition: Callable[..., Any]) -> Iterable[str]:
    try:
        return inspect.signature(definition).parameters
    except ValueError:  # some builtins have no signature
        return ()


def _make_function_controller(
    name: str, function: Callable[..., Any], senses: Senses, privileged: bool, /, **options: Any
) -> FunctionController:
    inputs = (None, None) if privileged else (None,)
    inspect.signature(function).bind(*inputs, **options)  # a TypeError unless these are arguments of it
    return FunctionController(name, function, senses, options, privileged)


def register_network(name: str, describe: Callable[..., Any]) -> None:
    """Add a network of the package, whose weights are bundled under the same name."""
    _describe_functions[name] = describe


def find_describe_function(name: str) -> Callable[..., Any] | None:
    """Return the function that describes a network of the package; None if there is none of that name."""
    return _describe_functions.get(name)


def controller_names() -> tuple[str, ...]:
    """The names that `load` knows."""
    bundled = bundled_names()
    return (*(name for name in _factories if name not in bundled), *bundled)


def find_factory(name: str) -> Callable[..., Any] | None:
    """Return the function or class that makes the registered controller of that name; None if there is none."""
    return _factories.get(name)


def find_definition(name: str) -> Callable[..., Any] | None:
    """The class or function that was registered under a name; None if there is none."""
    make = _factories.get(name)
    return make.args[1] if isinstance(make, partial) and make.func is _make_function_controller else make


def network_names() -> tuple[str, ...]:
    """Return the names of the networks of the package and of registered torch modules."""
    own = (name for name, make in _factories.items() if isinstance(make, type) and is_module(make))
    return *_describe_functions, *own


def is_module(definition: type) -> bool:
    """Whether a class is a torch module."""
    torch = sys.modules.get("torch")  # without torch imported, it cannot be a module
    return torch is not None and issubclass(definition, torch.nn.Module)


def is_bundled(name: str) -> bool:
    """Whether a controller of that name, with or without options, comes with the package, and so does all it hears."""
    head = name.partition(":")[0]
    if head in bundled_names():
        return True
    make = _factories.get(head)
    if make is None or not getattr(make, "__module__", "").startswith("equiflock."):
        return False
    try:
        features = make(**split_unit_options(parse_controller_name(name, {})[1])[1]).senses.features
    except (InputError, TypeError):  # whoever loads it says what is wrong
        return True
    # An option may name a feature of a plugin, as the potential of Tanner's laws does.
    return all(feature.weight.__module__.startswith("equiflock.") for feature in features)


def parse_controller_name(name: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Split a name such as `tanner:clamp=5` or `mine.safetensors:comm_radius=5` into name and options.

    Any other name is returned as it is.
    """
    head, colon, told = name.partition(":")
    if colon and head in controller_names():
        return head, {**parse_options(told), **options}
    # The path of a file may have colons of its own.
    head, ending, told = name.rpartition(f"{WEIGHTS_SUFFIX}:")
    if ending and not name.endswith(WEIGHTS_SUFFIX):
        return head + WEIGHTS_SUFFIX, {**parse_options(told), **options}
    return name, dict(options)


def split_unit_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options in two: the units of robots, which every controller takes, and those of the controller itself."""
    own = {key: value for key, value in options.items() if key not in UNIT_OPTIONS}
    return {key: options[key] for key in UNIT_OPTIONS if key in options}, own
