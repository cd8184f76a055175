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
    """What the kernel `decide` needs to know: the table and folded weights of the chain, and how the chain begins."""

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
    name: str, senses: Senses, dimensions: int | None, modules: tuple[nn.Module, ...]
) -> CompiledNetwork | None:
    """A network that is a chain of our layers as a compiled function, with a copy of the weights that it has now."""
    chain = chain_of(modules, senses.hops)
    return None if chain is None else CompiledNetwork(name, senses, dimensions, program_of(chain, chain.folded()))


def trainable_chain(network: nn.Module) -> Chain | None:
    """The chain that a network is, if it has a compiled form and all of its weights may change; None if not."""
    compiled = getattr(network, "compiled_form", None)
    if compiled is None or not isinstance(compiled(), CompiledNetwork):
        return None
    if not all(parameter.requires_grad for parameter in network.parameters()):
        return None
    return chain_of(network.chain, network.senses.hops)  # type: ignore[arg-type, union-attr]


def program_of(chain: Chain, folded: NDArray[np.float32]) -> tuple[Any, ...]:
    """A chain with these folded weights as `decide` takes it."""
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
    table, folded, before, of_vectors = program
    D = accelerations.shape[1]
    components = D if of_vectors else 1
    # Rows for observations, whose padding stays zero, for what layers make of them, and for norms of vectors.
    inputs, widest = table[0, FOLDED_INPUTS], table[:, OUTPUTS].max()
    raw, known = np.zeros(components * inputs * LANES, np.float32), np.zeros(components * inputs * LANES, np.float32)
    made, bent = np.empty(components * widest * LANES, np.float32), np.empty(components * widest * LANES, np.float32)
    memory = scale_memory(max(inputs, widest))
    for base in range(first, last, LANES):
        count = min(LANES, last - base)
        load(observations, base, count, components, raw)
        x = bend(raw, before, components, observations.shape[1] // components, memory, known)
        for k in range(len(table)):
            # Layers with nothing between them are multiplied out: only the last of them is computed.
            if k + 1 < len(table) and table[k, ACTIVATION] == NOTHING:
                continue
            apply_layer(table[k], folded, components, x, made)
            outputs = table[k, OUTPUTS]
            size = components * outputs * LANES
            x = bend(made[:size], table[k, ACTIVATION], components, outputs, memory, bent[:size])
        # The acceleration is the one vector, or the D numbers, that are left.
        for lane in range(count):
            for d in range(D):
                accelerations[base + lane, d] = x[d * LANES + lane]


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
