"""One agent's controller as numbers: what every form that it is exported in is written from.

A network is a chain of matrices and activations; a law is one matrix and a clamp, read off by asking the law. Whatever
is read is compared with the controller itself on random observations before anything is written.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from equiflock.controllers.bridge import as_numpy_function
from equiflock.controllers.registry import controller_names, is_module
from equiflock.controllers.scaled import Scaled
from equiflock.features import Senses
from equiflock.runtime.checks import InputError, check_count, short
from equiflock.technique import Orbit

Activation: TypeAlias = Literal["none", "tanh", "scale-tanh", "scale-log"]
ClampBy: TypeAlias = Literal["norm", "entry"]
Numbers: TypeAlias = NDArray[Any]

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
        return sum(layer.weight.size + (0 if layer.bias is None else layer.bias.size) for layer in self.layers)

    def __call__(self, observations: Numbers) -> Numbers:
        """Accelerations (.., D) from observations (.., K, C, D), in float64: what every exported form computes."""
        x = self._through(observations, self.layers)
        return _clamped(x.reshape(*x.shape[:-2], -1), self.clamp, self.clamp_by) * self.acceleration_scale

    def magnitude(self, observations: Numbers) -> Numbers:
        """The sum of the absolute values of what the last matrix adds up to an acceleration, (.., D), at least 1.

        Accelerations are small differences of large numbers where a flock has nearly settled, and float32 has seven
        digits of the large ones: errors of any two forms of a controller are to be seen relative to this.
        """
        *first, last = self.layers
        x = np.abs(last.weight.astype(np.float64)) @ np.abs(self._through(observations, tuple(first)))
        x = x if last.bias is None else x + np.abs(last.bias[:, None])
        return np.maximum(x.reshape(*x.shape[:-2], -1) * self.acceleration_scale, 1.0)

    def _through(self, observations: Numbers, layers: tuple[Layer, ...]) -> Numbers:
        """Vectors (.., outputs, D), or numbers (.., outputs, 1), that these layers make of observations."""
        x = observations.astype(np.float64).reshape(*observations.shape[:-3], -1, self.components)
        x = _bent(x, self.before)
        for layer in layers:
            x = layer.weight.astype(np.float64) @ x
            x = _bent(x if layer.bias is None else x + layer.bias[:, None], layer.activation)
        return x


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


def own_controller(controller: Any) -> tuple[Any, float]:
    """The controller in its own units, and the factor from its accelerations to those of the robots."""
    scale = 1.0
    while isinstance(controller, Scaled):
        scale, controller = scale * controller.acceleration_scale, controller.controller
    return controller, scale


def name_of(controller: Any) -> str:
    """The name that a controller is registered under, or that of its class."""
    return str(getattr(controller, "name", type(controller).__name__))


def check_local(controller: Any) -> Senses:
    """The senses of a controller that an agent can run by itself; a clear error for any other."""
    if inspect.isclass(controller) or not callable(controller):
        raise InputError(f"a controller to export is such as equiflock.load('etdagnn'); got {short(controller)}")
    name = name_of(controller)
    if getattr(controller, "privileged", False):
        # Some laws have a form that each agent can fly by itself.
        local = next((each for each in (f"{name}-local", f"{name}-dynamic") if each in controller_names()), "")
        raise InputError(
            f"{name} is privileged: it sees the whole flock, which no robot can; export "
            f"{local and f'{local}, or '}a network that learned from it, such as etdagnn"
        )
    senses = getattr(controller, "senses", None)
    if not isinstance(senses, Senses):
        raise InputError(f"{name} must declare senses, such as equiflock.paper_senses(), to be exported")
    if senses.needs_perfection:
        raise InputError(f'{name} has hop_mean = "sender": a sender cannot know who hears it; use "receiver"')
    return senses


def fitting_dimensions(controller: Any, dimensions: int | None) -> int:
    """D of what is exported: as asked, or as the controller is built for, or 2."""
    built = getattr(own_controller(controller)[0], "dimensions", None)
    if dimensions is not None and check_count("dimensions", dimensions) not in (2, 3):
        raise InputError(f"dimensions must be 2 or 3; got {dimensions}")
    if built is not None and dimensions not in (None, built):
        raise InputError(f"{name_of(controller)} is built for D = {built}; got dimensions = {dimensions}")
    return int(built or dimensions or 2)


def fitting_orbit(controller: Any, orbit: Orbit | None, dimensions: int) -> Orbit | None:
    """The technique for obstacles: the one given, or that which the controller was tuned with; none in space."""
    if orbit is not None and not isinstance(orbit, Orbit):
        raise InputError(f"orbit must be an Orbit, such as equiflock.Orbit(), or None; got {short(orbit)}")
    if orbit is not None and dimensions != 2:
        raise InputError(f"orbit is a technique for D = 2; got dimensions = {dimensions}")
    own = getattr(controller, "orbit", None)
    found = orbit or (own if isinstance(own, Orbit) else None)
    return found if dimensions == 2 else None


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
    of_vectors, before, layers, clamp, by = _chain(own, senses) if is_module(type(own)) else _law(own, senses, D)
    found = fitting_orbit(controller, orbit, D)
    program = Program(name_of(controller), D, senses, of_vectors, before, layers, clamp, by, scale, found)
    _check_same(program, own, senses)
    return program


_Parts: TypeAlias = tuple[bool, Activation, tuple[Layer, ...], float | None, ClampBy]


def _chain(network: Any, senses: Senses) -> _Parts:
    """The matrices of a network; those with nothing between them are multiplied out."""
    from equiflock.controllers.networks.chain import ACTIVATION, chain_of

    chain = chain_of(network.chain, senses.hops) if hasattr(network, "chain") else None
    if chain is None:
        raise InputError(
            f"{name_of(network)} is a torch module of layers that have no form in C or NumPy: export it as .onnx, or "
            "give it an attribute chain of Conv, EqConv, Tanh, ScaleTanh and ScaleLog of equiflock.controllers.networks"
        )
    kinds: tuple[Activation, ...] = ("none", "tanh", "scale-tanh", "scale-log")  # as the table numbers them
    made: list[Layer] = []
    weight: Numbers | None = None
    bias: Numbers | None = None
    for layer, row in zip(chain.layers, chain.table, strict=True):
        # Inputs in the order of observations: hop by hop.
        matrix = layer.weight.detach().numpy().transpose(0, 2, 1).astype(np.float64)
        matrix = matrix.reshape(len(matrix), -1)
        own = getattr(layer, "bias", None)
        shift: Any = None if own is None else own.detach().numpy().astype(np.float64)
        # All layers of a chain have a bias, or none has.
        bias = shift if bias is None else matrix @ bias + shift
        weight = matrix if weight is None else matrix @ weight
        activation = kinds[row[ACTIVATION]]
        if activation != "none" or layer is chain.layers[-1]:
            made.append(_layer(weight, bias, activation))
            weight = bias = None
    return chain.of_vectors, kinds[chain.before], tuple(made), None, "norm"


def _layer(weight: Numbers, bias: Numbers | None, activation: Activation) -> Layer:
    return Layer(weight.astype(np.float32), None if bias is None else bias.astype(np.float32), activation)


def _law(law: Any, senses: Senses, D: int) -> _Parts:
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
    if not bias.any() and np.array_equal(matrix, np.kron(one, np.eye(D))):
        return True, "none", (_layer(one, None, "none"),), clamp, by
    return False, "none", (_layer(matrix, bias, "none"),), clamp, by


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
    wanted, found = _asked(controller, observations), program(observations) / program.acceleration_scale
    scale = np.maximum(np.abs(wanted).max(axis=-1, keepdims=True), np.abs(observations).max(axis=(2, 3, 4))[..., None])
    if not (np.abs(found - wanted) <= AGREEMENT * np.maximum(scale, 1.0)).all():
        kind = "its chain of layers" if program.senses.hops and is_module(type(controller)) else "linear"
        way = (
            "export it as .onnx"
            if is_module(type(controller))
            else "write it as a torch module, and export it as .onnx"
        )
        raise InputError(f"{name_of(controller)} is not the function that is exported: it is not {kind}; {way}")
