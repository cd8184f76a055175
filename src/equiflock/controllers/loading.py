"""Making controllers by name or from a file of weights, and saving their weights."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from equiflock.controllers.controller_options import controller_options
from equiflock.controllers.networks.compiled import CompiledNetwork
from equiflock.controllers.networks.weights import Weights, read_training_radius, read_weights, write_weights
from equiflock.controllers.registry import (
    UNIT_OPTIONS,
    WEIGHTS_SUFFIX,
    controller_names,
    find_describe_function,
    find_factory,
    is_module,
    network_names,
    parse_controller_name,
    split_unit_options,
)
from equiflock.controllers.torch_bridge import accept_numpy, check_float32
from equiflock.controllers.trained import bundled_names, bundled_weights_path
from equiflock.controllers.unit_scaling import ScaledController, scale_controller
from equiflock.protocols import Controller
from equiflock.runtime.checks import InputError, check_count, format_suggestion, raise_wrong_choice, shorten_repr
from equiflock.runtime.extras import require_torch

PLUGIN_HINT = ", or one of your own that was registered first (on the command line by --plugin)"

if TYPE_CHECKING:  # torch takes seconds to import, and is an extra
    from torch import nn


def load(name: str | os.PathLike[str], **options: Any) -> Controller:
    """Return the controller of that name, or of a file of weights, as a function of NumPy arrays.

    A network of the package comes in its compiled form, without torch; `load_module` returns its torch module. A torch
    module of your own comes as it is, and takes and returns NumPy arrays, too.

    `load("tanner")`, `load("tanner", clamp=None)`, `load("etdagnn")`, `load("etdagnn", seed=3)` (trained with
    that seed), `load("mine.safetensors")`. Options may be part of the name, as on the command line: `tanner:clamp=5`,
    and `etdagnn:3` for `etdagnn:seed=3`.

    Two options, which every controller takes, are about the units of the robots that it flies, such as
    `load("etdagnn", comm_radius=5.0, time_scale=15.0)`: the communication radius R for which it is scaled, in the
    robots' unit of length, as its own is the R that it was trained at (1, or what the recipe in a file of weights
    says; 1 for a law); and how many of the robots' seconds one of its own takes. With L = comm_radius / its own R and
    tau = time_scale, r / L and v tau / L go in, and accelerations times L / tau^2 come out.
    """
    if not isinstance(name, (str, os.PathLike)):
        raise InputError(f"a controller must be a name or the path of a file of weights; got {shorten_repr(name)}")
    name, options = parse_controller_name(os.fspath(name), options)
    # A wrong name gets an answer that lists the right ones; a folder is a common slip.
    if name not in controller_names() and not name.endswith(WEIGHTS_SUFFIX):
        if name and Path(name).is_dir():
            raise InputError(f"{name} is a folder: name the file of weights in it, such as {name}/weights.safetensors")
        raise_wrong_choice("controller", name, controller_names(), PLUGIN_HINT)
    units, own = split_unit_options(options)
    try:
        controller = _make_controller(name, own)
    except TypeError as error:
        raise _make_options_error(name, own, error) from None
    if not units:
        return controller
    return scale_controller(controller, _find_training_radius(find_weights_file(name, **own)), **units)


def load_module(name: str | os.PathLike[str], **options: Any) -> nn.Module:
    """Return the torch module of a network, with its trained weights, in its own units.

    Takes the names and files of `load`: `load_module("etdagnn", seed=3)`, `load_module("mine.safetensors")`.
    """
    require_torch("load_module")
    controller = load(name, **options)
    if isinstance(controller, ScaledController):
        raise InputError("a torch module is in its own units: leave out comm_radius and time_scale")
    from equiflock.controllers.networks.models import as_module

    module = as_module(controller)
    if not is_module(type(module)):
        raise InputError(f"{name} has no torch module: expected a network, such as {', '.join(network_names())}")
    return cast("nn.Module", module)


def _make_controller(name: str, options: Mapping[str, Any]) -> Controller:
    """Make the controller of that name in its own units."""
    if name in bundled_names():
        return load_file(bundled_weights_path(name, **options))  # its only option is the seed
    # Registered names go before files: a file of weights ends in .safetensors, which no name may.
    if (make := find_factory(name)) is not None:
        return cast(Controller, make(**options))
    return load_file(name, **options)


def load_file(path: str | os.PathLike[str]) -> Controller:
    """Return the controller of a file of weights: a compiled network of the package, or a user's torch module."""
    weights = read_weights(path)
    if weights.network not in network_names():
        raise InputError(
            f"{path} holds weights of {weights.network!r}; expected one of {', '.join(network_names())}{PLUGIN_HINT}"
        )
    return build_network(weights, path)


def build_network(weights: Weights, path: str | os.PathLike[str] = "a file") -> Controller:
    """Return the controller that these weights are of; `path` names their file in errors."""
    describe = find_describe_function(weights.network)
    if describe is None:
        return cast(Controller, _build_registered_module(weights, path))
    try:
        architecture = describe(**weights.options)
        found = {name: tensor.shape for name, tensor in weights.tensors.items()}
        if found != architecture.tensor_shapes:
            raise InputError(f"expected tensors {architecture.tensor_shapes}; got {found}")
    except (InputError, TypeError) as error:
        raise _make_mismatch_error(path, weights, error) from None
    return CompiledNetwork(architecture, weights.tensors, weights.orbit)


def _build_registered_module(weights: Weights, path: str | os.PathLike[str]) -> nn.Module:
    """Return a registered torch module with these weights."""
    import torch

    try:
        network = make_network(weights.network, **weights.options)
        network.load_state_dict({name: torch.from_numpy(tensor) for name, tensor in weights.tensors.items()})
    except (InputError, RuntimeError, TypeError) as error:
        raise _make_mismatch_error(path, weights, error) from None
    # A user's class may have an attribute of that name for something else.
    if weights.orbit is not None or not hasattr(network, "orbit"):
        network.orbit = weights.orbit  # type: ignore[assignment]
    return network.eval()


def _make_mismatch_error(path: str | os.PathLike[str], weights: Weights, error: Exception) -> InputError:
    reason = str(error).splitlines()[-1].strip()
    return InputError(f"the weights in {path} do not fit {weights.network} with {weights.options}: {reason}")


def _find_training_radius(weights: Path | None) -> float:
    """R in a controller's own unit of length: that of its training, or 1."""
    return 1.0 if weights is None else read_training_radius(weights)


def _make_options_error(name: str, options: Mapping[str, Any], error: TypeError) -> InputError:
    # Most often a name is misspelled: say which there are.
    own = ["seed"] if name in bundled_names() else [option.name for option in controller_options(name)]
    takes = f"its options are {', '.join((*own, *UNIT_OPTIONS))}"
    if own and (unknown := [key for key in options if key not in own]):
        hint = format_suggestion(unknown[0], (*own, *UNIT_OPTIONS))
        return InputError(f"controller {name!r} has no option {unknown[0]!r}; {takes}{hint}")
    return InputError(f"controller {name!r} cannot be made with the options {dict(options)}: {error}; {takes}")


def find_weights_file(name: str, **options: Any) -> Path | None:
    """The file of weights that `load` reads for a name; None for a controller without weights."""
    name, options = parse_controller_name(name, options)
    _, options = split_unit_options(options)
    if name in bundled_names():
        try:
            return bundled_weights_path(name, **options)
        except TypeError as error:
            raise _make_options_error(name, options, error) from None
    return Path(name) if find_factory(name) is None and name.endswith(WEIGHTS_SUFFIX) else None


def has_open_seed(name: str) -> bool:
    """Whether a name is that of bundled weights with their seed left open, such as etdagnn, or etdagnn:time_scale=2."""
    head, options = parse_controller_name(name, {})
    return head in bundled_names() and "seed" not in options


def check_network(name: str) -> None:
    """Raise InputError unless a network of that name can be trained."""
    if name in network_names():
        return
    if name in bundled_names():
        raise InputError(f"{name} is the name of trained weights: train the network itself, such as etdagnn")
    if name in controller_names():
        raise InputError(f"{name} has no weights to train: only a torch module has; choose a network")
    raise_wrong_choice("network", name, network_names(), PLUGIN_HINT)


def make_network(name: str, seed: int = 0, **options: Any) -> nn.Module:
    """Return the torch module of a network with fresh weights.

    Args:
        name: a network of the package (Xavier uniform with gain 1, biases zero if no option says otherwise), or a
            registered torch module of yours; options may be part of it, as for `load`.
        seed: seeds the random initial weights.
        options: for a network of the package, the arguments of `describe_tdagnn` or `describe_etdagnn` in
            `equiflock.controllers.networks.architecture`.
    """
    if check_count("seed", seed, least=0) >= 2**63:
        raise InputError("seed must be below 2^63, as torch takes no larger one")
    name, options = parse_controller_name(name, options)
    check_network(name)
    if units := split_unit_options(options)[0]:
        given = " and ".join(units)
        raise InputError(f"a new network is in its own units: leave out {given}; load scales it once it is trained")
    require_torch("a new network")
    import torch

    # The caller's random numbers are the same afterwards.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            if (describe := find_describe_function(name)) is not None:
                from equiflock.controllers.networks.models import build_module

                return build_module(describe(**options))
            return cast("nn.Module", _find_network_factory(name)(**options))
        except TypeError as error:
            raise InputError(f"network {name!r} cannot be made with the options {options}: {error}") from None


def _find_network_factory(name: str) -> Any:
    """Return what describes or makes the network of that name."""
    return find_describe_function(name) or find_factory(name)


def select_network_options(name: str, **options: Any) -> dict[str, Any]:
    """Return the options that the network of that name takes and that its name does not set already."""
    name, given = parse_controller_name(name, {})
    check_network(name)
    taken = inspect.signature(_find_network_factory(name)).parameters
    return {key: value for key, value in options.items() if key in taken and key not in given}


def save(network: Any, path: str | os.PathLike[str], extra: Mapping[str, Any] | None = None) -> Path:
    """Write the weights of a network for `load`.

    Args:
        network: one that `load` or `load_module` returned, or a registered torch module of yours. Its attribute
            `options`, if it has one, is a dict with the arguments that build it, fit for JSON.
        path: ends in .safetensors; a file of that name is replaced.
        extra: more metadata, fit for JSON.
    """
    if isinstance(network, ScaledController):
        raise InputError("weights are saved in their own units: load them without comm_radius and time_scale first")
    compiled = isinstance(network, CompiledNetwork)
    if not compiled and not is_module(type(network)):
        raise InputError(f"only a network has weights to save; got {shorten_repr(network)}")
    if Path(path).suffix != WEIGHTS_SUFFIX:
        raise InputError(f"the name of a file of weights must end in {WEIGHTS_SUFFIX}; got {Path(path).name!r}")
    if compiled:
        return write_weights(network, path, extra)
    name, options = getattr(network, "name", type(network).__name__), getattr(network, "options", {})
    if name not in network_names():
        raise InputError(f"{name} is not registered, so it could not be loaded: decorate its class with @ef.controller")
    make = _find_network_factory(name)
    # A subclass inherits the name of a registered class, but would be loaded as that class.
    if isinstance(make, type) and type(network) is not make:
        raise InputError(f"{type(network).__name__} is not registered, only the class that it is made of: register it")
    check_float32(network)
    if not all(bool(weight.isfinite().all()) for weight in network.parameters()):
        raise InputError("the weights are not finite")
    # Build the network again from its options, as loading will: a wrong option is found now, not after a training.
    if not _is_same_network(network, make_network(name, **options)):
        raise InputError(
            f"a {name} made with the options {options} is another network than this one: its attribute options must "
            "tell all that builds it again"
        )
    return write_weights(network, path, extra)


def _is_same_network(network: Any, rebuilt: Any) -> bool:
    """Whether two networks have the same senses and, with the weights of the first, give the same accelerations."""
    try:
        rebuilt.load_state_dict(network.state_dict())
    except RuntimeError:  # other names or shapes
        return False
    if network.senses != rebuilt.senses:
        return False
    # Seven agents with random observations are enough to tell two networks apart.
    shape = 1, 7, network.senses.hops, network.senses.width, getattr(network, "dimensions", None) or 2
    observations = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    learning = network.training
    answers = [accept_numpy(type(each)).__call__(each.eval(), observations) for each in (network, rebuilt)]
    # Leave the network in the mode in which it came.
    network.train(learning)
    return np.array_equal(*answers)
