"""Loading controllers by name or from a weights file, and saving weights."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from equiflock._runtime.checks import InputError, check_count, format_names, format_suggestion, shorten_repr
from equiflock._runtime.imports import require_torch
from equiflock.controllers.networks.architecture import GAIN_PERIOD, NETWORKS
from equiflock.controllers.networks.compiled import CompiledNetwork
from equiflock.controllers.networks.weights import Weights, read_training_radius, read_weights, write_weights
from equiflock.controllers.registry import (
    CONTROLLERS,
    UNIT_OPTIONS,
    WEIGHTS_SUFFIX,
    controller_names,
    controller_options,
    find_factory,
    is_bundled,
    is_module,
    parse_controller_name,
    split_unit_options,
)
from equiflock.controllers.torch_bridge import accept_numpy, check_float32
from equiflock.controllers.trained import bundled_names, bundled_weights_path
from equiflock.controllers.unit_scaling import ScaledController, scale_controller
from equiflock.protocols import Controller

if TYPE_CHECKING:  # torch takes seconds to import, and is an extra
    from torch import nn


def load(name: str | os.PathLike[str], **options: Any) -> Controller:
    """Return a controller, by its name or weights file, as a function of NumPy arrays.

    A network of the package is returned in its compiled form, without torch; `load_module` returns its torch module. A
    registered torch module is returned as a module that also takes and returns NumPy arrays.

    Examples: `load("tanner")`, `load("tanner", clamp=None)`, `load("etdagnn")`, `load("etdagnn", seed=3)` (trained with
    that seed), `load("mine.safetensors")`. Options can be part of the name, as on the command line: `tanner:clamp=5`,
    and `etdagnn:3` for `etdagnn:seed=3`. Raise InputError if the name or an option is unknown, or a file is damaged.

    Every controller takes two options that scale it to the units of a robot, as in
    `load("etdagnn", comm_radius=5.0, time_scale=15.0)`: `comm_radius` is the robots' communication radius in their unit
    of length, and `time_scale` the number of the robots' seconds per second of the controller. The controller's own R
    is that of its training (from the recipe in its weights file), or 1. With L = comm_radius / own R and
    tau = time_scale, inputs are r / L and v tau / L, and outputs are accelerations times L / tau^2.
    """
    if not isinstance(name, (str, os.PathLike)):
        raise InputError(f"a controller must be a name or the path of a weights file; got {shorten_repr(name)}")
    name, options = parse_controller_name(os.fspath(name), options)
    # The error for an unknown name lists the known ones; naming a directory is a common mistake.
    if name not in controller_names() and not name.endswith(WEIGHTS_SUFFIX):
        if os.path.isdir(name):  # noqa: PTH112  # Path raises OSError for a long name
            raise InputError(f"{name} is a directory: name the weights file in it, such as {name}/weights.safetensors")
        CONTROLLERS.raise_unknown(name, controller_names())
    units, own = split_unit_options(options)
    try:
        controller = _make_controller(name, own)
    except TypeError as error:
        raise _make_options_error(name, own, error) from None
    if not units:
        return controller
    file = find_weights_file(name, **own)
    return scale_controller(controller, 1.0 if file is None else read_training_radius(file), **units)


def load_module(name: str | os.PathLike[str], **options: Any) -> nn.Module:
    """Return the torch module of a network, with its trained weights, in its own units.

    Takes the names and files of `load`: `load_module("etdagnn", seed=3)`, `load_module("mine.safetensors")`. Raise
    InputError if the controller is no network, or if `comm_radius` or `time_scale` scale it.
    """
    require_torch("load_module")
    controller = load(name, **options)
    if isinstance(controller, ScaledController):
        raise InputError("load_module does not scale torch modules: omit comm_radius and time_scale")
    from equiflock.controllers.networks.models import as_module

    module = as_module(controller)
    if not is_module(type(module)):
        raise InputError(f"{name} has no torch module: expected a network, such as {', '.join(network_names())}")
    return cast("nn.Module", module)


def _make_controller(name: str, options: Mapping[str, Any]) -> Controller:
    """Return the controller of that name in its own units: bundled weights, a registered one, or a weights file."""
    if name in bundled_names():
        return load_file(bundled_weights_path(name, **options))  # its only option is the seed
    # Registered names take precedence: a weights file ends in .safetensors, which no registered name does.
    if (make := find_factory(name)) is not None:
        return cast(Controller, make(**options))
    return load_file(name, **options)


def load_file(path: str | os.PathLike[str]) -> Controller:
    """Return the controller of a weights file: a compiled network of the package, or a user's torch module."""
    weights = read_weights(path)
    if weights.network not in network_names():
        raise InputError(
            f"{path} holds weights of {weights.network!r}; expected one of {', '.join(network_names())}"
            f"{CONTROLLERS.plugin_hint}"
        )
    return build_network(weights, path)


def build_network(weights: Weights, path: str | os.PathLike[str] = "a file") -> Controller:
    """Return the network with these weights: compiled, or a user's torch module in evaluation mode.

    Raise InputError, which mentions `path`, if names or shapes of the tensors do not fit the network and its options.
    """
    describe = NETWORKS.get(weights.network)
    try:
        return _build_registered_module(weights) if describe is None else _build_compiled(describe, weights)
    except (InputError, RuntimeError, TypeError) as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(
            f"the weights in {path} do not fit {weights.network} with {weights.options}: {reason}"
        ) from None


def _build_compiled(describe: Callable[..., Any], weights: Weights) -> CompiledNetwork:
    """Return the compiled network with these weights; raise InputError or TypeError if they do not fit."""
    # Files of version 0.2 have no gain schedule, although new networks of that name may have one.
    architecture = describe(**{GAIN_PERIOD: None, **weights.options})
    shapes = {name: tensor.shape for name, tensor in weights.tensors.items()}
    if shapes != architecture.tensor_shapes:
        raise InputError(f"expected tensors {architecture.tensor_shapes}; got {shapes}")
    return CompiledNetwork(architecture, weights.tensors, weights.orbit, weights.longest_time_step)


def _build_registered_module(weights: Weights) -> Any:
    """Return a user's torch module with these weights, in evaluation mode, with their orbit technique as `orbit`."""
    import torch

    network = make_network(weights.network, **weights.options)
    network.load_state_dict({name: torch.from_numpy(tensor) for name, tensor in weights.tensors.items()})
    # A user's class may use an attribute of this name for another purpose.
    if weights.orbit is not None or not hasattr(network, "orbit"):
        network.orbit = weights.orbit  # type: ignore[assignment]
    return network.eval()


def _make_options_error(name: str, options: Mapping[str, Any], error: TypeError) -> InputError:
    """Return an error about the first unknown option, or about `error` if all are known; it lists the options."""
    own = ["seed"] if name in bundled_names() else [option.name for option in controller_options(name)]
    takes = f"its options are {format_names((*own, *UNIT_OPTIONS))}"
    if own and (unknown := [key for key in options if key not in own]):
        hint = format_suggestion(unknown[0], (*own, *UNIT_OPTIONS))
        return InputError(f"controller {name!r} has no option {shorten_repr(unknown[0])}; {takes}{hint}")
    return InputError(f"controller {name!r} cannot be made with the options {dict(options)}: {error}; {takes}")


def find_weights_file(name: str, **options: Any) -> Path | None:
    """Return the weights file that `load` reads for a name; None for a registered or unknown controller.

    The user's own file need not exist. Raise InputError if there are no bundled weights of that seed.
    """
    name, options = parse_controller_name(name, options)
    options = split_unit_options(options)[1]
    if name in bundled_names():
        try:
            return bundled_weights_path(name, **options)
        except TypeError as error:
            raise _make_options_error(name, options, error) from None
    return Path(name) if find_factory(name) is None and name.endswith(WEIGHTS_SUFFIX) else None


def read_own_radius(name: str) -> float | None:
    """Return the R that a controller is for, in the flock's unit of length; None for a user's law, whose R is unknown.

    It is the option `comm_radius`, or the R of the training of its weights, or 1 for a law of the package.
    """
    units, own = split_unit_options(parse_controller_name(name).options)
    if "comm_radius" in units:
        return float(units["comm_radius"])
    if (file := find_weights_file(name, **own)) is not None:
        return read_training_radius(file)
    return 1.0 if is_bundled(name) else None


def has_open_seed(name: str) -> bool:
    """Return whether a name refers to bundled weights without a seed, such as etdagnn or etdagnn:time_scale=2."""
    head, options = parse_controller_name(name)
    return head in bundled_names() and "seed" not in options


def network_names() -> tuple[str, ...]:
    """Return the names of the networks of the package and of registered torch modules."""
    return *NETWORKS, *(name for name, (definition, _) in CONTROLLERS.parts.items() if is_module(definition))


def check_network(name: str) -> None:
    """Raise InputError if no network has that name, without options: it is unknown, a law, or names trained weights."""
    if name in network_names():
        return
    if name in bundled_names():
        raise InputError(f"{name} names trained weights: name the network to train, such as etdagnn")
    if name in controller_names():
        raise InputError(f"{name} has no weights to train: choose a network, such as etdagnn")
    CONTROLLERS.raise_unknown(name, network_names(), "network")


def make_network(name: str, seed: int = 0, **options: Any) -> nn.Module:
    """Return the torch module of a network with random initial weights; torch's random state is unchanged.

    `name` is a registered torch module or a network of the package (Xavier uniform with gain 1, zero biases by
    default), whose options are the arguments of `describe_tdagnn` or `describe_etdagnn` in `networks.architecture`.
    """
    if check_count("seed", seed, least=0) >= 2**63:
        raise InputError(f"seed must be below 2^63, the limit of torch; got {seed}")
    name, options = parse_controller_name(name, options)
    check_network(name)
    if units := split_unit_options(options)[0]:
        given = " and ".join(units)
        raise InputError(f"a new network cannot be scaled: omit {given}, and pass them to load after training")
    require_torch("a new network")
    import torch

    # Leave the caller's random state unchanged.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            if (describe := NETWORKS.get(name)) is not None:
                from equiflock.controllers.networks.models import build_module

                return build_module(describe(**options))
            return cast("nn.Module", _find_network_factory(name)(**options))
        except TypeError as error:
            raise InputError(f"network {name!r} cannot be made with the options {options}: {error}") from None


def _find_network_factory(name: str) -> Any:
    """Return the function that describes a network of the package, or else the registered class of that name."""
    return NETWORKS.get(name) or find_factory(name)


def select_network_options(name: str, **options: Any) -> dict[str, Any]:
    """Return those of `options` that the network takes and that its name, as in `etdagnn:hops=2`, does not set."""
    name, named = parse_controller_name(name)
    check_network(name)
    parameters = inspect.signature(_find_network_factory(name)).parameters
    return {key: value for key, value in options.items() if key in parameters and key not in named}


def save(network: Any, path: str | os.PathLike[str], extra: Mapping[str, Any] | None = None) -> Path:
    """Write the weights of a network for `load`, atomically, and return the path.

    The network is one of `load` or `load_module`, or a registered torch module, whose attribute `options`, if it has
    one, is a JSON-serializable dict of the arguments that build it. `extra` is more metadata. Raise InputError if
    `load` could not restore the network: it is scaled, not registered or not float32, has weights that are not finite,
    or differs from the network that its `options` build; or if `path` does not end in .safetensors.
    """
    if isinstance(network, ScaledController):
        raise InputError("save does not store comm_radius and time_scale: load the network without them, then save it")
    compiled = isinstance(network, CompiledNetwork)
    if not compiled and not is_module(type(network)):
        raise InputError(f"save needs a network; got {shorten_repr(network)}")
    if Path(path).suffix != WEIGHTS_SUFFIX:
        raise InputError(f"the name of a weights file must end in {WEIGHTS_SUFFIX}; got {Path(path).name!r}")
    if compiled:
        return write_weights(network, path, extra)
    name, options = getattr(network, "name", type(network).__name__), getattr(network, "options", {})
    if name not in network_names():
        raise InputError(f"{name} is not registered, so load would not find it: decorate its class with @ef.controller")
    make = _find_network_factory(name)
    # A subclass of a registered class inherits its name, but would be loaded as the registered class.
    if isinstance(make, type) and type(network) is not make:
        raise InputError(
            f"{type(network).__name__} is not registered, only its base class: decorate it with @ef.controller"
        )
    check_float32(network)
    if not all(bool(weight.isfinite().all()) for weight in network.parameters()):
        raise InputError("the weights must be finite; got NaN or infinity")
    # Rebuild the network from its options, as load will, so that a wrong option raises here.
    if not _is_same_network(network, make_network(name, **options)):
        raise InputError(
            f"a {name} built with the options {options} differs from this network: its attribute `options` must hold "
            "all arguments that build it"
        )
    return write_weights(network, path, extra)


def _is_same_network(network: Any, rebuilt: Any) -> bool:
    """Return whether both networks have the same senses and, with the weights of `network`, the same function."""
    try:
        rebuilt.load_state_dict(network.state_dict())
    except RuntimeError:  # different names or shapes
        return False
    if network.senses != rebuilt.senses:
        return False
    # Random observations of seven agents distinguish two functions.
    shape = 1, 7, network.senses.hops, network.senses.width, getattr(network, "dimensions", None) or 2
    observations = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    training = network.training
    results = [accept_numpy(type(module)).__call__(module.eval(), observations) for module in (network, rebuilt)]
    network.train(training)
    return np.array_equal(*results)
