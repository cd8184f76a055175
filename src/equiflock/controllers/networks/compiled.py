"""Networks as compiled functions of NumPy arrays: torch's numbers within 1e-5, without torch and its overhead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from equiflock.controllers.networks.architecture import Architecture
from equiflock.controllers.networks.chain import (
    ACTIVATION,
    FOLDED_BIAS_OFFSET,
    FOLDED_INPUTS,
    FOLDED_OFFSET,
    IDENTITY,
    OUTPUTS,
    SCALE_LOG,
    TANH,
    Chain,
    build_chain,
)
from equiflock.controllers.networks.lane_kernels import (
    LANES,
    apply_affine,
    compute_log_scales,
    compute_norms,
    compute_tanh_scales,
    scale_vectors,
    tanh,
)
from equiflock.features import Senses
from equiflock.flock import Observations, Vectors
from equiflock.orbit_technique import Orbit
from equiflock.runtime import threads
from equiflock.runtime.checks import InputError
from equiflock.runtime.jit import Array, Index, kernel

AGENTS_PER_THREAD = 4_000
"""Fewer agents than this are not worth a thread of their own."""


@dataclass(frozen=True, eq=False, repr=False)
class CompiledNetwork:
    """A network as a function of observations (B, N, K, C, D) that returns accelerations (B, N, D).

    Attributes:
        architecture: one that `is_chain`.
        tensors: its weights by their names, float32; the network does not follow later changes to them.
        orbit: numbers of the orbit technique that the weights were tuned with; None if there are none.
    """

    order_independent: ClassVar[bool] = True
    """Each agent's acceleration depends on its own block alone, so agents may come in any order."""
    architecture: Architecture
    tensors: Mapping[str, NDArray[np.float32]]
    orbit: Orbit | None = None

    def __post_init__(self) -> None:
        """Copy the weights."""
        copies = {name: np.array(self.tensors[name], np.float32) for name in self.architecture.tensor_shapes}
        object.__setattr__(self, "tensors", copies)

    def __repr__(self) -> str:
        """Return one line without the weights."""
        return f"CompiledNetwork({self.name}, {self.size} weights)"

    @property
    def name(self) -> str:
        """Registered name of the network."""
        return self.architecture.name

    @property
    def senses(self) -> Senses:
        """Channels and hops of its observations."""
        return self.architecture.senses

    @property
    def dimensions(self) -> int | None:
        """D that the network is built for; None if it takes any."""
        return self.architecture.dimensions

    @property
    def options(self) -> Mapping[str, Any]:
        """Arguments that describe the network again."""
        return self.architecture.options

    @property
    def size(self) -> int:
        """Number of weights."""
        return sum(tensor.size for tensor in self.tensors.values())

    @cached_property
    def network_args(self) -> tuple[Any, ...]:
        """Arguments of the kernel `evaluate_network`.

        They are the program of the chain; the folded weights of agents near obstacles, or an empty array; and the
        number of channels with the index of the obstacle channel.
        """
        architecture = self.architecture
        chain = build_chain(architecture, self.tensors)
        near = np.empty(0, np.float32)
        if architecture.near:
            near = build_chain(architecture, self.tensors, near=True).fold_weights()
        channels = self.senses.width, (architecture.obstacle_channel or 0) if architecture.near else 0
        return make_chain_args(chain, chain.fold_weights()), near, channels

    def compiled_form(self) -> CompiledNetwork:
        """Return itself."""
        return self

    def __call__(self, observations: Observations) -> Vectors:
        """Return accelerations, the same for any number of threads."""
        shape, (K, C) = np.shape(observations), (self.senses.hops, self.senses.width)
        if len(shape) != 5 or shape[2:4] != (K, C):
            raise InputError(f"{self.name} needs observations of shape (B, N, K = {K}, C = {C}, D); got {shape}")
        B, N, _, _, D = shape
        if self.dimensions not in (None, D):
            raise InputError(f"{self.name} is built for D = {self.dimensions}; got observations of D = {D}")
        # Contiguous float32, as the kernel would be compiled anew for any other layout or type.
        known, accelerations = np.ascontiguousarray(observations, np.float32).reshape(B * N, -1), np.empty((B, N, D))
        common = known, self.network_args, accelerations.reshape(B * N, D)
        threads.run_parallel(
            evaluate_network, [(*common, *part) for part in threads.split_range(B * N, AGENTS_PER_THREAD)]
        )
        return accelerations


def make_chain_args(chain: Chain, folded: NDArray[np.float32]) -> tuple[Any, ...]:
    """Return the arguments of kernels for a chain with these folded weights."""
    return chain.table, folded, chain.input_activation, chain.acts_on_vectors


@kernel
def evaluate_network(observations: Array, network_args: Any, accelerations: Array, first: Index, last: Index) -> None:
    """Agents first .. last of observations (n, K * C * D) through a network, into accelerations (n, D)."""
    (table, folded, input_activation, acts_on_vectors), near, channels = network_args
    D = accelerations.shape[1]
    components = D if acts_on_vectors else 1
    # Rows for observations, whose padding stays zero, for what layers make of them, and for norms of vectors.
    inputs, widest = table[0, FOLDED_INPUTS], table[:, OUTPUTS].max()
    raw, known = np.zeros(components * inputs * LANES, np.float32), np.zeros(components * inputs * LANES, np.float32)
    made, bent = np.empty(components * widest * LANES, np.float32), np.empty(components * widest * LANES, np.float32)
    buffers = made, bent, make_scale_buffers(max(inputs, widest))
    near_obstacle = np.ones(LANES, np.bool_)
    for base in range(first, last, LANES):
        count = min(LANES, last - base)
        load_observations(observations, base, count, components, raw)
        x = activate(raw, input_activation, components, observations.shape[1] // components, buffers[2], known)
        _write_accelerations(
            _evaluate_chain(table, folded, components, x, buffers), base, count, near_obstacle, accelerations
        )
        # Those who know of an obstacle, if there are any, decide by weights of their own.
        if near.size > 0 and _find_near_obstacle(observations, base, count, channels, D, near_obstacle):
            _write_accelerations(
                _evaluate_chain(table, near, components, x, buffers), base, count, near_obstacle, accelerations
            )
            near_obstacle[:] = True


@kernel
def _evaluate_chain(table: Array, folded: Array, components: Index, x: Array, buffers: Any) -> Array:
    """What a chain with these weights makes of rows x."""
    made, bent, scales = buffers
    for k in range(len(table)):
        # Layers with nothing between them are multiplied out: only the last of them is computed.
        if k + 1 < len(table) and table[k, ACTIVATION] == IDENTITY:
            continue
        apply_layer(table[k], folded, components, x, made)
        outputs = table[k, OUTPUTS]
        size = components * outputs * LANES
        x = activate(made[:size], table[k, ACTIVATION], components, outputs, scales, bent[:size])
    return x


@kernel
def _write_accelerations(x: Array, base: Index, count: Index, mask: Array, accelerations: Array) -> None:
    """Write the one vector, or the D numbers, that are left, as accelerations of these lanes."""
    for lane in range(count):
        if mask[lane]:
            for d in range(accelerations.shape[1]):
                accelerations[base + lane, d] = x[d * LANES + lane]


@kernel
def _find_near_obstacle(
    observations: Array, base: Index, count: Index, channels: Any, D: Index, near_obstacle: Array
) -> bool:
    """Mark the lanes whose agents know of an obstacle, by themselves or from others: whether there are any.

    That is those in whose observations the channel of obstacles is other than zero in any hop.
    """
    width, channel = channels
    some = False
    for lane in range(count):
        near_obstacle[lane] = False
        for at in range(channel * D, observations.shape[1], width * D):
            for d in range(D):
                near_obstacle[lane] |= observations[base + lane, at + d] != 0.0
        some |= near_obstacle[lane]
    if not some:
        near_obstacle[:] = True
    return some


@kernel
def make_scale_buffers(rows: Index) -> Any:
    """Memory for the norms of so many rows of vectors, what they are scaled by, and bits of numbers."""
    return np.empty(rows * LANES, np.float32), np.empty(rows * LANES, np.float32), np.empty(rows * LANES, np.int32)


@kernel
def apply_layer(row: Array, folded: Array, components: Index, x: Array, y: Array) -> None:
    """Y = A_k x + c_k, for each component."""
    outputs, inputs = row[OUTPUTS], row[FOLDED_INPUTS]
    weights, biases = folded[row[FOLDED_OFFSET] :][: outputs * inputs], folded[row[FOLDED_BIAS_OFFSET] :][:outputs]
    for d in range(components):
        made = y[d * outputs * LANES : (d + 1) * outputs * LANES]
        apply_affine(weights, biases, inputs, x[d * inputs * LANES : (d + 1) * inputs * LANES], made)


@kernel
def activate(x: Array, activation: Index, components: Index, channels: Index, buffers: Any, y: Array) -> Array:
    """The activation of x, in y, which must not be x, or x itself if there is none.

    Of vectors, only the first `channels` are bent. `buffers` keeps their norms and what they were scaled by.
    """
    if activation == IDENTITY:
        return x
    if activation == TANH:
        tanh(x, y)
        return y
    # Scale-tanh and scale-log shorten vectors by a function of their norms.
    size, stride = channels * LANES, x.size // components
    norm, scale = buffers[0][:size], buffers[1][:size]
    compute_norms(x, stride, norm)
    if activation == SCALE_LOG:
        compute_log_scales(norm, scale, buffers[2][:size])
    else:
        compute_tanh_scales(norm, scale)
    scale_vectors(x, stride, scale, y)
    return y


@kernel
def load_observations(observations: Array, base: Index, count: Index, components: Index, x: Array) -> None:
    """Transpose the observations of `count` agents into rows; lanes beyond, and rows of padding, keep what they had."""
    block = observations[base : base + count]
    stride = x.size // components
    for c in range(np.uintp(block.shape[1])):
        # Component d of vector v; a number is a vector of one component.
        v, d = c // np.uintp(components), c % np.uintp(components)
        row = x[d * stride + v * LANES : d * stride + (v + 1) * LANES]
        for lane in range(count):
            row[lane] = block[lane, c]
