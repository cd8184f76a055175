"""Chains of layers as compiled functions, for flights: torch's numbers within 1e-5, without its overhead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from equiflock.controllers.networks.chain import (
    ACTIVATION,
    FOLDED,
    FOLDED_BIAS,
    FOLDED_INPUTS,
    NOTHING,
    OUTPUTS,
    SCALE_LOG,
    TANH,
    Chain,
    chain_of,
)
from equiflock.controllers.networks.lanes import (
    LANES,
    log_scales,
    norms,
    product,
    stretch,
    tanh,
    tanh_scales,
)
from equiflock.features import Senses
from equiflock.flock import Observations, Vectors
from equiflock.runtime import threads
from equiflock.runtime.checks import InputError
from equiflock.runtime.jit import Array, Index, kernel

if TYPE_CHECKING:
    from torch import nn

AGENTS_PER_THREAD = 4_000
"""Fewer agents than this are not worth a thread of their own."""


@dataclass(frozen=True)
class CompiledNetwork:
    """A network of the package as a function of observations (B, N, K, C, D) that returns accelerations (B, N, D)."""

    order_free: ClassVar[bool] = True
    """Each agent's acceleration depends on its own block alone, so agents may come in any order."""
    name: str
    senses: Senses
    dimensions: int | None
    """D that the network is built for; None if it takes any."""
    program: tuple[Any, ...]
    """What the kernel `decide` needs to know: the program of the chain; the folded weights of those who know of an
    obstacle, or none; and how many channels there are, and which of them tells of obstacles."""

    def __call__(self, observations: Observations) -> Vectors:
        """Accelerations, the same for any number of threads."""
        B, N, K, C, D = observations.shape
        if self.dimensions not in (None, D):
            raise InputError(f"{self.name} is built for D = {self.dimensions}; got observations of D = {D}")
        if (self.senses.hops, self.senses.width) != (K, C):
            raise InputError(
                f"{self.name} is built for K = {self.senses.hops} hops of C = {self.senses.width} channels; got "
                f"observations of K = {K}, C = {C}"
            )
        # Contiguous, as the kernel would be compiled anew for any other layout.
        known, accelerations = np.ascontiguousarray(observations).reshape(B * N, -1), np.empty((B, N, D))
        common = known, self.program, accelerations.reshape(B * N, D)
        threads.share(decide, [(*common, *part) for part in threads.split(B * N, AGENTS_PER_THREAD)])
        return accelerations


def compile_chain(
    name: str,
    senses: Senses,
    dimensions: int | None,
    modules: tuple[nn.Module, ...],
    near: tuple[nn.Module, ...] | None = None,
) -> CompiledNetwork | None:
    """A network that is a chain of our layers as a compiled function, with a copy of the weights that it has now.

    Args:
        name: of the network.
        senses: its observations.
        dimensions: D that it is built for, if it is.
        modules: the chain.
        near: a chain of the same shape for agents that know of an obstacle, by the first of the channels of obstacles.
    """
    chain, other = chain_of(modules, senses.hops), chain_of(near, senses.hops) if near else None
    if chain is None or (near and (other is None or not np.array_equal(chain.table, other.table))):
        return None
    folded, channel = (other.folded(), channel_of_obstacles(senses)) if other else (np.empty(0, np.float32), 0)
    program = program_of(chain, chain.folded()), folded, (senses.width, channel)
    return CompiledNetwork(name, senses, dimensions, program)


def channel_of_obstacles(senses: Senses) -> int | None:
    """The first channel among obstacles, which tells agents of them; None if there is none."""
    return next((c for c, feature in enumerate(senses.features) if feature.among == "obstacles"), None)


def trainable_chain(network: nn.Module) -> Chain | None:
    """The chain that a network is, if it has a compiled form and all of its weights may change; None if not."""
    compiled = getattr(network, "compiled_form", None)
    # Weights that only some agents use are another chain, beside the first.
    if compiled is None or not isinstance(compiled(), CompiledNetwork) or getattr(network, "near", None) is not None:
        return None
    if not all(parameter.requires_grad for parameter in network.parameters()):
        return None
    return chain_of(network.chain, network.senses.hops)  # type: ignore[arg-type, union-attr]


def program_of(chain: Chain, folded: NDArray[np.float32]) -> tuple[Any, ...]:
    """A chain with these folded weights as kernels take it."""
    return chain.table, folded, chain.before, chain.of_vectors


def is_as_built(network: nn.Module, kinds: tuple[type, ...]) -> bool:
    """Whether a network has just these layers, float32 weights, and no hooks or replaced methods."""
    if tuple(map(type, network.layers)) != kinds:  # type: ignore[arg-type]
        return False
    for module in network.modules():
        if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
            return False
    return all(str(parameter.dtype) == "torch.float32" for parameter in network.parameters())


@kernel
def decide(observations: Array, program: Any, accelerations: Array, first: Index, last: Index) -> None:
    """Agents first .. last of observations (n, K * C * D) through a network, into accelerations (n, D)."""
    (table, folded, before, of_vectors), near, channels = program
    D = accelerations.shape[1]
    components = D if of_vectors else 1
    # Rows for observations, whose padding stays zero, for what layers make of them, and for norms of vectors.
    inputs, widest = table[0, FOLDED_INPUTS], table[:, OUTPUTS].max()
    raw, known = np.zeros(components * inputs * LANES, np.float32), np.zeros(components * inputs * LANES, np.float32)
    made, bent = np.empty(components * widest * LANES, np.float32), np.empty(components * widest * LANES, np.float32)
    memory = made, bent, scale_memory(max(inputs, widest))
    wary = np.ones(LANES, np.bool_)
    for base in range(first, last, LANES):
        count = min(LANES, last - base)
        load(observations, base, count, components, raw)
        x = bend(raw, before, components, observations.shape[1] // components, memory[2], known)
        _keep(_through(table, folded, components, x, memory), base, count, wary, accelerations)
        # Those who know of an obstacle, if there are any, decide by weights of their own.
        if near.size > 0 and _find_wary(observations, base, count, channels, D, wary):
            _keep(_through(table, near, components, x, memory), base, count, wary, accelerations)
            wary[:] = True


@kernel
def _through(table: Array, folded: Array, components: Index, x: Array, memory: Any) -> Array:
    """What a chain with these weights makes of rows x."""
    made, bent, scales = memory
    for k in range(len(table)):
        # Layers with nothing between them are multiplied out: only the last of them is computed.
        if k + 1 < len(table) and table[k, ACTIVATION] == NOTHING:
            continue
        apply_layer(table[k], folded, components, x, made)
        outputs = table[k, OUTPUTS]
        size = components * outputs * LANES
        x = bend(made[:size], table[k, ACTIVATION], components, outputs, scales, bent[:size])
    return x


@kernel
def _keep(x: Array, base: Index, count: Index, whose: Array, accelerations: Array) -> None:
    """Write the one vector, or the D numbers, that are left, as accelerations of these lanes."""
    for lane in range(count):
        if whose[lane]:
            for d in range(accelerations.shape[1]):
                accelerations[base + lane, d] = x[d * LANES + lane]


@kernel
def _find_wary(observations: Array, base: Index, count: Index, channels: Any, D: Index, wary: Array) -> bool:
    """Mark the lanes whose agents know of an obstacle, by themselves or from others: whether there are any.

    That is those in whose observations the channel of obstacles is other than zero in any hop.
    """
    width, channel = channels
    some = False
    for lane in range(count):
        wary[lane] = False
        for at in range(channel * D, observations.shape[1], width * D):
            for d in range(D):
                wary[lane] |= observations[base + lane, at + d] != 0.0
        some |= wary[lane]
    if not some:
        wary[:] = True
    return some


@kernel
def scale_memory(rows: Index) -> Any:
    """Memory for the norms of so many rows of vectors, what they are scaled by, and bits of numbers."""
    return np.empty(rows * LANES, np.float32), np.empty(rows * LANES, np.float32), np.empty(rows * LANES, np.int32)


@kernel
def apply_layer(row: Array, folded: Array, components: Index, x: Array, y: Array) -> None:
    """Y = A_k x + c_k, for each component."""
    outputs, inputs = row[OUTPUTS], row[FOLDED_INPUTS]
    weights, biases = folded[row[FOLDED] :][: outputs * inputs], folded[row[FOLDED_BIAS] :][:outputs]
    for d in range(components):
        made = y[d * outputs * LANES : (d + 1) * outputs * LANES]
        product(weights, biases, inputs, x[d * inputs * LANES : (d + 1) * inputs * LANES], made)


@kernel
def bend(x: Array, activation: Index, components: Index, channels: Index, memory: Any, y: Array) -> Array:
    """The activation of x, in y, which must not be x, or x itself if there is none.

    Of vectors, only the first `channels` are bent. `memory` keeps their norms and what they were scaled by.
    """
    if activation == NOTHING:
        return x
    if activation == TANH:
        tanh(x, y)
        return y
    # Scale-tanh and scale-log shorten vectors by a function of their norms.
    size, stride = channels * LANES, x.size // components
    norm, scale = memory[0][:size], memory[1][:size]
    norms(x, stride, norm)
    if activation == SCALE_LOG:
        log_scales(norm, scale, memory[2][:size])
    else:
        tanh_scales(norm, scale)
    stretch(x, stride, scale, y)
    return y


@kernel
def load(observations: Array, base: Index, count: Index, components: Index, x: Array) -> None:
    """Transpose the observations of `count` agents into rows; lanes beyond, and rows of padding, keep what they had."""
    block = observations[base : base + count]
    stride = x.size // components
    for c in range(np.uintp(block.shape[1])):
        # Component d of vector v; a number is a vector of one component.
        v, d = c // np.uintp(components), c % np.uintp(components)
        row = x[d * stride + v * LANES : d * stride + (v + 1) * LANES]
        for lane in range(count):
            row[lane] = block[lane, c]
