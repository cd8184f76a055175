"""One agent's controller as matrices and activations: the common source of all export formats.

A network is a chain of matrices and activations. A law is one matrix and a clamp; its matrix is found by evaluating the
law on unit vectors. Each program is compared with its controller on random observations before anything is written.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError, check_count, shorten_repr
from equiflock.controllers.gain_schedule import GainSchedule, get_gain_schedule
from equiflock.controllers.networks.architecture import obstacle_channel
from equiflock.controllers.networks.chain import ACTIVATION, Chain, build_chain
from equiflock.controllers.networks.compiled import CompiledNetwork
from equiflock.controllers.registry import controller_names, is_module
from equiflock.controllers.safe import unwrap_safe
from equiflock.controllers.safety_limits import SafetyLimits, get_safety_limits
from equiflock.controllers.torch_bridge import as_numpy_function
from equiflock.controllers.unit_scaling import ScaledController
from equiflock.deployment.wire_format import CompactFormat, count_message_bytes
from equiflock.features import Feature, Senses
from equiflock.observations.orbit import Orbit

Activation: TypeAlias = Literal["none", "tanh", "scale_tanh", "scale_log"]
FloatArray: TypeAlias = NDArray[Any]

ACTIVATION_NAMES: tuple[Activation, ...] = ("none", "tanh", "scale_tanh", "scale_log")
"""Activations in the numbering of a chain's table, by the names of their functions in exported files."""
PROBE_TOLERANCE = 1e-4
"""Largest difference between a program and its controller, relative to the largest acceleration (float32 rounding)."""
PROBE_COUNT = 96
"""Number of random observations on which a program is compared with its controller."""


@dataclass(frozen=True, eq=False)
class Layer:
    """A matrix, a bias and the activation of the outputs."""

    weight: FloatArray
    """(outputs, inputs) float32."""
    bias: FloatArray | None
    """(outputs,) float32, or None."""
    activation: Activation


@dataclass(frozen=True, eq=False)
class Program:
    """One agent's controller."""

    name: str
    dimensions: int
    senses: Senses
    acts_on_vectors: bool
    """Whether matrices act on the K C vectors of an agent's observations, not on K C D numbers."""
    input_activation: Activation
    """Activation of the observations, before the first matrix."""
    layers: tuple[Layer, ...]
    """Layers in order; there is an activation between any two of them."""
    clamp: float | None = None
    """Largest acceleration in the controller's units, or None."""
    clamp_by: Literal["norm", "entry"] = "norm"
    acceleration_scale: float = 1.0
    """Factor from the controller's accelerations to the robots' units."""
    orbit: Orbit | None = None
    """Orbit technique, or None: then the nearest obstacle agent counts as an agent at rest."""
    near_obstacle_layers: tuple[Layer, ...] = ()
    """Layers of the same shapes, which agents that know of an obstacle use in place of `layers`; empty if none do."""
    gain_schedule: GainSchedule | None = None
    """Factor on accelerations at the robot's sampling period, in the robots' seconds; None for a constant gain."""
    longest_period: float | None = None
    """Longest sampling period of the controller's training, in the robots' seconds; None if unknown."""
    safety: SafetyLimits | None = None
    """Limits that exported agents keep, or None. A call returns accelerations before the limits."""
    compact: CompactFormat | None = None
    """Version 2 of the message format; None for version 1."""
    own_frames: bool = False
    """Whether `receive` takes the frame of the sender, so that agents need no common one."""

    @property
    def needs_period(self) -> bool:
        """Whether an exported agent needs its sampling period."""
        return self.gain_schedule is not None or self.safety is not None

    @property
    def vector_size(self) -> int:
        """Numbers per input of a matrix: D for vectors, else 1."""
        return self.dimensions if self.acts_on_vectors else 1

    @property
    def features(self) -> list[Feature]:
        """Distinct features of the channels: the mean and the sum of a feature share one sum."""
        return list(dict.fromkeys(self.senses.features))

    @property
    def activations(self) -> set[Activation]:
        """Activations of observations and layers, "none" included."""
        return {self.input_activation, *(layer.activation for layer in self.layers)}

    @property
    def relayed_count(self) -> int:
        """Number of observation values relayed in a message: H C D, where H is K - 1 unless fewer hops are sent."""
        return self.relayed_hops * self.senses.width * self.dimensions

    @property
    def relayed_hops(self) -> int:
        """H, the number of hops in a message."""
        return self.senses.hops - 1 if self.compact is None else self.compact.relayed_hops

    @property
    def packets(self) -> int:
        """Number of packets of a message."""
        return 1 if self.compact is None else self.compact.packets

    @property
    def packet_bytes(self) -> int:
        """Size in bytes of a message, or of each of its packets."""
        if self.compact is None:
            return count_message_bytes(self.senses, self.dimensions)
        return self.compact.packet_bytes

    @property
    def is_equivariant(self) -> bool:
        """Whether rotating all observations rotates the acceleration, so that agents need no common frame."""
        radial = self.acts_on_vectors and "tanh" not in self.activations
        has_bias = any(layer.bias is not None for layer in self.layers + self.near_obstacle_layers)
        return radial and not has_bias and (self.clamp is None or self.clamp_by == "norm")

    @property
    def weights(self) -> dict[str, FloatArray]:
        """Matrices and biases by name: weight_0, bias_0, weight_1, ..; near_weight_0, .. near an obstacle."""
        weights: dict[str, FloatArray] = {}
        for prefix, layers in (("", self.layers), ("near_", self.near_obstacle_layers)):
            for k, layer in enumerate(layers):
                weights[f"{prefix}weight_{k}"] = layer.weight
                if layer.bias is not None:
                    weights[f"{prefix}bias_{k}"] = layer.bias
        return weights

    @property
    def weight_count(self) -> int:
        """Number of entries of all matrices and biases."""
        return sum(array.size for array in self.weights.values())

    @property
    def obstacle_channel(self) -> int:
        """Index of the obstacle channel: agents in which it is not zero in some hop use `near_obstacle_layers`."""
        channel = obstacle_channel(self.senses)
        assert channel is not None
        return channel

    def compute_gain(self, period: float | None) -> float:
        """Return the factor on accelerations at a sampling period; 1 if it is None or there is no gain schedule."""
        return 1.0 if self.gain_schedule is None or period is None else self.gain_schedule(period)

    def __call__(self, observations: FloatArray, period: float | None = None) -> FloatArray:
        """Return what every export computes, before the limits, in float64.

        These are accelerations (.., D) in the robots' units, for observations (.., K, C, D) and a robot with this
        sampling period. Like its controller, a program that is called without a period has the gain 1.
        """
        x = self._select_by_obstacle(observations, lambda layers: self._apply_layers(observations, layers))
        x = x.reshape(*x.shape[:-2], -1)
        if self.clamp is not None and self.clamp_by == "entry":
            x = np.clip(x, -self.clamp, self.clamp)
        elif self.clamp is not None:
            x = x * (self.clamp / np.maximum(np.sqrt(np.square(x).sum(axis=-1, keepdims=True)), self.clamp))
        return x * self.acceleration_scale * self.compute_gain(period)

    def compute_magnitude(self, observations: FloatArray, period: float | None = None) -> FloatArray:
        """Return sum_i |w_i x_i| over the terms of the last matrix, times the gain, (.., D), at least 1.

        In a flock that has nearly settled, accelerations are small differences of large terms, of which float32 keeps
        seven digits. Errors between two implementations of a controller are relative to this sum.
        """

        def sum_terms(layers: tuple[Layer, ...]) -> FloatArray:
            *first, last = layers
            x = np.abs(last.weight.astype(np.float64)) @ np.abs(self._apply_layers(observations, tuple(first)))
            return x if last.bias is None else np.asarray(x + np.abs(last.bias[:, None]))

        x = self._select_by_obstacle(observations, sum_terms)
        return np.maximum(x.reshape(*x.shape[:-2], -1) * self.acceleration_scale * self.compute_gain(period), 1.0)

    def _select_by_obstacle(
        self, observations: FloatArray, compute: Callable[[tuple[Layer, ...]], FloatArray]
    ) -> FloatArray:
        """Return `compute(layers)`, and `compute(near_obstacle_layers)` for agents that know of an obstacle."""
        if not self.near_obstacle_layers:
            return compute(self.layers)
        near_obstacle = (observations[..., self.obstacle_channel, :] != 0.0).any(axis=(-2, -1))
        return np.where(near_obstacle[..., None, None], compute(self.near_obstacle_layers), compute(self.layers))

    def _apply_layers(self, observations: FloatArray, layers: tuple[Layer, ...]) -> FloatArray:
        """Apply the input activation and layers. Return vectors (.., outputs, D), or numbers (.., outputs, 1)."""
        x = observations.astype(np.float64).reshape(*observations.shape[:-3], -1, self.vector_size)
        x = _activate(x, self.input_activation)
        for layer in layers:
            x = layer.weight.astype(np.float64) @ x
            x = _activate(x if layer.bias is None else x + layer.bias[:, None], layer.activation)
        return x


def _activate(x: FloatArray, activation: Activation) -> FloatArray:
    """Apply an activation to vectors x (.., D), or to numbers (.., 1).

    "scale_tanh" is x tanh |x|, "scale_log" is x ln(1 + |x|) / |x|.
    """
    if activation == "none":
        return x
    if activation == "tanh":
        return np.tanh(x)
    norm = np.sqrt(np.square(x).sum(axis=-1, keepdims=True) + 1e-30)
    return np.asarray(x * (np.tanh(norm) if activation == "scale_tanh" else np.log1p(norm) / norm))


def read_program(controller: Any, dimensions: int | None = None, orbit: Orbit | None = None) -> Program:
    """Return the program of a controller, compared with it on random observations; raise InputError if it has none.

    The controller is a network of the package, a module whose attribute `chain` has its layers, or a law whose
    accelerations are a linear function of observations, clamped or not.
    """
    senses = check_local(controller)
    D = resolve_dimensions(controller, dimensions)
    unscaled, scale = unwrap_scaled(controller)
    parts = _read_network(unscaled) if is_network(unscaled) else _read_law(unscaled, senses, D)
    orbit, name = resolve_orbit(controller, orbit, D), get_controller_name(controller)
    safety, sampling = get_safety_limits(controller), read_sampling(controller)
    if safety is not None:
        safety.check_dimensions(D)
    program = Program(name, D, senses, **parts, **sampling, acceleration_scale=scale, orbit=orbit, safety=safety)
    _check_agreement(program, unscaled, senses)
    return program


def read_sampling(controller: Any) -> dict[str, Any]:
    """Return the fields of a Program about the robot's sampling period."""
    longest = getattr(controller, "longest_time_step", None)
    return {
        "gain_schedule": get_gain_schedule(controller),
        "longest_period": longest if isinstance(longest, float) else None,
    }


def unwrap_scaled(controller: Any) -> tuple[Any, float]:
    """Return the controller without limits and unit scaling, and the factor from its accelerations to the robots'."""
    scale, controller = 1.0, unwrap_safe(controller)
    while isinstance(controller, ScaledController):
        scale, controller = scale * controller.acceleration_scale, controller.controller
    return controller, scale


def get_controller_name(controller: Any) -> str:
    """Return the registered name of a controller, or the name of its class."""
    return str(getattr(controller, "name", type(controller).__name__))


def check_local(controller: Any) -> Senses:
    """Return the senses of a local controller. Raise InputError if it is not callable, privileged, or has no `Senses`.

    Also for hop_mean = "sender", which needs an ideal radio.
    """
    if inspect.isclass(controller) or not callable(controller):
        raise InputError(
            f"controller must be a controller, such as equiflock.load('etdagnn'), got {shorten_repr(controller)}"
        )
    name = get_controller_name(controller)
    if getattr(controller, "privileged", False):
        # Some laws have a local variant.
        local = next((each for each in (f"{name}-local", f"{name}-dynamic") if each in controller_names()), "")
        raise InputError(
            f"{name} is privileged: it needs the state of the whole flock, which no robot has; use "
            f"{local and f'{local}, or '}a network trained on it, such as etdagnn"
        )
    senses = getattr(controller, "senses", None)
    if not isinstance(senses, Senses):
        raise InputError(f"{name} must declare senses to run on a robot, such as equiflock.paper_senses()")
    if senses.requires_ideal_radio:
        raise InputError(f'{name} has hop_mean = "sender", but a sender does not know its receivers; use "receiver"')
    return senses


def resolve_dimensions(controller: Any, dimensions: int | None) -> int:
    """Return D of the export: the one the controller is built for, else the given one, else 2."""
    built = getattr(unwrap_scaled(controller)[0], "dimensions", None)
    if dimensions is not None and check_count("dimensions", dimensions) not in (2, 3):
        raise InputError(f"dimensions must be 2 or 3, got {dimensions}")
    if built is not None and dimensions not in (None, built):
        raise InputError(f"{get_controller_name(controller)} is built for D = {built}, got dimensions = {dimensions}")
    return int(built or dimensions or 2)


def resolve_orbit(controller: Any, orbit: Orbit | None, dimensions: int) -> Orbit | None:
    """Return the orbit technique of the export, for D = 2: the given one, else the controller's own, else None."""
    if orbit is not None and not isinstance(orbit, Orbit):
        raise InputError(f"orbit must be an Orbit, such as equiflock.Orbit(), or None, got {shorten_repr(orbit)}")
    if orbit is not None and dimensions != 2:
        raise InputError(f"orbit requires dimensions = 2, got {dimensions}")
    own = getattr(controller, "orbit", None)
    resolved = orbit or (own if isinstance(own, Orbit) else None)
    return resolved if dimensions == 2 else None


def is_network(controller: object) -> bool:
    """Return whether a controller is a compiled network or a torch module."""
    return isinstance(controller, CompiledNetwork) or is_module(type(controller))


def _read_network(network: Any) -> dict[str, Any]:
    """Return the fields of a Program that a network determines. Raise InputError if it has custom layers."""
    chain, near = _build_chains(network)
    if chain is None or (near is not None and _get_chain_shape(near) != _get_chain_shape(chain)):
        raise InputError(
            f"{get_controller_name(network)} is a torch module with custom layers: it can be exported to ONNX (.onnx) "
            "only; C and NumPy need an attribute chain of Conv, EqConv, Tanh, ScaleTanh and ScaleLog of "
            "equiflock.controllers.networks"
        )
    return {
        "acts_on_vectors": chain.acts_on_vectors,
        "input_activation": ACTIVATION_NAMES[chain.input_activation],
        "layers": _read_layers(chain),
        "near_obstacle_layers": () if near is None else _read_layers(near),
    }


def _build_chains(network: Any) -> tuple[Chain | None, Chain | None]:
    """Return the chains of a network, for all agents and for those near an obstacle; None if it has no such layers."""
    if isinstance(network, CompiledNetwork):
        architecture, tensors = network.architecture, network.tensors
        near = build_chain(architecture, tensors, near=True) if architecture.near else None
        return build_chain(architecture, tensors), near
    from torch import nn

    from equiflock.controllers.networks.models import build_module_chain

    chain = build_module_chain(getattr(network, "chain", ()), network.senses)
    # A user's module may use an attribute named `near` for something else.
    near_module = getattr(network, "near", None)
    if chain is None or not isinstance(near_module, nn.Sequential) or obstacle_channel(network.senses) is None:
        return chain, None
    near = build_module_chain(tuple(near_module), network.senses)
    return (None, None) if near is None else (chain, near)


def _get_chain_shape(chain: Chain) -> tuple[Any, ...]:
    """Return what two chains must share to be alternatives: activations and shapes, not the values of weights."""
    shapes = [layer.weight.shape for layer in chain.layers]
    return chain.input_activation, chain.acts_on_vectors, chain.table.tolist(), shapes


def _read_layers(chain: Chain) -> tuple[Layer, ...]:
    """Return the layers of a chain in float32; matrices without an activation between them are multiplied."""
    layers: list[Layer] = []
    weight: FloatArray | None = None
    bias: FloatArray | None = None
    for k, (layer, row) in enumerate(zip(chain.layers, chain.table, strict=True)):
        # Order inputs as in observations: hop by hop.
        matrix = layer.weight.transpose(0, 2, 1).astype(np.float64)
        matrix = matrix.reshape(len(matrix), -1)
        shift: Any = None if layer.bias is None else layer.bias.astype(np.float64)
        # Either all layers of a chain have a bias, or none.
        bias = shift if bias is None else matrix @ bias + shift
        weight = matrix if weight is None else matrix @ weight
        activation = ACTIVATION_NAMES[row[ACTIVATION]]
        if activation != "none" or k + 1 == len(chain.layers):
            layers.append(_make_layer(weight, bias, activation))
            weight = bias = None
    return tuple(layers)


def _make_layer(weight: FloatArray, bias: FloatArray | None, activation: Activation) -> Layer:
    return Layer(weight.astype(np.float32), None if bias is None else bias.astype(np.float32), activation)


def _read_law(law: Any, senses: Senses, D: int) -> dict[str, Any]:
    """Return the fields of a Program that a law determines, from its unclamped values at zero and at unit vectors."""
    has_clamp = is_dataclass(law) and any(each.name == "clamp" for each in fields(law))
    clamp: float | None = law.clamp if has_clamp else None
    unclamped = law if clamp is None else replace(law, clamp=None)
    shape = senses.hops, senses.width, D
    size = int(np.prod(shape))
    # Agent 0 observes zero, every other agent a unit vector.
    units = np.concatenate([np.zeros((1, size)), np.eye(size)]).reshape(1, size + 1, *shape)
    accelerations = _evaluate(unclamped, units.astype(np.float32))[0]
    bias = accelerations[0]
    matrix = (accelerations[1:] - bias).T
    # A rotation-equivariant law has one coefficient per vector, any other a full matrix and a bias.
    coefficients = matrix[:1, ::D]
    equivariant = not bias.any() and np.array_equal(matrix, np.kron(coefficients, np.eye(D)))
    layer = _make_layer(coefficients, None, "none") if equivariant else _make_layer(matrix, bias, "none")
    return {
        "acts_on_vectors": equivariant,
        "input_activation": "none",
        "layers": (layer,),
        "clamp": clamp,
        "clamp_by": getattr(law, "clamp_by", "norm"),
    }


def _evaluate(controller: Any, observations: FloatArray) -> FloatArray:
    """Return a controller's accelerations (B, N, D). Raise InputError if it fails or returns another shape."""
    name, shape = get_controller_name(controller), observations.shape
    compute: Callable[..., Any] = as_numpy_function(controller)
    try:
        accelerations = np.asarray(compute(observations), np.float64)
    except InputError:
        raise
    except Exception as error:  # a user's controller may raise anything
        raise InputError(f"{name} does not accept observations (B, N, K, C, D) = {shape}: {error}") from None
    if accelerations.shape != (*shape[:2], shape[4]):
        raise InputError(f"{name} must return accelerations {(*shape[:2], shape[4])}, got {accelerations.shape}")
    return accelerations


def _check_agreement(program: Program, controller: Any, senses: Senses) -> None:
    """Raise InputError if program and controller differ by more than PROBE_TOLERANCE on random observations.

    Both are in the controller's units and have the gain 1.
    """
    rng = np.random.default_rng(0)
    shape = 1, PROBE_COUNT, senses.hops, senses.width, program.dimensions
    # Observations of all magnitudes, because some functions are linear only for small ones.
    sizes = 10.0 ** rng.uniform(-2.0, 3.0, (1, PROBE_COUNT, 1, 1, 1))
    observations = (rng.normal(size=shape) * sizes).astype(np.float32)
    # Obstacle channels are zero for every other agent, and zero in some hops for the rest.
    cleared = rng.random((*shape[:4], 1)) < 0.5
    cleared[:, ::2] = True
    is_obstacle_channel = np.array([feature.among == "obstacles" for feature in senses.features])
    observations[np.broadcast_to(cleared, shape) & is_obstacle_channel[:, None]] = 0.0
    expected, actual = _evaluate(controller, observations), program(observations) / program.acceleration_scale
    largest_observation = np.abs(observations).max(axis=(2, 3, 4))[..., None]
    scale = np.maximum(np.abs(expected).max(axis=-1, keepdims=True), largest_observation)
    if not (np.abs(actual - expected) <= PROBE_TOLERANCE * np.maximum(scale, 1.0)).all():
        reason, condition = (
            ("does not compute the same as its chain of layers", "")
            if is_network(controller)
            else ("is not a linear function of observations", ", if it is a torch module")
        )
        raise InputError(
            f"{get_controller_name(controller)} {reason}: it can be exported to ONNX (.onnx) only{condition}"
        )
