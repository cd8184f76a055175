"""The search of a tuning: vectors that encode weights and parameters of the orbit technique, and CMA-ES over them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float64, Int64

from equiflock._runtime.checks import InputError, check_choice
from equiflock._runtime.randomness import make_rng
from equiflock._runtime.specs import parse_spec
from equiflock.controllers.networks.architecture import check_obstacle_channel
from equiflock.controllers.networks.compiled import CompiledNetwork
from equiflock.controllers.networks.weights import Tensor, collect_tensors
from equiflock.features import Channel, Senses
from equiflock.observations.orbit import Orbit

Vector = Float64[np.ndarray, " n"]
SearchTarget: TypeAlias = Literal["weights", "gains", "channels"]
"""What is searched: each weight individually, one gain per input of every layer, or one gain per channel."""
ORBIT_PARAMETERS = ("gravity_break", "near", "slow")
"""Parameters of the orbit technique that are searched; the first is a share, the others are positive."""
ORBIT_STEP = 1.0
"""Unit of the search in the logarithm of a parameter, or in the log-odds of a share; large, as these may move far."""
BOUND_MARGIN = 1e-3
"""Margin that keeps orbit parameters away from their bounds (0, and 1 for a share), where logarithms diverge."""


DIVERGED_COST = 1e9
"""Cost of a candidate whose flight diverged."""


class Candidate(NamedTuple):
    """Weights and orbit parameters that a vector encodes."""

    weights: dict[str, Tensor]
    """Tensors of the network by name."""
    orbit: Orbit | None
    """Orbit technique parameters; None for the scenario's."""


class Genome:
    """Encoding of networks as vectors: 0 is the initial network, and 1 is the scale of each searched parameter.

    The scale of a weight is the root mean square of its tensor, so that layers of small and of large weights are
    searched alike. Orbit parameters move in their logarithm or log-odds, so that they stay in their range.

    With gains instead of weights, the weights W[o, i] of a layer become W[o, i] (1 + g_i): one gain for each channel
    of each hop and for each hidden unit; a layer with one output has one gain for all inputs. There are so few gains
    that the search learns their covariances quickly. If the weights of an obstacle channel are all 0, they become g_i
    times those of the same feature over all neighbours; other inputs whose weights are 0 are not searched.

    With channels, only the first layer is searched, with one gain per channel, common to all hops and outputs: fewest
    parameters.

    Args:
        network: compiled network or torch module with the initial weights.
        tunes_orbit: whether orbit parameters are searched.
        search_target: individual weights, a gain for every input of a layer (a bias counts as an input), or a gain for
            every channel.
        gain_features: feature names; if given, only the gains of their channels are searched, at each hop.
        names: tensors that are searched; by default all, or those of a torch module that require a gradient.
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
            raise InputError("the network has no trainable weights, so there is nothing to tune")
        # A tensor of zeros, such as a bias, has the scale of all weights together.
        values = [self.state[name].astype(np.float64).ravel() for name in self.names]
        overall_rms = _compute_rms(np.concatenate(values)) or 1.0
        self._initial_weights = np.concatenate(values)
        if search_target != "weights":
            senses = getattr(network, "senses", None)
            features = tuple(dict.fromkeys(name for name, _ in senses.channels)) if isinstance(senses, Senses) else ()
            for name in gain_features:
                check_choice("a feature in gain_features", name, features)
            per_channel = search_target == "channels"
            # A gain changes weight w by w times the gain of its input.
            searched = gain_features or (features if per_channel else ())
            self._step_sizes = np.concatenate(
                [_compute_gain_steps(self.state[name], network, searched).ravel() for name in self.names]
            )
            if not self._step_sizes.any():
                raise InputError(
                    "gains of channels need an equivariant network with weights for them; "
                    f"got {'+'.join(searched) or 'no channels'!r}"
                )
            self._parameter_index = _index_gains(
                [tuple(self.state[name].shape) for name in self.names], self._step_sizes != 0.0, per_channel
            )
        else:
            self._step_sizes = np.concatenate(
                [np.full(each.size, _compute_rms(each) or overall_rms) for each in values]
            )
            self._parameter_index = np.arange(self._initial_weights.size)
        self._parameter_count = int(self._parameter_index.max()) + 1

    @property
    def size(self) -> int:
        """Number of searched parameters."""
        return self._parameter_count + (len(ORBIT_PARAMETERS) if self.tunes_orbit else 0)

    @property
    def initial_vector(self) -> Vector:
        """Vector of the initial network."""
        return np.zeros(self.size)

    def decode(self, vector: Vector) -> Candidate:
        """Return the candidate that a vector (size,) encodes; what is not searched is that of the initial network."""
        shifted = (self._initial_weights + self._step_sizes * vector[self._parameter_index]).astype(np.float32)
        weights, first = dict(self.state), 0
        for name in self.names:
            last = first + self.state[name].size
            weights[name] = shifted[first:last].reshape(self.state[name].shape)
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
    """Return the orbit technique with parameters shifted in logarithm or log-odds; those with shift 0 are unchanged."""
    values = {}
    for name, shift in shifts.items():
        if shift:
            shift_value = _shift_share if name == ORBIT_PARAMETERS[0] else _shift_positive
            values[name] = shift_value(getattr(orbit, name), shift)
    return replace(orbit, **values)


def _shift_share(value: float, shift: float) -> float:
    """Shift a share in its log-odds, after clamping it to `BOUND_MARGIN` from 0 and 1."""
    value = min(max(value, BOUND_MARGIN), 1.0 - BOUND_MARGIN)
    return 1.0 / (1.0 + math.exp(-min(max(math.log(value / (1.0 - value)) + shift, -50.0), 50.0)))


def _shift_positive(value: float, shift: float) -> float:
    """Shift a positive number in its logarithm, after raising it to at least `BOUND_MARGIN`."""
    return math.exp(min(max(math.log(max(value, BOUND_MARGIN)) + shift, -50.0), 50.0))


def _compute_gain_steps(weights: Tensor, network: Any, gain_features: tuple[str, ...]) -> Float64[np.ndarray, ...]:
    """Return the change of each weight of a layer per unit of gain: the weight itself, with two exceptions.

    Weights of an obstacle channel that are all 0 change by those of the same feature over all neighbours. If
    `gain_features` are given, weights of other channels and other layers change by 0.
    """
    sizes: Float64[np.ndarray, ...] = weights.astype(np.float64)
    senses = getattr(network, "senses", None)
    # Only the first layer has an input for each channel of each hop.
    if not isinstance(senses, Senses) or sizes.shape[1:] != (senses.width, senses.hops):
        return np.zeros_like(sizes) if gain_features else sizes
    names = [name for name, _ in senses.channels]
    for c, feature in enumerate(senses.features):
        # The first channel of the same feature over all neighbours has the same name without options.
        base_name = parse_spec(feature.name).name
        if feature.among == "obstacles" and base_name in names and not sizes[:, c].any():
            sizes[:, c] = sizes[:, names.index(base_name)]
    if gain_features:
        sizes[:, [name not in gain_features for name in names]] = 0.0
    return sizes


def _index_gains(
    shapes: list[tuple[int, ...]], tuned: Bool[np.ndarray, " weights"], per_channel: bool
) -> Int64[np.ndarray, " weights"]:
    """Return the index of the gain of every weight, over all tensors (outputs, inputs ..) and biases.

    Inputs without a tuned weight have no gain: they share the index of another input. With `per_channel`, all hops of a
    tensor (outputs, channels, hops) share the gains of its channels.
    """
    numbers, first = [], 0
    for shape in shapes:
        count = math.prod(shape[1:] or shape)
        inputs = np.arange(first, first + count) if shape[0] > 1 else np.full(count, first)
        if per_channel and len(shape) > 2:
            inputs = np.repeat(inputs[:: shape[2]], shape[2])
        numbers.append(np.tile(inputs, shape[0]) if len(shape) > 1 else inputs)
        first += count
    indices = np.concatenate(numbers)
    used = np.unique(indices[tuned])
    return np.minimum(np.searchsorted(used, indices), used.size - 1)


def _compute_rms(values: Vector) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def add_near_obstacle_weights(
    network: Any,
    initial_network: Any = None,
    last_layer_scale: float = 1.0,
    channel_scales: Mapping[Channel, float] | None = None,
) -> CompiledNetwork:
    """Return a copy of a compiled equivariant network with a second set of weights for agents that observe an obstacle.

    The second set starts as the weights (the second set, if it has one) of `initial_network`; default: the network
    itself. Its channels must be a subset of the network's; the weights of other channels start at 0. The last layer of
    the second set is multiplied by `last_layer_scale`, the weights of a channel, such as ("velocity", "mean"), in the
    first layer by its factor in `channel_scales`. The orbit technique is that of `initial_network`, if it has one.
    Both sets of weights share the network's gain schedule, so `initial_network` must have one of the same period, or
    none: then its accelerations are those at that period. Raise InputError if the networks do not qualify.
    """
    if not _is_etdagnn(network):
        name = getattr(network, "name", type(network).__name__)
        raise InputError(f"{name} cannot have separate weights near obstacles: leave out --near")
    check_obstacle_channel(network.name, network.senses)
    source = network if initial_network is None else initial_network
    senses, source_senses = network.senses, source.senses
    is_subset = set(source_senses.channels) <= set(senses.channels)
    fits = is_subset and replace(source_senses, channels=senses.channels) == senses
    if not (_is_etdagnn(source) and fits):
        raise InputError(
            f"initial weights near obstacles must be those of an ETDAGNN with a subset of {network.name}'s channels "
            f"and the same hops ({senses.hops}); got {source.name} with {source_senses.hops} hops"
        )
    period, source_period = (getattr(each.gain_schedule, "period", None) for each in (network, source))
    if source_period not in (None, period):
        raise InputError(
            f"initial weights near obstacles must have no gain schedule or one of the network's gain_period, {period}; "
            f"got gain_period = {source_period}"
        )
    architecture = replace(network.architecture, near=True, options={**network.options, "near": True})
    channels = [senses.channels.index(channel) for channel in source_senses.channels]
    tensors = {name: tensor for name, tensor in network.tensors.items() if not name.startswith("near.")}
    for layer in architecture.convolutions:
        tensor = source.tensors[f"{layer.near if source.architecture.near else layer.name}.weight"]
        if layer is architecture.convolutions[0]:
            wide = np.zeros((layer.outputs, layer.inputs, layer.hops), np.float32)
            wide[:, channels] = tensor
            for channel, scale in (channel_scales or {}).items():
                wide[:, _find_channel(senses, channel)] *= np.float32(scale)
            tensor = wide
        elif layer is architecture.convolutions[-1]:
            tensor = tensor * np.float32(last_layer_scale)
        tensors[f"{layer.near}.weight"] = tensor
    orbit = getattr(initial_network, "orbit", None) or network.orbit
    return CompiledNetwork(architecture, tensors, orbit, network.longest_time_step)


def _find_channel(senses: Senses, channel: Channel) -> int:
    """Return the index of a channel; raise InputError if there is none."""
    names = tuple("/".join(each) for each in senses.channels)
    check_choice("a channel in channel_scales", "/".join(channel), names)
    return senses.channels.index(channel)


def _is_etdagnn(network: Any) -> bool:
    return isinstance(network, CompiledNetwork) and network.architecture.acts_on_vectors


class Strategy:
    """CMA-ES (Hansen, "The CMA Evolution Strategy: A Tutorial", 2016), from the package `cma`.

    It adapts a normal distribution of `size` parameters, with mean 0 and standard deviation `sigma` at first, to the
    costs of candidates; if `diagonal`, only the variance of each parameter. Its state is a function of its arguments
    and the costs, bit for bit. An interrupted search is therefore continued by replaying the stored costs.
    """

    def __init__(self, size: int, population: int, sigma: float, seed: int, diagonal: bool) -> None:
        import cma  # importing takes a second

        # A separate random stream: other code may draw from the process's global one.
        rng = make_rng(seed, "tuning")
        options = {
            "popsize": population,
            "CMA_diagonal": diagonal,
            "randn": lambda *shape: rng.standard_normal(shape),
            "seed": np.nan,
            "verbose": -9,
            "verb_log": 0,
        }
        self._search: Any = cma.CMAEvolutionStrategy(np.zeros(size), sigma, options)
        self._candidates: list[Vector] = []

    def ask(self) -> list[Vector]:
        """Draw the candidates of the next generation; call `tell` with their costs before the next `ask`."""
        self._candidates = self._search.ask()
        return [candidate.copy() for candidate in self._candidates]

    def tell(self, costs: Sequence[float] | Float64[np.ndarray, " population"]) -> None:
        """Adapt the distribution to the costs of the last candidates; infinity and NaN count as `DIVERGED_COST`."""
        finite = np.nan_to_num(np.asarray(costs, np.float64), nan=DIVERGED_COST, posinf=DIVERGED_COST)
        self._search.tell(self._candidates, np.minimum(finite, DIVERGED_COST).tolist())

    @property
    def mean(self) -> Vector:
        """Current mean of the distribution."""
        return np.array(self._search.mean, np.float64)

    @property
    def sigma(self) -> float:
        """Current step size."""
        return float(self._search.sigma)


def compute_default_population(size: int) -> int:
    """Return 4 + 3 ln n, rounded down: the default population of CMA-ES for n parameters."""
    return 4 + int(3.0 * np.log(size))
