"""Registry of controllers and their options. `@controller("name")` adds one; `controllers.loading` loads it by name."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar, get_args, overload

from numpy.typing import NDArray

from equiflock._runtime.checks import InputError, shorten_repr
from equiflock._runtime.registry import Registry
from equiflock._runtime.specs import (
    SAFE_PATTERN,
    Spec,
    format_spec,
    list_choices,
    parse_options,
    parse_spec,
    read_annotations,
    read_field_docstrings,
)
from equiflock.controllers.gain_schedule import GainSchedule
from equiflock.controllers.torch_bridge import accept_numpy
from equiflock.controllers.trained import bundled_names
from equiflock.features import Senses, paper_senses

WEIGHTS_SUFFIX = ".safetensors"
"""Suffix of weights files."""
UNIT_OPTIONS = ("comm_radius", "time_scale")
"""Options of every controller that set the robots' units (see `equiflock.controllers.unit_scaling`)."""


class RegisteredController(NamedTuple):
    """A registered class or function."""

    definition: Callable[..., Any]
    make: Callable[..., Any]
    """Makes the controller from its options."""


CONTROLLERS: Registry[RegisteredController] = Registry("controller")
Definition = TypeVar("Definition", bound=Callable[..., Any])


@dataclass(frozen=True)
class FunctionController:
    """A controller that is a plain function of observations, or of the flock and observations if privileged."""

    name: str
    function: Callable[..., NDArray[Any]]
    senses: Senses
    options: Mapping[str, Any]
    """Further arguments of the function."""
    privileged: bool = False
    gain_schedule: GainSchedule | None = None

    def __call__(self, *inputs: Any) -> NDArray[Any]:
        """Return accelerations (B, N, D) from observations (B, N, K, C, D), or from the flock and observations."""
        return self.function(*inputs, **self.options)


@overload
def controller(name: Definition) -> Definition: ...


@overload
def controller(
    name: str,
    *,
    senses: Senses | None = None,
    privileged: bool = False,
    gain_schedule: GainSchedule | None = None,
) -> Callable[[Definition], Definition]: ...


def controller(
    name: Any, *, senses: Senses | None = None, privileged: bool = False, gain_schedule: GainSchedule | None = None
) -> Any:
    """Register a controller under a name, for `load`, training and the command line.

    The decorated function takes observations (B, N, K, C, D) and returns accelerations (B, N, D). `senses` declares the
    observations; the default is one hop of the means of the paper's three features:

        @ef.controller("brake", senses=ef.Senses(channels=(("velocity", "mean"),), hops=1))
        def brake(observations, gain=1.0):
            return -gain * observations[:, :, 0, 0]  # against the mean velocity relative to neighbours

    Further arguments of the function are options: `load("brake", gain=4)`, and `brake:gain=4` on the command line. A
    `privileged` function, an expert, takes the flock and the observations. With a `gain_schedule`, flights multiply its
    accelerations by a factor that depends on their time step.

    A class declares `senses`, and `privileged` and `gain_schedule` if they apply, in its body (see `LocalController`
    and `PrivilegedController`); `load("name", **options)` passes options to it. A torch module then also takes NumPy
    arrays. Without a name, `@ef.controller` uses the name of the definition. `comm_radius` and `time_scale` are options
    of every controller, so arguments must have other names.
    """
    # `@controller` without parentheses.
    if callable(name) and hasattr(name, "__name__"):
        return controller(name.__name__)(name)
    CONTROLLERS.check_new_name(name, taken=bundled_names())
    if name.endswith(WEIGHTS_SUFFIX):
        raise InputError(f"the name of a controller must not end in {WEIGHTS_SUFFIX}; got {shorten_repr(name)}")
    if senses is not None and not isinstance(senses, Senses):
        raise InputError(f"senses must be Senses(...) or equiflock.paper_senses(...); got {shorten_repr(senses)}")

    if gain_schedule is not None and not isinstance(gain_schedule, GainSchedule):
        raise InputError(f"gain_schedule must be an equiflock.GainSchedule; got {shorten_repr(gain_schedule)}")

    def add(definition: Definition) -> Definition:
        if not callable(definition):
            raise InputError(f"a controller must be a function or a class; got {shorten_repr(definition)}")
        if taken := set(UNIT_OPTIONS) & set(_read_parameters(definition)):
            raise InputError(f"{min(taken)} is an option of every controller: rename the argument of {name!r}")
        if isinstance(definition, type):
            if senses is not None or privileged or gain_schedule is not None:
                raise InputError(
                    f"the class {definition.__name__} must declare senses, privileged and gain_schedule in its body"
                )
            # Weights files and figures read the name from the class.
            definition.name = name  # type: ignore[attr-defined]
            make: Callable[..., Any] = accept_numpy(definition) if is_module(definition) else definition
        else:
            declared = paper_senses("mean", hops=1) if senses is None else senses
            # The controller is made when it is loaded, because its options are not known before.
            make = partial(_make_function_controller, name, definition, declared, privileged, gain_schedule)
        CONTROLLERS.parts[name] = RegisteredController(definition, make)
        return definition

    return add


def _make_function_controller(
    name: str,
    function: Callable[..., Any],
    senses: Senses,
    privileged: bool,
    gain_schedule: GainSchedule | None,
    /,
    **options: Any,
) -> FunctionController:
    """Return a controller that calls the function with these options; raise TypeError if it does not take them."""
    inspect.signature(function).bind(*(None,) * (1 + privileged), **options)
    return FunctionController(name, function, senses, options, privileged, gain_schedule)


def _read_parameters(definition: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the arguments of a class or function; {} for a builtin without a signature."""
    try:
        return inspect.signature(definition).parameters
    except ValueError:  # some builtins have no signature
        return {}


def controller_names() -> tuple[str, ...]:
    """Return the names that `load` accepts: registered controllers, then bundled weights."""
    return *CONTROLLERS.parts, *bundled_names()


def find_factory(name: str) -> Callable[..., Any] | None:
    """Return what makes a registered controller from its options; None if there is none of that name."""
    return CONTROLLERS.parts[name].make if name in CONTROLLERS.parts else None


def find_definition(name: str) -> Callable[..., Any] | None:
    """Return the class or function that was registered under a name, or None."""
    return CONTROLLERS.parts[name].definition if name in CONTROLLERS.parts else None


def is_module(definition: object) -> bool:
    """Return whether a definition is a class of torch modules."""
    torch = sys.modules.get("torch")  # a class cannot be a module if torch was not imported
    return torch is not None and isinstance(definition, type) and issubclass(definition, torch.nn.Module)


def is_bundled(name: str) -> bool:
    """Return whether a controller, named with or without options, and all its features come with the package.

    False for weights files and unknown names. True if its options are invalid, as `load` reports that.
    """
    try:
        name, options = parse_controller_name(name)
        if name in bundled_names():
            return True
        definition = find_definition(name)
        if definition is None or not getattr(definition, "__module__", "").startswith("equiflock."):
            return False
        features = definition(**split_unit_options(options)[1]).senses.features
    except (InputError, TypeError):  # load reports the error
        return True
    # An option can name a feature of a plugin, such as the potential of Tanner's laws.
    return all(feature.weight.__module__.startswith("equiflock.") for feature in features)


def parse_controller_name(name: str, options: Mapping[str, Any] | None = None) -> Spec:
    """Parse a name such as `tanner:clamp=5` or `mine.safetensors:comm_radius=5`.

    `options` are added, and override those in the name. Other names are returned unchanged, with `options`.
    """
    if name.partition(":")[0] in controller_names():
        spec = parse_spec(name)
    else:
        # The path of a weights file may contain colons.
        path, colon, text = name.rpartition(f"{WEIGHTS_SUFFIX}:")
        is_path = colon and not name.endswith(WEIGHTS_SUFFIX)
        spec = Spec(path + WEIGHTS_SUFFIX, parse_options(text)) if is_path else Spec(name, {})
    return Spec(spec.name, {**spec.options, **(options or {})})


def split_unit_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options into those in `UNIT_OPTIONS`, returned first, and the controller's own."""
    own = {key: value for key, value in options.items() if key not in UNIT_OPTIONS}
    return {key: options[key] for key in UNIT_OPTIONS if key in options}, own


def split_law_options(name: str) -> tuple[str, dict[str, Any]]:
    """Split a name such as `tanner:clamp=5:time_scale=2` into the name without a law's options, and these options.

    `comm_radius` and `time_scale` stay in the name. The name of a network, which has no such options, is returned
    unchanged, with {}.
    """
    spec = parse_controller_name(name)
    if not controller_options(spec.name):
        return name, {}
    units, own = split_unit_options(spec.options)
    return format_spec(spec.name, **units), own


@dataclass(frozen=True)
class ControllerOption:
    """One option of a controller."""

    name: str
    default: Any
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
    if definition is None or is_module(definition):
        return ()
    hints = read_annotations(definition)
    if isinstance(definition, type) and is_dataclass(definition):
        texts = read_field_docstrings(definition)
        return tuple(
            ControllerOption(
                each.name,
                each.default,
                texts.get(each.name, ""),
                hints.get(each.name),
                each.metadata.get(SAFE_PATTERN, ""),
            )
            for each in fields(definition)
            if each.init and each.default is not MISSING
        )
    return tuple(
        ControllerOption(each.name, each.default, hint=hints.get(each.name))
        for each in _read_parameters(definition).values()
        if each.default is not each.empty
    )
