"""Networks as compiled functions of NumPy arrays: within 1e-5 of torch's results, without torch and its overhead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from equiflock._runtime import threads
from equiflock._runtime.checks import InputError
from equiflock._runtime.jit import Array, Index, kernel
from equiflock.controllers.gain_schedule import GainSchedule
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
    ZERO,
    apply_affine,
    compute_log_scales,
    compute_norms,
    compute_tanh_scales,
    scale_vectors,
    tanh,
)
from equiflock.features import Senses
from equiflock.flock import Observations, Vectors
from equiflock.observations.orbit import Orbit

AGENTS_PER_THREAD = 4_000
"""Smallest number of agents for which starting another thread pays."""
VECTORS_PER_PASS = 8
"""Vectors that a scale activation changes at a time."""


class ChainArgs(NamedTuple):
    """A `Chain` with its folded weights, float32 (folded_size,), as kernels take it."""

    table: Array
    folded: Array
    input_activation: Index
    acts_on_vectors: bool


class NetworkArgs(NamedTuple):
    """Arguments of `evaluate_network` that describe a network."""

    chain: ChainArgs
    near_weights: Array
    """float32 (folded_size,): folded weights of agents near obstacles; (0,) if the network has none."""
    channel_count: Index
    obstacle_channel: Index
    """Read only if there are `near_weights`."""


class ScaleBuffers(NamedTuple):
    """Memory for the scaling y = s(|x|) x of rows of vectors, each (rows * LANES,)."""

    norms: Array
    """float32: |x|."""
    scales: Array
    """float32: s(|x|)."""
    bits: Array
    """int32: workspace of `compute_log_scales`."""


class ForwardBuffers(NamedTuple):
    """Outputs of one layer, or of all layers, for one block of agents, before and after the activation."""

    outputs: Array
    """float32 (components * outputs of the widest layer, or of all layers, * LANES,)."""
    activated: Array
    """float32, same shape."""
    scales: ScaleBuffers


@dataclass(frozen=True, eq=False, repr=False)
class CompiledNetwork:
    """A network as a function of observations (B, N, K, C, D) that returns accelerations (B, N, D).

    The architecture must be one that `is_chain`. The float32 tensors are copied, so later changes have no effect.
    `orbit` has the parameters of the orbit technique that the weights were tuned with, if any. A call returns
    accelerations without the factor of the gain schedule, which flights apply at their time step.
    """

    order_independent: ClassVar[bool] = True
    """Each agent's acceleration depends on its own observation only, so agents may come in any order."""
    architecture: Architecture
    tensors: Mapping[str, NDArray[np.float32]]
    orbit: Orbit | None = None
    longest_time_step: float | None = None
    """Longest time step of the flights in training; None if unknown."""

    def __post_init__(self) -> None:
        copies = {name: np.array(self.tensors[name], np.float32) for name in self.architecture.tensor_shapes}
        object.__setattr__(self, "tensors", copies)

    def __repr__(self) -> str:
        return f"CompiledNetwork({self.name}, {self.size} weights)"

    @property
    def name(self) -> str:
        """Registered name of the network."""
        return self.architecture.name

    @property
    def senses(self) -> Senses:
        """Channels and hops of the observations."""
        return self.architecture.senses

    @property
    def dimensions(self) -> int | None:
        """D that the network is built for; None for any."""
        return self.architecture.dimensions

    @property
    def options(self) -> Mapping[str, Any]:
        """Options that recreate the architecture."""
        return self.architecture.options

    @property
    def gain_schedule(self) -> GainSchedule | None:
        """Factor on the accelerations at a sampling period; None for a constant gain."""
        return self.architecture.gain_schedule

    @property
    def size(self) -> int:
        """Number of weights."""
        return sum(tensor.size for tensor in self.tensors.values())

    @cached_property
    def packed_args(self) -> tuple[Any, ...]:
        """The `NetworkArgs` of the kernel `evaluate_network`, packed."""
        architecture = self.architecture
        chain = build_chain(architecture, self.tensors)
        near_weights, obstacle_channel = np.empty(0, np.float32), 0
        if architecture.near:
            near_weights = build_chain(architecture, self.tensors, near=True).fold_weights()
            obstacle_channel = architecture.obstacle_channel or 0
        return *make_chain_args(chain, chain.fold_weights()), near_weights, self.senses.width, obstacle_channel

    def compiled_form(self) -> CompiledNetwork:
        """Return the network itself."""
        return self

    def scale_output(self, factor: float) -> CompiledNetwork:
        """Return the network with accelerations multiplied by a factor, and a constant gain.

        The factor is multiplied into the last layer, so evaluation costs the same.
        """
        last = self.architecture.convolutions[-1]
        tensors = {
            name: tensor * np.float32(factor) if name.startswith((f"{last.name}.", f"{last.near}.")) else tensor
            for name, tensor in self.tensors.items()
        }
        return CompiledNetwork(self.architecture.without_gain_schedule(), tensors, self.orbit, self.longest_time_step)

    def __call__(self, observations: Observations) -> Vectors:
        """Return accelerations (B, N, D), computed on several threads; their number does not change the result."""
        shape, (K, C) = np.shape(observations), (self.senses.hops, self.senses.width)
        if len(shape) != 5 or shape[2:4] != (K, C):
            raise InputError(f"{self.name} needs observations of shape (B, N, K = {K}, C = {C}, D); got {shape}")
        B, N, _, _, D = shape
        if self.dimensions not in (None, D):
            raise InputError(f"{self.name} is built for D = {self.dimensions}; got observations of D = {D}")
        # Contiguous float32: Numba would compile the kernel again for any other layout or type.
        rows, accelerations = np.ascontiguousarray(observations, np.float32).reshape(B * N, -1), np.empty((B, N, D))
        common = rows, self.packed_args, accelerations.reshape(B * N, D)
        parts = threads.split_range(B * N, AGENTS_PER_THREAD)
        threads.run_parallel(evaluate_network, [(*common, *part) for part in parts])
        return accelerations


def make_chain_args(chain: Chain, folded: NDArray[np.float32]) -> ChainArgs:
    """Return the kernel arguments of a chain with these folded weights."""
    return ChainArgs(chain.table, folded, chain.input_activation, chain.acts_on_vectors)


@kernel
def unpack_network_args(packed: tuple[Any, ...]) -> NetworkArgs:
    """Return the arguments that `CompiledNetwork.packed_args` packs.

    At a call from Python every NamedTuple costs Numba about a microsecond, so a plain tuple crosses the border.
    """
    table, folded, input_activation, acts_on_vectors, near_weights, channel_count, obstacle_channel = packed
    chain = ChainArgs(table, folded, input_activation, acts_on_vectors)
    return NetworkArgs(chain, near_weights, channel_count, obstacle_channel)


@kernel
def evaluate_network(
    observations: Array, packed_args: tuple[Any, ...], accelerations: Array, first: Index, last: Index
) -> None:
    """Write accelerations (n, D) of agents first .. last - 1 from float32 observations (n, K * C * D)."""
    network_args = unpack_network_args(packed_args)
    chain, near_weights = network_args.chain, network_args.near_weights
    table, folded, input_activation = chain.table, chain.folded, chain.input_activation
    components = accelerations.shape[1] if chain.acts_on_vectors else 1
    # Rows for observations, whose padding stays zero, and for the outputs and norms of layers.
    inputs, widest = table[0, FOLDED_INPUTS], table[:, OUTPUTS].max()
    raw, loaded = np.zeros(components * inputs * LANES, np.float32), np.zeros(components * inputs * LANES, np.float32)
    buffers = make_forward_buffers(components, widest, max(inputs, widest))
    mask = np.ones(LANES, np.bool_)
    for base in range(first, last, LANES):
        count = min(LANES, last - base)
        load_observations(observations, base, count, components, raw)
        x = activate(raw, input_activation, components, observations.shape[1] // components, buffers.scales, loaded)
        y = evaluate_chain(table, folded, components, x, buffers, False)
        _write_accelerations(y, base, count, mask, accelerations)
        # Agents with an obstacle in their observations, if there are any, use `near_weights` instead.
        if near_weights.size > 0 and _find_near_obstacle(raw, components, count, network_args, mask):
            y = evaluate_chain(table, near_weights, components, x, buffers, False)
            _write_accelerations(y, base, count, mask, accelerations)
            mask[:] = True


@kernel
def evaluate_chain(
    table: Array, folded: Array, components: Index, x: Array, buffers: ForwardBuffers, keeps_all: bool
) -> Array:
    """Return the activated outputs of the last layer for the rows x: a view of `buffers`.

    With `keeps_all`, the outputs, norms and scales of every layer are kept one after the other; otherwise each layer
    overwrites those of the one before.
    """
    at = 0
    for k in range(len(table)):
        rows = table[k, OUTPUTS]
        first, last = components * at * LANES, components * (at + rows) * LANES
        # Layers without an activation between them are folded: only the last of them is computed.
        if k + 1 == len(table) or table[k, ACTIVATION] != IDENTITY:
            outputs, activated, scales = buffers.outputs[first:last], buffers.activated[first:last], buffers.scales
            apply_layer(table[k], folded, components, x, outputs)
            own_scales = ScaleBuffers(
                scales.norms[at * LANES :], scales.scales[at * LANES :], scales.bits[at * LANES :]
            )
            x = activate(outputs, table[k, ACTIVATION], components, rows, own_scales, activated)
        if keeps_all:
            at += rows
    return x


@kernel
def _write_accelerations(x: Array, base: Index, count: Index, mask: Array, accelerations: Array) -> None:
    """Copy the last layer's output x to agent base + lane, for lanes below `count` where the mask is True."""
    for lane in range(count):
        if mask[lane]:
            for d in range(accelerations.shape[1]):
                accelerations[base + lane, d] = x[d * LANES + lane]


@kernel
def _find_near_obstacle(x: Array, components: Index, count: Index, network_args: NetworkArgs, mask: Array) -> bool:
    """Set mask[lane] to whether the obstacle channel of the rows x is nonzero in any hop; return whether any is.

    Only lanes below `count` are valid. If the result is False, the whole mask is set to True.
    """
    stride = x.size // components
    mask[:] = False
    # Rows of the obstacle channel, one per hop and component; padding after the last hop is zero.
    for d in range(components):
        for at in range(network_args.obstacle_channel * LANES, stride, network_args.channel_count * LANES):
            row = x[d * stride + at :][:LANES]
            for lane in range(LANES):
                mask[lane] |= row[lane] != ZERO
    some = False
    for lane in range(count):
        some |= mask[lane]
    if not some:
        mask[:] = True
    return some


@kernel
def make_forward_buffers(components: Index, rows: Index, scale_rows: Index) -> ForwardBuffers:
    """Return uninitialized memory for this many rows of outputs, and of norms and scales."""
    size = components * rows * LANES
    return ForwardBuffers(np.empty(size, np.float32), np.empty(size, np.float32), make_scale_buffers(scale_rows))


@kernel
def make_scale_buffers(rows: Index) -> ScaleBuffers:
    """Return uninitialized memory for scaling this many rows of vectors."""
    size = rows * LANES
    return ScaleBuffers(np.empty(size, np.float32), np.empty(size, np.float32), np.empty(size, np.int32))


@kernel
def apply_layer(row: Array, folded: Array, components: Index, x: Array, y: Array) -> None:
    """Compute y = A_k x + c_k for each component; `row` is the layer's row of the table."""
    outputs, inputs = row[OUTPUTS], row[FOLDED_INPUTS]
    weights, biases = folded[row[FOLDED_OFFSET] :][: outputs * inputs], folded[row[FOLDED_BIAS_OFFSET] :][:outputs]
    for d in range(components):
        x_d, y_d = x[d * inputs * LANES : (d + 1) * inputs * LANES], y[d * outputs * LANES : (d + 1) * outputs * LANES]
        apply_affine(weights, biases, inputs, x_d, y_d)


@kernel
def activate(x: Array, activation: Index, components: Index, channels: Index, buffers: ScaleBuffers, y: Array) -> Array:
    """Write the activation of x to y, which must not overlap x, and return y; return x itself for IDENTITY.

    Scale activations change the first `channels` vectors only, and keep their norms and scales in `buffers`.
    """
    if activation == IDENTITY:
        return x
    if activation == TANH:
        tanh(x, y)
        return y
    # Scale-tanh and scale-log shorten vectors by a function of their norms.
    stride = x.size // components
    for first in range(0, channels, VECTORS_PER_PASS):
        # A few vectors at a time, which stay in the nearest cache from their norms to their scaling.
        begin, end = first * LANES, min(first + VECTORS_PER_PASS, channels) * LANES
        norms, scales = buffers.norms[begin:end], buffers.scales[begin:end]
        compute_norms(x[begin:], stride, norms)
        if activation == SCALE_LOG:
            compute_log_scales(norms, scales, buffers.bits[begin:end])
        else:
            compute_tanh_scales(norms, scales)
        scale_vectors(x[begin:], stride, scales, y[begin:])
    return y


@kernel
def load_observations(observations: Array, base: Index, count: Index, components: Index, x: Array) -> None:
    """Transpose the observations of agents base .. base + count - 1 into rows x; other lanes and padding are kept."""
    block = observations[base : base + count]
    stride = x.size // components
    for c in range(np.uintp(block.shape[1])):
        # Component d of vector v; a number is a vector of one component.
        v, d = c // np.uintp(components), c % np.uintp(components)
        row = x[d * stride + v * LANES : d * stride + (v + 1) * LANES]
        for lane in range(count):
            row[lane] = block[lane, c]
