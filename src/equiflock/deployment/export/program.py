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

from equiflock.controllers.bridge import as_numpy_function
from equiflock.controllers.networks.architecture import obstacle_channel
from equiflock.controllers.networks.chain import ACTIVATION, Chain, build_chain
from equiflock.controllers.networks.compiled import CompiledNetwork
from equiflock.controllers.registry import is_module
from equiflock.deployment.export.fitting import (
    check_local,
    fitting_dimensions,
    fitting_orbit,
    name_of,
    own_controller,
)
from equiflock.features import Senses
from equiflock.runtime.checks import InputError
from equiflock.technique import Orbit

Activation: TypeAlias = Literal["none", "tanh", "scale-tanh", "scale-log"]
ClampBy: TypeAlias = Literal["norm", "entry"]
Numbers: TypeAlias = NDArray[Any]

KINDS: tuple[Activation, ...] = ("none", "tanh", "scale-tanh", "scale-log")
"""Activations as the table of a chain numbers them."""
AGREEMENT = 1e-4
"""How far what was read may be from the controller, relative to the largest acceleration: float32, but the same."""
PROBES = 96
"""So many random observations are compared."""


@dataclass(frozen=True, eq=False)
class Layer:
    """One matrix, and what follows it.

    Attributes:
        weight: (outputs, inputs) float32.
        bias: (outputs,) float32, or None.
        activation: of what the matrix makes.
    """

    weight: Numbers
    bias: Numbers | None
    activation: Activation


@dataclass(frozen=True, eq=False)
class Program:
    """One agent's controller.

    Attributes:
        name: of the controller.
        dimensions: D.
        senses: its channels and hops, and the units that it senses in.
        of_vectors: whether matrices act on the K C vectors of an agent's observations, rather than on K C D numbers.
        before: the activation of the observations, before the first matrix.
        layers: matrices in their order; between any two of them is an activation.
        clamp: the largest acceleration, in the controller's units, or None.
        clamp_by: whether the norm is clamped, or every entry.
        acceleration_scale: the factor to the units of the robots.
        orbit: the technique by which it avoids obstacles, or None: then the nearest just stands still.
        near: matrices of the same shapes, by which agents that know of an obstacle decide in place of `layers`; none if
            all decide alike.
    """

    name: str
    dimensions: int
    senses: Senses
    of_vectors: bool
    before: Activation
    layers: tuple[Layer, ...]
    clamp: float | None = None
    clamp_by: ClampBy = "norm"
    acceleration_scale: float = 1.0
    orbit: Orbit | None = None
    near: tuple[Layer, ...] = ()

    @property
    def components(self) -> int:
        """How many numbers an input of a matrix is: D of a vector, or one."""
        return self.dimensions if self.of_vectors else 1

    @property
    def passed_on(self) -> int:
        """How many numbers of its observations an agent passes on, (K - 1) C D."""
        return (self.senses.hops - 1) * self.senses.width * self.dimensions

    @property
    def weights(self) -> int:
        """How many numbers the matrices and biases are."""
        layers = *self.layers, *self.near
        return sum(layer.weight.size + (0 if layer.bias is None else layer.bias.size) for layer in layers)

    @property
    def obstacle_channel(self) -> int:
        """Channel that is computed from obstacles: agents in which it is not zero in every hop use `near`."""
        channel = obstacle_channel(self.senses)
        assert channel is not None
        return channel

    def __call__(self, observations: Numbers) -> Numbers:
        """Accelerations (.., D) from observations (.., K, C, D), in float64: what every exported form computes."""
        x = self._decided(observations, lambda layers: self._through(observations, layers))
        return _clamped(x.reshape(*x.shape[:-2], -1), self.clamp, self.clamp_by) * self.acceleration_scale

    def magnitude(self, observations: Numbers) -> Numbers:
        """The sum of the absolute values of what the last matrix adds up to an acceleration, (.., D), at least 1.

        Accelerations are small differences of large numbers where a flock has nearly settled, and float32 has seven
        digits of the large ones: errors of any two forms of a controller are to be seen relative to this.
        """

        def added(layers: tuple[Layer, ...]) -> Numbers:
            *first, last = layers
            x = np.abs(last.weight.astype(np.float64)) @ np.abs(self._through(observations, tuple(first)))
            return x if last.bias is None else np.asarray(x + np.abs(last.bias[:, None]))

        x = self._decided(observations, added)
        return np.maximum(x.reshape(*x.shape[:-2], -1) * self.acceleration_scale, 1.0)

    def _decided(self, observations: Numbers, make: Callable[[tuple[Layer, ...]], Numbers]) -> Numbers:
        """What is made of layers: of `near`, where it is there, for agents that know of an obstacle."""
        if not self.near:
            return make(self.layers)
        wary = (observations[..., self.obstacle_channel, :] != 0.0).any(axis=(-2, -1))
        return np.where(wary[..., None, None], make(self.near), make(self.layers))

    def _through(self, observations: Numbers, layers: tuple[Layer, ...]) -> Numbers:
        """Vectors (.., outputs, D), or numbers (.., outputs, 1), that these layers make of observations."""
        x = observations.astype(np.float64).reshape(*observations.shape[:-3], -1, self.components)
        x = _bent(x, self.before)
        for layer in layers:
            x = layer.weight.astype(np.float64) @ x
            x = _bent(x if layer.bias is None else x + layer.bias[:, None], layer.activation)
        return x


def _of_obstacles(senses: Senses) -> list[bool]:
    """For each channel, whether it is made of obstacle agents alone."""
    return [feature.among == "obstacles" for feature in senses.features]


def _bent(x: Numbers, activation: Activation) -> Numbers:
    """The activation of vectors (.., D), or of numbers (.., 1)."""
    if activation == "none":
        return x
    if activation == "tanh":
        return np.tanh(x)
    norm = np.sqrt(np.square(x).sum(axis=-1, keepdims=True) + 1e-30)
    return np.asarray(x * (np.tanh(norm) if activation == "scale-tanh" else np.log1p(norm) / norm))


def _clamped(x: Numbers, clamp: float | None, by: ClampBy) -> Numbers:
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
    D = fitting_dimensions(controller, dimensions)
    own, scale = own_controller(controller)
    parts = _network(own) if is_network(own) else _law(own, senses, D)
    found = fitting_orbit(controller, orbit, D)
    program = Program(name_of(controller), D, senses, **parts, acceleration_scale=scale, orbit=found)
    _check_same(program, own, senses)
    return program


def is_network(controller: object) -> bool:
    """Whether a controller is a compiled network or a torch module."""
    return isinstance(controller, CompiledNetwork) or is_module(type(controller))


def _network(network: Any) -> dict[str, Any]:
    """Return the matrices of a network, and those for agents near obstacles, if it has any."""
    chain, near = _chains(network)
    if chain is None or (near is not None and _shape(near) != _shape(chain)):
        raise InputError(
            f"{name_of(network)} is a torch module of layers that have no form in C or NumPy, but in ONNX (.onnx); "
            "they take an attribute chain of Conv, EqConv, Tanh, ScaleTanh and ScaleLog "
            "of equiflock.controllers.networks"
        )
    return {
        "of_vectors": chain.of_vectors,
        "before": KINDS[chain.before],
        "layers": _layers(chain),
        "near": () if near is None else _layers(near),
    }


def _chains(network: Any) -> tuple[Chain | None, Chain | None]:
    """Return the chain of a network, or None, and that of agents near obstacles, if it has any."""
    if isinstance(network, CompiledNetwork):
        architecture, tensors = network.architecture, network.tensors
        near = build_chain(architecture, tensors, near=True) if architecture.near else None
        return build_chain(architecture, tensors), near
    from torch import nn

    from equiflock.controllers.networks.models import chain_of

    chain = chain_of(getattr(network, "chain", ()), network.senses)
    # A user's module may have an attribute of that name for something else.
    other = getattr(network, "near", None)
    if chain is None or not isinstance(other, nn.Sequential) or obstacle_channel(network.senses) is None:
        return chain, None
    near = chain_of(tuple(other), network.senses)
    return (None, None) if near is None else (chain, near)


def _shape(chain: Chain) -> tuple[Any, ...]:
    """What two chains have in common that differ by nothing but the values of their weights."""
    return chain.before, chain.of_vectors, chain.table.tolist(), [layer.weight.shape for layer in chain.layers]


def _layers(chain: Chain) -> tuple[Layer, ...]:
    """Return the matrices of a chain; those with nothing between them are multiplied out."""
    layers: list[Layer] = []
    weight: Numbers | None = None
    bias: Numbers | None = None
    for k, (layer, row) in enumerate(zip(chain.layers, chain.table, strict=True)):
        # Inputs in the order of observations: hop by hop.
        matrix = layer.weight.transpose(0, 2, 1).astype(np.float64)
        matrix = matrix.reshape(len(matrix), -1)
        shift: Any = None if layer.bias is None else layer.bias.astype(np.float64)
        # All layers of a chain have a bias, or none has.
        bias = shift if bias is None else matrix @ bias + shift
        weight = matrix if weight is None else matrix @ weight
        activation = KINDS[row[ACTIVATION]]
        if activation != "none" or k + 1 == len(chain.layers):
            layers.append(_layer(weight, bias, activation))
            weight = bias = None
    return tuple(layers)


def _layer(weight: Numbers, bias: Numbers | None, activation: Activation) -> Layer:
    return Layer(weight.astype(np.float32), None if bias is None else bias.astype(np.float32), activation)


def _law(law: Any, senses: Senses, D: int) -> dict[str, Any]:
    """The matrix of a law, which is its answers to unit vectors, and its clamp."""
    clamped = is_dataclass(law) and any(each.name == "clamp" for each in fields(law))
    clamp: float | None = law.clamp if clamped else None
    by: ClampBy = getattr(law, "clamp_by", "norm")
    free = law if clamp is None else replace(law, clamp=None)
    shape = senses.hops, senses.width, D
    size = int(np.prod(shape))
    # The first agent observes nothing, each of the others one of the numbers.
    units = np.concatenate([np.zeros((1, size)), np.eye(size)]).reshape(1, size + 1, *shape)
    answers = _asked(free, units.astype(np.float32))[0]
    bias = answers[0]
    matrix = (answers[1:] - bias).T
    # A law that turns with the flock has one number for each vector.
    one = matrix[:1, ::D]
    turns = not bias.any() and np.array_equal(matrix, np.kron(one, np.eye(D)))
    layer = _layer(one, None, "none") if turns else _layer(matrix, bias, "none")
    return {"of_vectors": turns, "before": "none", "layers": (layer,), "clamp": clamp, "clamp_by": by}


def _asked(controller: Any, observations: Numbers) -> Numbers:
    """What a controller answers; a clear error if it does not take observations of this shape."""
    name, shape = name_of(controller), observations.shape
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


def _check_same(program: Program, controller: Any, senses: Senses) -> None:
    """A clear error unless the program does what the controller does in its own units."""
    chance = np.random.default_rng(0)
    shape = 1, PROBES, senses.hops, senses.width, program.dimensions
    # Observations of all sizes, as some functions are linear for small ones only.
    sizes = 10.0 ** chance.uniform(-2.0, 3.0, (1, PROBES, 1, 1, 1))
    observations = (chance.normal(size=shape) * sizes).astype(np.float32)
    # Every other agent knows nothing of obstacles, and the rest does by some hops only.
    silent = chance.random((*shape[:4], 1)) < 0.5
    silent[:, ::2] = True
    observations[np.broadcast_to(silent, shape) & np.array(_of_obstacles(senses))[:, None]] = 0.0
    wanted, found = _asked(controller, observations), program(observations) / program.acceleration_scale
    scale = np.maximum(np.abs(wanted).max(axis=-1, keepdims=True), np.abs(observations).max(axis=(2, 3, 4))[..., None])
    if not (np.abs(found - wanted) <= AGREEMENT * np.maximum(scale, 1.0)).all():
        kind, but = (
            ("does not do what its chain of layers does", "")
            if is_network(controller)
            else ("is not a linear function of observations", "as a torch module ")
        )
        raise InputError(f"{name_of(controller)} {kind}: it has no form in C or NumPy, but {but}in ONNX (.onnx)")
