"""One agent's controller as numbers: what every form that it is exported in is written from.

A network is a chain of matrices and activations; a law is one matrix and a clamp, read off by asking the law. Whatever
is read is compared with the controller itself on random observations before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from equiflock.controllers.networks.architecture import obstacle_channel
from equiflock.controllers.networks.chain import ACTIVATION, Chain, build_chain
from equiflock.controllers.networks.compiled import CompiledNetwork
from equiflock.controllers.registry import is_module
from equiflock.controllers.torch_bridge import as_numpy_function
from equiflock.deployment.export.export_checks import (
    check_local,
    get_controller_name,
    resolve_dimensions,
    resolve_orbit,
    unwrap_scaled,
)
from equiflock.features import Senses
from equiflock.orbit_technique import Orbit
from equiflock.runtime.checks import InputError

Activation: TypeAlias = Literal["none", "tanh", "scale-tanh", "scale-log"]
ClampBy: TypeAlias = Literal["norm", "entry"]
FloatArray: TypeAlias = NDArray[Any]

ACTIVATION_NAMES: tuple[Activation, ...] = ("none", "tanh", "scale-tanh", "scale-log")
"""Activations as the table of a chain numbers them."""
PROBE_TOLERANCE = 1e-4
"""How far what was read may be from the controller, relative to the largest acceleration: float32, but the same."""
PROBE_COUNT = 96
"""So many random observations are compared."""


@dataclass(frozen=True, eq=False)
class Layer:
    """One matrix, and what follows it.

    Attributes:
        weight: (outputs, inputs) float32.
        bias: (outputs,) float32, or None.
        activation: of what the matrix makes.
    """

    weight: FloatArray
    bias: FloatArray | None
    activation: Activation


@dataclass(frozen=True, eq=False)
class Program:
    """One agent's controller.

    Attributes:
        name: of the controller.
        dimensions: D.
        senses: its channels and hops, and the units that it senses in.
        acts_on_vectors: whether matrices act on the K C vectors of an agent's observations, rather than on K C D numbers.
        input_activation: the activation of the observations, before the first matrix.
        layers: matrices in their order; between any two of them is an activation.
        clamp: the largest acceleration, in the controller's units, or None.
        clamp_by: whether the norm is clamped, or every entry.
        acceleration_scale: the factor to the units of the robots.
        orbit: the technique by which it avoids obstacles, or None: then the nearest just stands still.
        near_obstacle_layers: matrices of the same shapes, by which agents that know of an obstacle decide in place of `layers`; none if
            all decide alike.
    """

    name: str
    dimensions: int
    senses: Senses
    acts_on_vectors: bool
    input_activation: Activation
    layers: tuple[Layer, ...]
    clamp: float | None = None
    clamp_by: ClampBy = "norm"
    acceleration_scale: float = 1.0
    orbit: Orbit | None = None
    near_obstacle_layers: tuple[Layer, ...] = ()

    @property
    def vector_size(self) -> int:
        """How many numbers an input of a matrix is: D of a vector, or one."""
        return self.dimensions if self.acts_on_vectors else 1

    @property
    def relayed_count(self) -> int:
        """How many numbers of its observations an agent passes on, (K - 1) C D."""
        return (self.senses.hops - 1) * self.senses.width * self.dimensions

    @property
    def weight_count(self) -> int:
        """How many numbers the matrices and biases are."""
        layers = *self.layers, *self.near_obstacle_layers
        return sum(layer.weight.size + (0 if layer.bias is None else layer.bias.size) for layer in layers)

    @property
    def obstacle_channel(self) -> int:
        """Channel that is computed from obstacles: agents in which it is not zero in every hop use `near_obstacle_layers`."""
        channel = obstacle_channel(self.senses)
        assert channel is not None
        return channel

    def __call__(self, observations: FloatArray) -> FloatArray:
        """Accelerations (.., D) from observations (.., K, C, D), in float64: what every exported form computes."""
        x = self._select_by_obstacle(observations, lambda layers: self._apply_layers(observations, layers))
        return _clamp_acceleration(x.reshape(*x.shape[:-2], -1), self.clamp, self.clamp_by) * self.acceleration_scale

    def compute_magnitude(self, observations: FloatArray) -> FloatArray:
        """The sum of the absolute values of what the last matrix adds up to an acceleration, (.., D), at least 1.

        Accelerations are small differences of large numbers where a flock has nearly settled, and float32 has seven
        digits of the large ones: errors of any two forms of a controller are to be seen relative to this.
        """

        def added(layers: tuple[Layer, ...]) -> FloatArray:
            *first, last = layers
            x = np.abs(last.weight.astype(np.float64)) @ np.abs(self._apply_layers(observations, tuple(first)))
            return x if last.bias is None else np.asarray(x + np.abs(last.bias[:, None]))

        x = self._select_by_obstacle(observations, added)
        return np.maximum(x.reshape(*x.shape[:-2], -1) * self.acceleration_scale, 1.0)

    def _select_by_obstacle(
        self, observations: FloatArray, make: Callable[[tuple[Layer, ...]], FloatArray]
    ) -> FloatArray:
        """What is made of layers: of `near_obstacle_layers`, where it is there, for agents that know of an obstacle."""
        if not self.near_obstacle_layers:
            return make(self.layers)
        wary = (observations[..., self.obstacle_channel, :] != 0.0).any(axis=(-2, -1))
        return np.where(wary[..., None, None], make(self.near_obstacle_layers), make(self.layers))

    def _apply_layers(self, observations: FloatArray, layers: tuple[Layer, ...]) -> FloatArray:
        """Vectors (.., outputs, D), or numbers (.., outputs, 1), that these layers make of observations."""
        x = observations.astype(np.float64).reshape(*observations.shape[:-3], -1, self.vector_size)
        x = _activate(x, self.input_activation)
        for layer in layers:
            x = layer.weight.astype(np.float64) @ x
            x = _activate(x if layer.bias is None else x + layer.bias[:, None], layer.activation)
        return x


def _build_obstacle_mask(senses: Senses) -> list[bool]:
    """For each channel, whether it is made of obstacle agents alone."""
    return [feature.among == "obstacles" for feature in senses.features]


def _activate(x: FloatArray, activation: Activation) -> FloatArray:
    """The activation of vectors (.., D), or of numbers (.., 1)."""
    if activation == "none":
        return x
    if activation == "tanh":
        return np.tanh(x)
    norm = np.sqrt(np.square(x).sum(axis=-1, keepdims=True) + 1e-30)
    return np.asarray(x * (np.tanh(norm) if activation == "scale-tanh" else np.log1p(norm) / norm))


def _clamp_acceleration(x: FloatArray, clamp: float | None, by: ClampBy) -> FloatArray:
    if clamp is None:
        return x
    if by == "entry":
        return np.clip(x, -clamp, clamp)
    norm = np.sqrt(np.square(x).sum(axis=-1, keepdims=True))
    return np.asarray(x * (clamp / np.maximum(norm, clamp)))


def read_program(controller: Any, dimensions: int | None = None, orbit: Orbit | None = None) -> Program:
    """A controller as a program, which does the same; a clear error if it cannot be one.

    Args:
        controller: a network of the package, or another whose attribute `chain` has its layers; or a law whose
            accelerations are a linear function of observations, with a clamp or without.
        dimensions: D, if the controller is not built for one; 2 if left out.
        orbit: the technique for obstacles, if it shall be another than the one that the controller brings along.
    """
    senses = check_local(controller)
    D = resolve_dimensions(controller, dimensions)
    own, scale = unwrap_scaled(controller)
    parts = _read_network(own) if is_network(own) else _read_law(own, senses, D)
    found = resolve_orbit(controller, orbit, D)
    program = Program(get_controller_name(controller), D, senses, **parts, acceleration_scale=scale, orbit=found)
    _check_agreement(program, own, senses)
    return program


def is_network(controller: object) -> bool:
    """Whether a controller is a compiled network or a torch module."""
    return isinstance(controller, CompiledNetwork) or is_module(type(controller))


def _read_network(network: Any) -> dict[str, Any]:
    """Return the matrices of a network, and those for agents near obstacles, if it has any."""
    chain, near = _build_chains(network)
    if chain is None or (near is not None and _get_chain_shape(near) != _get_chain_shape(chain)):
        raise InputError(
            f"{get_controller_name(network)} is a torch module of layers that have no form in C or NumPy, but in ONNX (.onnx); "
            "they take an attribute chain of Conv, EqConv, Tanh, ScaleTanh and ScaleLog "
            "of equiflock.controllers.networks"
        )
    return {
        "acts_on_vectors": chain.acts_on_vectors,
        "input_activation": ACTIVATION_NAMES[chain.input_activation],
        "layers": _read_layers(chain),
        "near_obstacle_layers": () if near is None else _read_layers(near),
    }


def _build_chains(network: Any) -> tuple[Chain | None, Chain | None]:
    """Return the chain of a network, or None, and that of agents near obstacles, if it has any."""
    if isinstance(network, CompiledNetwork):
        architecture, tensors = network.architecture, network.tensors
        near = build_chain(architecture, tensors, near=True) if architecture.near else None
        return build_chain(architecture, tensors), near
    from torch import nn

    from equiflock.controllers.networks.models import build_module_chain

    chain = build_module_chain(getattr(network, "chain", ()), network.senses)
    # A user's module may have an attribute of that name for something else.
    other = getattr(network, "near", None)
    if chain is None or not isinstance(other, nn.Sequential) or obstacle_channel(network.senses) is None:
        return chain, None
    near = build_module_chain(tuple(other), network.senses)
    return (None, None) if near is None else (chain, near)


def _get_chain_shape(chain: Chain) -> tuple[Any, ...]:
    """What two chains have in common that differ by nothing but the values of their weights."""
    return (
        chain.input_activation,
        chain.acts_on_vectors,
        chain.table.tolist(),
        [layer.weight.shape for layer in chain.layers],
    )


def _read_layers(chain: Chain) -> tuple[Layer, ...]:
    """Return the matrices of a chain; those with nothing between them are multiplied out."""
    layers: list[Layer] = []
    weight: FloatArray | None = None
    bias: FloatArray | None = None
    for k, (layer, row) in enumerate(zip(chain.layers, chain.table, strict=True)):
        # Inputs in the order of observations: hop by hop.
        matrix = layer.weight.transpose(0, 2, 1).astype(np.float64)
        matrix = matrix.reshape(len(matrix), -1)
        shift: Any = None if layer.bias is None else layer.bias.astype(np.float64)
        # All layers of a chain have a bias, or none has.
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
    """The matrix of a law, which is its answers to unit vectors, and its clamp."""
    clamped = is_dataclass(law) and any(each.name == "clamp" for each in fields(law))
    clamp: float | None = law.clamp if clamped else None
    by: ClampBy = getattr(law, "clamp_by", "norm")
    free = law if clamp is None else replace(law, clamp=None)
    shape = senses.hops, senses.width, D
    size = int(np.prod(shape))
    # The first agent observes nothing, each of the others one of the numbers.
    units = np.concatenate([np.zeros((1, size)), np.eye(size)]).reshape(1, size + 1, *shape)
    answers = _evaluate(free, units.astype(np.float32))[0]
    bias = answers[0]
    matrix = (answers[1:] - bias).T
    # A law that turns with the flock has one number for each vector.
    one = matrix[:1, ::D]
    turns = not bias.any() and np.array_equal(matrix, np.kron(one, np.eye(D)))
    layer = _make_layer(one, None, "none") if turns else _make_layer(matrix, bias, "none")
    return {"acts_on_vectors": turns, "input_activation": "none", "layers": (layer,), "clamp": clamp, "clamp_by": by}


def _evaluate(controller: Any, observations: FloatArray) -> FloatArray:
    """What a controller answers; a clear error if it does not take observations of this shape."""
    name, shape = get_controller_name(controller), observations.shape
    ask: Callable[..., Any] = as_numpy_function(controller)
    try:
        answer = np.asarray(ask(observations), np.float64)
    except InputError:
        raise
    except Exception as error:  # whatever a controller of the user's raises
        raise InputError(f"{name} does not take observations (B, N, K, C, D) = {shape}: {error}") from None
    if answer.shape != (*shape[:2], shape[4]):
        raise InputError(f"{name} must return accelerations {(*shape[:2], shape[4])}; got {answer.shape}")
    return answer


def _check_agreement(program: Program, controller: Any, senses: Senses) -> None:
    """A clear error unless the program does what the controller does in its own units."""
    chance = np.random.default_rng(0)
    shape = 1, PROBE_COUNT, senses.hops, senses.width, program.dimensions
    # Observations of all sizes, as some functions are linear for small ones only.
    sizes = 10.0 ** chance.uniform(-2.0, 3.0, (1, PROBE_COUNT, 1, 1, 1))
    observations = (chance.normal(size=shape) * sizes).astype(np.float32)
    # Every other agent knows nothing of obstacles, and the rest does by some hops only.
    silent = chance.random((*shape[:4], 1)) < 0.5
    silent[:, ::2] = True
    observations[np.broadcast_to(silent, shape) & np.array(_build_obstacle_mask(senses))[:, None]] = 0.0
    wanted, found = _evaluate(controller, observations), program(observations) / program.acceleration_scale
    scale = np.maximum(np.abs(wanted).max(axis=-1, keepdims=True), np.abs(observations).max(axis=(2, 3, 4))[..., None])
    if not (np.abs(found - wanted) <= PROBE_TOLERANCE * np.maximum(scale, 1.0)).all():
        kind, but = (
            ("does not do what its chain of layers does", "")
            if is_network(controller)
            else ("is not a linear function of observations", "as a torch module ")
        )
        raise InputError(
            f"{get_controller_name(controller)} {kind}: it has no form in C or NumPy, but {but}in ONNX (.onnx)"
        )
