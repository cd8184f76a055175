"""The numbers that are searched, as one vector: weights of a network, and numbers of the orbit technique."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float64, Int64

from equiflock.controllers.networks.weights import Tensor, collect_tensors
from equiflock.features import Senses
from equiflock.orbit_technique import Orbit
from equiflock.runtime.checks import InputError, check_choice

Vector = Float64[np.ndarray, " n"]
SearchTarget: TypeAlias = Literal["weights", "gains"]
"""Whether each weight is searched by itself, or a gain for every input of every layer."""
ORBIT_PARAMETERS = ("gravity_break", "near", "slow")
"""The numbers of the technique that are searched; the first is a share, the others are above 0."""
ORBIT_STEP = 1.0
"""One unit of the search in the logarithm of a number, or of the odds of a share: these may have to go far."""
BOUND_MARGIN = 1e-3
"""What a number of the technique that is 0, or a share that is 0 or 1, is taken to be away from that."""


class Candidate(NamedTuple):
    """What a vector stands for."""

    weights: dict[str, Tensor]
    """The tensors of the network by their names."""
    orbit: Orbit | None
    """The numbers of the technique; None for those of the scenario."""


class Genome:
    """The vectors around a network: 0 is the network itself, and 1 the size of each number that is searched.

    A weight's size is the root mean square of its tensor, so that layers of small and of large weights are searched
    alike. Numbers of the technique move in their logarithm, or that of their odds, so that they stay in their range.

    With gains in place of weights, the weights W[o, i] of a layer become W[o, i] (1 + g_i): how loud each channel of
    each hop is, and each unit behind it; a layer of one output has one gain for all its inputs. These are so few
    numbers that a search knows their covariances soon. The weights of a channel of obstacles, if they are 0, become g_i
    times those of the same feature heard from everybody; other inputs with weights of 0 are not searched.

    Args:
        network: a compiled network or a torch module with the weights to begin from.
        tunes_orbit: whether the numbers of the technique are searched, too.
        search_target: each of the weights, or a gain for every input of a layer; a bias is an input of its own.
        gain_features: names of features, if only the gains of what is heard of these are searched, at each hop.
        names: tensors that are searched; all if left out, or of a torch module those that require a gradient.
    """

    def __init__(
        self,
        network: Any,
        tunes_orbit: bool,
        search_target: SearchTarget = "weights",
        gain_features: tuple[str, ...] = (),
        names: Collection[str] | None = None,
    ) -> None:
        orbit = getattr(network, "orbit", None)
        self.orbit: Orbit | None = orbit if isinstance(orbit, Orbit) else None
        self.tunes_orbit = tunes_orbit
        self.state = {name: tensor.copy() for name, tensor in collect_tensors(network).items()}
        chosen = list_trainable_names(network) if names is None else names
        self.names = [name for name in self.state if name in chosen]
        if not self.names:
            raise InputError("the network has no weights that learn, so there is nothing to tune")
        # A tensor of zeros, such as a bias, is searched in the size of all weights.
        values = [self.state[name].astype(np.float64).ravel() for name in self.names]
        whole = _compute_rms(np.concatenate(values)) or 1.0
        self._initial_weights = np.concatenate(values)
        if search_target == "gains":
            senses = getattr(network, "senses", None)
            features = tuple(dict.fromkeys(name for name, _ in senses.channels)) if isinstance(senses, Senses) else ()
            for name in gain_features:
                check_choice("a feature in heard", name, features)
            # Weight w is moved by its own size times the gain of its input.
            self._step_sizes = np.concatenate(
                [_compute_gain_steps(self.state[name], network, gain_features).ravel() for name in self.names]
            )
            if not self._step_sizes.any():
                told = "+".join(gain_features)
                raise InputError(f"heard must name features that a network of vectors has weights for; got {told!r}")
            self._parameter_index = _index_gains(
                [tuple(self.state[name].shape) for name in self.names], self._step_sizes != 0.0
            )
        else:
            self._step_sizes = np.concatenate([np.full(each.size, _compute_rms(each) or whole) for each in values])
            self._parameter_index = np.arange(self._initial_weights.size)
        self._parameter_count = int(self._parameter_index.max()) + 1

    @property
    def size(self) -> int:
        """How many numbers are searched."""
        return self._parameter_count + (len(ORBIT_PARAMETERS) if self.tunes_orbit else 0)

    @property
    def initial_vector(self) -> Vector:
        """The vector of the network itself."""
        return np.zeros(self.size)

    def decode(self, vector: Vector) -> Candidate:
        """The candidate that a vector stands for."""
        moved = (self._initial_weights + self._step_sizes * vector[self._parameter_index]).astype(np.float32)
        weights, first = dict(self.state), 0
        for name in self.names:
            last = first + self.state[name].size
            weights[name] = moved[first:last].reshape(self.state[name].shape)
            first = last
        if not self.tunes_orbit:
            return Candidate(weights, self.orbit)
        shifts = dict(zip(ORBIT_PARAMETERS, (ORBIT_STEP * vector[self._parameter_count :]).tolist(), strict=True))
        return Candidate(weights, _shift_orbit(self.orbit or Orbit(), shifts))


def list_trainable_names(network: Any) -> set[str]:
    """Return the names of all tensors of a compiled network, or of those of a torch module that require a gradient."""
    if not hasattr(network, "named_parameters"):
        return set(collect_tensors(network))
    return {name for name, weight in network.named_parameters() if weight.requires_grad}


def _shift_orbit(orbit: Orbit, shifts: dict[str, float]) -> Orbit:
    """The technique with numbers that are moved so far from what they are."""
    maps: dict[str, Callable[[float, float], float]] = {ORBIT_PARAMETERS[0]: _shift_share}
    return replace(
        orbit,
        **{
            name: maps.get(name, _shift_positive)(getattr(orbit, name), shift)
            for name, shift in shifts.items()
            if shift
        },
    )


def _shift_share(value: float, shift: float) -> float:
    """A share whose logarithm of odds is moved."""
    value = min(max(value, BOUND_MARGIN), 1.0 - BOUND_MARGIN)
    return 1.0 / (1.0 + math.exp(-min(max(math.log(value / (1.0 - value)) + shift, -50.0), 50.0)))


def _shift_positive(value: float, shift: float) -> float:
    """A number above 0 whose logarithm is moved."""
    return math.exp(min(max(math.log(max(value, BOUND_MARGIN)) + shift, -50.0), 50.0))


def _compute_gain_steps(weights: Tensor, network: Any, gain_features: tuple[str, ...]) -> Float64[np.ndarray, ...]:
    """By how much a gain of 1 moves each of the weights of a layer; only those of features that are `gain_features`, if any."""
    sizes: Float64[np.ndarray, ...] = weights.astype(np.float64)
    senses = getattr(network, "senses", None)
    # Only the first layer has an input for each channel of each hop.
    if not isinstance(senses, Senses) or sizes.shape[1:] != (senses.width, senses.hops):
        return np.zeros_like(sizes) if gain_features else sizes
    names = [name for name, _ in senses.channels]
    for c, feature in enumerate(senses.features):
        # The first channel of the same feature, heard from all: its name without options is that of both.
        everybody = feature.name.partition(":")[0]
        if feature.among == "obstacles" and everybody in names and not sizes[:, c].any():
            sizes[:, c] = sizes[:, names.index(everybody)]
    if gain_features:
        sizes[:, [name not in gain_features for name in names]] = 0.0
    return sizes


def _index_gains(shapes: list[tuple[int, ...]], moved: Bool[np.ndarray, " weights"]) -> Int64[np.ndarray, " weights"]:
    """For every weight of tensors (outputs, inputs ..), or of biases, the number of its gain, over all tensors.

    Inputs of which no weight is moved have no number of their own: they share that of another.
    """
    numbers, first = [], 0
    for shape in shapes:
        count = math.prod(shape[1:] or shape)
        inputs = np.arange(first, first + count) if shape[0] > 1 else np.full(count, first)
        numbers.append(np.tile(inputs, shape[0]) if len(shape) > 1 else inputs)
        first += count
    every = np.concatenate(numbers)
    used = np.unique(every[moved])
    return np.minimum(np.searchsorted(used, every), used.size - 1)


def _compute_rms(values: Vector) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
