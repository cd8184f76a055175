"""Registry of controllers. `@controller("name")` adds one; `equiflock.controllers.loading` loads them by name."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import partial
from typing import Any, TypeVar, get_args, overload

from numpy.typing import NDArray

from equiflock._runtime.checks import InputError, shorten_repr
from equiflock._runtime.specs import SAFE_PATTERN, list_choices, parse_options, read_annotations, read_field_docstrings
from equiflock.controllers.torch_bridge import accept_numpy
from equiflock.controllers.trained import bundled_names
from equiflock.features import Senses, paper_senses

# Options of a controller, read from the class or function that defines it.


@dataclass(frozen=True)
class ControllerOption:
    """One option of a controller."""

    name: str
    """Name for `load` and the command line."""
    default: Any
    """Default value."""
    help: str = ""
    """Description: the docstring below the field of a dataclass."""
    hint: Any = None
    """Type annotation, if there is one."""
    safe_pattern: str = ""
    """Regular expression for words, besides the choices, that a live page may set; empty for none."""

    @property
    def choices(self) -> tuple[str, ...]:
        """Allowed words, if the type is a `Literal` of words or a union with one; otherwise empty."""
        return list_choices(self.hint)

    def is_safe(self, word: str) -> bool:
        """Return whether a live page may set this word: it is a choice, or `safe_pattern` matches it."""
        return word in self.choices or re.fullmatch(self.safe_pattern or "(?!)", word) is not None

    @property
    def may_be_none(self) -> bool:
        """Whether None is allowed."""
        return self.default is None or type(None) in get_args(self.hint)


def controller_options(name: str) -> tuple[ControllerOption, ...]:
    """Return the options of a controller that have a default: fields of a dataclass, or arguments.

    `comm_radius` and `time_scale`, which every controller takes, are omitted. Networks have no options here, as their
    options describe another network, without trained weights. Unregistered names have none either.
    """
    definition = None if name in bundled_names() else find_definition(name)
    if definition is None or (isinstance(definition, type) and is_module(definition)):
        return ()
    hints = read_annotations(definition)
    texts: dict[str, str] = {}
    patterns: dict[str, str] = {}
    if isinstance(definition, type) and is_dataclass(definition):
        texts = read_field_docstrings(definition)
        own = fields(definition)
        patterns = {field.name: field.metadata.get(SAFE_PATTERN, "") for field in own}
        defaults = {field.name: field.default for field in own if field.init and field.default is not MISSING}
    else:
        defaults = _read_defaults(definition)
    return tuple(
        ControllerOption(name, default, texts.get(name, ""), hints.get(name), patterns.get(name, ""))
        for name, default in defaults.items()
    )


def _read_defaults(definition: Callable[..., Any]) -> dict[str, Any]:
    """Return the arguments that have a default, in their order; {} for a builtin without a signature."""
    try:
        parameters = inspect.signature(definition).parameters.values()
    except ValueError:  # some builtins have no signature
        return {}
    return {parameter.name: parameter.default for parameter in parameters if parameter.default is not parameter.empty}


def split_law_options(name: str) -> tuple[str, dict[str, Any]]:
    """Split a name such as `tanner:clamp=5:time_scale=2` into the name without a law's options, and these options.

    `comm_radius` and `time_scale` stay in the name. A name without a colon or of a controller without options of its
    own, such as a network, is returned unchanged, with {}.
    """
    head, colon, text = name.partition(":")
    if not colon or not controller_options(head):
        return name, {}
    options = {key: value for key, value in parse_options(text).items() if key not in UNIT_OPTIONS}
    units = [part for part in text.split(":") if part.partition("=")[0] in UNIT_OPTIONS]
    return ":".join([head, *units]), options


WEIGHTS_SUFFIX = ".safetensors"
"""Suffix of weights files."""

UNIT_OPTIONS = ("comm_radius", "time_scale")
"""Options of every controller that set the robots' units (see `equiflock.controllers.unit_scaling`)."""

_factories: dict[str, Callable[..., Any]] = {}
_describe_functions: dict[str, Callable[..., Any]] = {}
"""Functions that return the `Architecture` of a network of the package, by name."""
Definition = TypeVar("Definition", bound=Callable[..., Any])


@dataclass(frozen=True)
class FunctionController:
    """A controller that is a plain function of observations, or of the flock and observations if privileged.

    Attributes:
        name: registered name.
        function: returns accelerations (B, N, D).
        senses: the observations it needs.
        options: further arguments of the function.
        privileged: whether the flock is the first argument.
    """

    name: str
    function: Callable[..., NDArray[Any]]
    senses: Senses
    options: Mapping[str, Any]
    privileged: bool = False

    def __call__(self, *inputs: Any) -> NDArray[Any]:
        """Return accelerations (B, N, D) from observations (B, N, K, C, D), or from the flock and observations."""
        return self.function(*inputs, **self.options)


@overload
def controller(name: Definition) -> Definition: ...


@overload
def controller(
    name: str, *, senses: Senses | None = None, privileged: bool = False
) -> Callable[[Definition], Definition]: ...


def controller(name: Any, *, senses: Senses | None = None, privileged: bool = False) -> Any:
    """Register a controller under a name, for `load`, training and the command line.

    The decorated function takes observations (B, N, K, C, D) and returns accelerations (B, N, D). `senses` declares the
    observations; the default is one hop of the means of the paper's three features:

        @ef.controller("brake", senses=ef.Senses(channels=(("velocity", "mean"),), hops=1))
        def brake(observations, gain=1.0):
            return -gain * observations[:, :, 0, 0]  # against the mean velocity relative to neighbours

    Further arguments of the function are options: `load("brake", gain=4)`, and `brake:gain=4` on the command line. A
    `privileged` function, an expert, takes the flock and the observations.

    A class declares `senses`, and `privileged` if it applies, in its body (see `LocalController` and
    `PrivilegedController`); `load("name", **options)` passes options to it. A torch module then also takes NumPy
    arrays. Without a name, `@ef.controller` uses the name of the definition. `comm_radius` and `time_scale` are options
    of every controller, so arguments must have other names.
    """
    # `@controller` without parentheses.
    if callable(name) and hasattr(name, "__name__"):
        return controller(name.__name__)(name)
    if not isinstance(name, str) or not name or ":" in name or name.endswith(WEIGHTS_SUFFIX):
        raise InputError(f"a controller's name must have no colon and no {WEIGHTS_SUFFIX}; got {shorten_repr(name)}")
    if senses is not None and not isinstance(senses, Senses):
        raise InputError(f"senses must be Senses(...) or equiflock.paper_senses(...); got {shorten_repr(senses)}")

    def add(definition: Definition) -> Definition:
        if name in controller_names():
            raise InputError(f"a controller named {name!r} is already registered")
        if not callable(definition):
            raise InputError(f"a controller must be a function or a class; got {shorten_repr(definition)}")
        if taken := set(UNIT_OPTIONS) & set(_parameter_names(definition)):
            raise InputError(f"{min(taken)} is an option of every controller: rename the argument of {name!r}")
        if isinstance(definition, type):
            if senses is not None or privileged:
                raise InputError(f"the class {definition.__name__} must declare senses and privileged in its body")
            # Weights files and figures read the name from the class.
            definition.name = name  # type: ignore[attr-defined]
            _factories[name] = accept_numpy(definition) if is_module(definition) else definition
        else:
            declared = paper_senses("mean", hops=1) if senses is None else senses
            # The controller is made when it is loaded, because its options are not known before.
            _factories[name] = partial(_make_function_controller, name, definition, declared, privileged)
        return definition

    return add


def _parameter_names(definition: Callable[..., Any]) -> Iterable[str]:
    """Return the names of all arguments; () for a builtin without a signature."""
    try:
        return inspect.signature(definition).parameters
    except ValueError:  # some builtins have no signature
        return ()


def _make_function_controller(
    name: str, function: Callable[..., Any], senses: Senses, privileged: bool, /, **options: Any
) -> FunctionController:
    """Return a controller that calls the function with these options; raise TypeError if it does not take them."""
    inputs = (None, None) if privileged else (None,)
    inspect.signature(function).bind(*inputs, **options)  # raises TypeError if these are not its arguments
    return FunctionController(name, function, senses, options, privileged)


def register_network(name: str, describe: Callable[..., Any]) -> None:
    """Register the function `describe`, which returns the `Architecture` of a network of the package."""
    _describe_functions[name] = describe


def find_describe_function(name: str) -> Callable[..., Any] | None:
    """Return the function that describes a network of the package, or None."""
    return _describe_functions.get(name)


def controller_names() -> tuple[str, ...]:
    """Return the names that `load` accepts: registered controllers, then bundled weights."""
    bundled = bundled_names()
    return (*(name for name in _factories if name not in bundled), *bundled)


def find_factory(name: str) -> Callable[..., Any] | None:
    """Return what makes a registered controller from its options, a class or a partial; None if there is none."""
    return _factories.get(name)


def find_definition(name: str) -> Callable[..., Any] | None:
    """Return the class or function that was registered under a name, or None."""
    make = _factories.get(name)
    return make.args[1] if isinstance(make, partial) and make.func is _make_function_controller else make


def network_names() -> tuple[str, ...]:
    """Return the names of the networks of the package and of registered torch modules."""
    modules = (name for name, make in _factories.items() if isinstance(make, type) and is_module(make))
    return *_describe_functions, *modules


def is_module(definition: type) -> bool:
    """Return whether a class is a torch module."""
    torch = sys.modules.get("torch")  # a class cannot be a module if torch was not imported
    return torch is not None and issubclass(definition, torch.nn.Module)


def is_bundled(name: str) -> bool:
    """Return whether a controller, named with or without options, and all its features come with the package.

    False for weights files and unknown names. True if its options are invalid, as `load` reports that.
    """
    head = name.partition(":")[0]
    if head in bundled_names():
        return True
    make = _factories.get(head)
    if make is None or not getattr(make, "__module__", "").startswith("equiflock."):
        return False
    try:
        features = make(**split_unit_options(parse_controller_name(name, {})[1])[1]).senses.features
    except (InputError, TypeError):  # load reports the error
        return True
    # An option can name a feature of a plugin, such as the potential of Tanner's laws.
    return all(feature.weight.__module__.startswith("equiflock.") for feature in features)


def parse_controller_name(name: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Split a name such as `tanner:clamp=5` or `mine.safetensors:comm_radius=5` into name and options.

    `options` are added, and override those in the name. Other names are returned unchanged, with `options`.
    """
    head, colon, text = name.partition(":")
    if colon and head in controller_names():
        return head, {**parse_options(text), **options}
    # A file path may contain colons.
    head, suffix, text = name.rpartition(f"{WEIGHTS_SUFFIX}:")
    if suffix and not name.endswith(WEIGHTS_SUFFIX):
        return head + WEIGHTS_SUFFIX, {**parse_options(text), **options}
    return name, dict(options)


def split_unit_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options into those in `UNIT_OPTIONS`, returned first, and the controller's own."""
    own = {key: value for key, value in options.items() if key not in UNIT_OPTIONS}
    return {key: options[key] for key in UNIT_OPTIONS if key in options}, own
