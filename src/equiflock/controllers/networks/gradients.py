"""Compiled kernels for the errors and gradients of a chain of layers over a batch of tuples.

A tuple is the observations of the N agents of one flock and the accelerations that the expert commanded. Tuples are
stored as float32 rows of agents: for layers of vectors row d V + v is component d of vector v, 0 <= v < V, for layers
of numbers row v is number v. An activation before the first layer is applied when a tuple is packed. A batch passes
through the network in blocks of `LANES` agents, forward and, while the block is still in the nearest cache, backward.

Arguments that several kernels share:

    tuples         all tuples, of which batches are drawn
    batch_indices  (b,) int64, indices of the batch's tuples
    chain_args     the network
    buffers        memory from `make_batch_buffers`
    errors         (b,) float64, to which each tuple's sum over agents of |error|^2 is added
    tuple_weights  (b,) float32, weight of each tuple's |error|^2 in the loss L (`equiflock.learning.loss`)
    transposed     the folded matrices, transposed (`transpose`)
    sums           `PARTIAL_SUMS` partial sums per folded weight, to which the gradient of the batch is added
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from equiflock._runtime.jit import Array, Index, kernel
from equiflock.controllers.networks.chain import (
    ACTIVATION,
    FOLDED_BIAS_OFFSET,
    FOLDED_INPUTS,
    FOLDED_OFFSET,
    IDENTITY,
    OUTPUTS,
    SCALE_LOG,
    TANH,
)
from equiflock.controllers.networks.compiled import (
    ChainArgs,
    ForwardBuffers,
    ScaleBuffers,
    activate,
    evaluate_chain,
    load_observations,
    make_forward_buffers,
    make_scale_buffers,
)
from equiflock.controllers.networks.lane_kernels import (
    LANES,
    PARTIAL_SUMS,
    TWO,
    ZERO,
    add_outer_product,
    add_rows,
    apply_affine,
    backpropagate_scaling,
    backpropagate_tanh,
    compute_log_derivatives,
    compute_tanh_derivatives,
)

NO_TUPLE = -1
"""Owner of a lane without an agent."""


class TrainingTuples(NamedTuple):
    """T tuples, packed as a learner reads them; the shapes here are those of compiled kernels."""

    observations: Array
    """float32 (T, rows, N)."""
    targets: Array
    """float32 (T, D, N): the expert's accelerations."""


class BlockBuffers(NamedTuple):
    """The agents of one block."""

    observations: Array
    """float32 (components * inputs * LANES,)."""
    targets: Array
    """float32 (D * LANES,)."""
    weights: Array
    """float32 (LANES,): weight of each agent's |error|^2 in the loss."""
    squared_errors: Array
    """float32 (LANES,)."""
    owners: Array
    """int64 (LANES,): index in the batch of each agent's tuple, or NO_TUPLE."""


class BatchBuffers(NamedTuple):
    """Memory for one block of agents on its way forward and backward through a network."""

    block: BlockBuffers
    forward: ForwardBuffers
    """Outputs of all layers, with norms and scales for each."""
    gradients: Array
    """float32 (components * widest layer * LANES,): dL/dy of a layer."""
    next_gradients: Array
    """float32, same shape: dL/dx, which becomes dL/dy of the layer before."""
    derivatives: ScaleBuffers
    """`norms` holds s' / |x| and `scales` holds (s' / |x|) <x, dL/dy>, with a row per output of the widest layer."""
    zero_bias: Array
    """float32 (widest layer,): zeros."""


@kernel
def make_batch_buffers(table: Array, components: Index, D: Index) -> BatchBuffers:
    """Return memory for one block of agents; `components` is D for layers of vectors, 1 for layers of numbers."""
    inputs, total = table[0, FOLDED_INPUTS], table[:, OUTPUTS].sum()
    widest = max(inputs, table[:, OUTPUTS].max())
    x, targets = np.zeros(components * inputs * LANES, np.float32), np.zeros(D * LANES, np.float32)
    weights, squares = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    size = components * widest * LANES
    return BatchBuffers(
        BlockBuffers(x, targets, weights, squares, np.zeros(LANES, np.int64)),
        make_forward_buffers(components, total, total),
        np.zeros(size, np.float32),
        np.zeros(size, np.float32),
        make_scale_buffers(widest),
        np.zeros(widest, np.float32),
    )


@kernel
def pack(observations: Array, input_activation: Index, components: Index, rows: Array) -> None:
    """Write observations (T, N, K * C * D) as rows (T, K * C * D, N), after the activation before the first layer."""
    T, N, width = observations.shape
    channels = width // components
    raw, y = np.zeros(width * LANES, np.float32), np.zeros(width * LANES, np.float32)
    buffers = make_scale_buffers(channels)
    for t in range(T):
        for base in range(0, N, LANES):
            count = min(LANES, N - base)
            load_observations(observations[t], base, count, components, raw)
            activated = activate(raw, input_activation, components, channels, buffers, y)
            for c in range(width):
                _copy(activated, c * LANES, count, rows[t, c], base)


@kernel
def add_squared_errors(
    tuples: TrainingTuples, batch_indices: Array, chain_args: ChainArgs, buffers: BatchBuffers, errors: Array
) -> None:
    """Add each tuple's sum over agents of |error|^2 to `errors`; the buffers are overwritten."""
    tuple_weights = np.zeros(len(batch_indices), np.float32)
    _, D, N = tuples.targets.shape
    for base in range(0, len(batch_indices) * N, LANES):
        _gather_block(tuples, batch_indices, tuple_weights, base, chain_args, buffers)
        _compute_errors(chain_args, buffers, D, errors)


@kernel
def add_gradient(
    tuples: TrainingTuples,
    batch_indices: Array,
    tuple_weights: Array,
    chain_args: ChainArgs,
    buffers: BatchBuffers,
    errors: Array,
    transposed: Array,
    sums: Array,
) -> None:
    """Add each tuple's |error|^2 to `errors`, and the gradient of L by the folded weights to `sums`."""
    _, D, N = tuples.targets.shape
    for base in range(0, len(batch_indices) * N, LANES):
        _gather_block(tuples, batch_indices, tuple_weights, base, chain_args, buffers)
        _compute_errors(chain_args, buffers, D, errors)
        _backward(chain_args, buffers, D, transposed, sums)


@kernel
def transpose(table: Array, folded: Array, transposed: Array) -> None:
    """Write the transposed folded matrices, each at the offset of its original."""
    for k in range(len(table)):
        outputs, inputs = table[k, OUTPUTS], table[k, FOLDED_INPUTS]
        A = folded[table[k, FOLDED_OFFSET] :][: outputs * inputs].reshape(outputs, inputs)
        transposed[table[k, FOLDED_OFFSET] :][: outputs * inputs].reshape(inputs, outputs)[:] = A.T


@kernel
def _gather_block(
    tuples: TrainingTuples,
    batch_indices: Array,
    tuple_weights: Array,
    base: Index,
    chain_args: ChainArgs,
    buffers: BatchBuffers,
) -> None:
    """Copy agents base .. base + LANES - 1 of the batch, counted tuple by tuple, into the block."""
    observations, targets = tuples.observations, tuples.targets
    block = buffers.block
    x, y, weights, owners = block.observations, block.targets, block.weights, block.owners
    N, D, rows = targets.shape[2], targets.shape[1], observations.shape[1]
    components = D if chain_args.acts_on_vectors else 1
    # Rows of vectors are padded after each component.
    width, padding = rows // components, x.size // LANES // components - rows // components
    lane = 0
    while lane < LANES:
        # `count` agents of one tuple come next.
        index, agent = (base + lane) // N, (base + lane) % N
        if index >= len(batch_indices):
            count = LANES - lane
            x.reshape(-1, LANES)[:, lane:] = ZERO
            y.reshape(-1, LANES)[:, lane:] = ZERO
            weights[lane:], owners[lane:] = ZERO, NO_TUPLE
        else:
            count = min(N - agent, LANES - lane)
            tuple_observations, tuple_targets = observations[batch_indices[index]], targets[batch_indices[index]]
            for row in range(rows):
                _copy(tuple_observations[row], agent, count, x, (row + row // width * padding) * LANES + lane)
            for d in range(D):
                _copy(tuple_targets[d], agent, count, y, d * LANES + lane)
            weights[lane : lane + count] = tuple_weights[index]
            owners[lane : lane + count] = index
        lane += count


@kernel
def _copy(source: Array, first: Index, count: Index, target: Array, at: Index) -> None:
    """Copy `count` numbers from source[first:] to target[at:]."""
    part, place = source[first : first + count], target[at : at + count]
    for n in range(count):
        place[n] = part[n]


@kernel
def _compute_errors(chain_args: ChainArgs, buffers: BatchBuffers, D: Index, errors: Array) -> None:
    """Evaluate the block, add each agent's |error|^2 to its tuple in `errors`, and set dL/dy = 2 weight error."""
    components, block = D if chain_args.acts_on_vectors else 1, buffers.block
    result = evaluate_chain(chain_args.table, chain_args.folded, components, block.observations, buffers.forward, True)
    targets, weights, squared_errors, owners = block.targets, block.weights, block.squared_errors, block.owners
    gradients = buffers.gradients[: result.size]
    gradients[:], squared_errors[:] = ZERO, ZERO
    for d in range(targets.size // LANES):
        # Row d of the result, one vector or D numbers, is component d of the acceleration.
        y, target = result[d * LANES : (d + 1) * LANES], targets[d * LANES : (d + 1) * LANES]
        dy = gradients[d * LANES : (d + 1) * LANES]
        for lane in range(LANES):
            error = y[lane] - target[lane]
            dy[lane] = TWO * weights[lane] * error
            squared_errors[lane] += error * error
    for lane in range(LANES):
        if owners[lane] != NO_TUPLE:
            errors[owners[lane]] += squared_errors[lane]


@kernel
def _backward(chain_args: ChainArgs, buffers: BatchBuffers, D: Index, transposed: Array, sums: Array) -> None:
    """Propagate the block's gradients back through all layers, and add dL/dA_k and dL/dc_k to `sums`."""
    table, acts_on_vectors = chain_args.table, chain_args.acts_on_vectors
    components = D if acts_on_vectors else 1
    block_inputs, activated, zero_bias = buffers.block.observations, buffers.forward.activated, buffers.zero_bias
    gradients, next_gradients = buffers.gradients, buffers.next_gradients
    at = table[:, OUTPUTS].sum()
    for k in range(len(table) - 1, -1, -1):
        outputs, inputs = table[k, OUTPUTS], table[k, FOLDED_INPUTS]
        at -= outputs
        if k + 1 < len(table) and table[k, ACTIVATION] == IDENTITY:
            continue
        first, last = components * at * LANES, components * (at + outputs) * LANES
        # Back through the activation: from the gradient of its result to dL/dy of the layer.
        dy = gradients[: last - first]
        x, y = buffers.forward.outputs[first:last], activated[first:last]
        _backpropagate_activation(table[k, ACTIVATION], x, y, components, at, buffers, dy)
        # The layer's input x: the activated outputs of the last computed layer before it, or the observations.
        start = at
        row = k
        while row > 0 and table[row - 1, ACTIVATION] == IDENTITY:
            row -= 1
            start -= table[row, OUTPUTS]
        x = block_inputs if row == 0 else activated[components * (start - inputs) * LANES : components * start * LANES]
        weights = sums[table[k, FOLDED_OFFSET] * PARTIAL_SUMS :][: outputs * inputs * PARTIAL_SUMS]
        biases = sums[table[k, FOLDED_BIAS_OFFSET] * PARTIAL_SUMS :][: outputs * PARTIAL_SUMS]
        A_T = transposed[table[k, FOLDED_OFFSET] :][: outputs * inputs]
        for d in range(components):
            dy_d = dy[d * outputs * LANES : (d + 1) * outputs * LANES]
            # dL/dc_k = dL/dy; layers of vectors have no bias.
            if not acts_on_vectors:
                add_rows(dy_d, biases)
            # dL/dA_k = dL/dy x^T.
            add_outer_product(dy_d, x[d * inputs * LANES : (d + 1) * inputs * LANES], inputs, weights)
            # dL/dx = A_k^T dL/dy, which is not needed for observations.
            if row > 0:
                apply_affine(
                    A_T, zero_bias, outputs, dy_d, next_gradients[d * inputs * LANES : (d + 1) * inputs * LANES]
                )
        gradients, next_gradients = next_gradients, gradients


@kernel
def _backpropagate_activation(
    activation: Index, x: Array, y: Array, components: Index, at: Index, buffers: BatchBuffers, gradients: Array
) -> None:
    """Turn `gradients` from dL/dy into dL/dx, in place, for y the activation of x; unchanged for IDENTITY.

    `at` is the first row of x among all layers' outputs, where the forward pass stored norms and scales.
    """
    if activation == IDENTITY:
        return
    if activation == TANH:
        backpropagate_tanh(y, gradients)
        return
    # The norms and scales of the forward pass.
    stride = x.size // components
    forward = buffers.forward.scales
    norms, scales = forward.norms[at * LANES :][:stride], forward.scales[at * LANES :][:stride]
    scale_derivatives, inner = buffers.derivatives.norms[:stride], buffers.derivatives.scales[:stride]
    if activation == SCALE_LOG:
        compute_log_derivatives(norms, scales, scale_derivatives)
    else:
        compute_tanh_derivatives(norms, scales, scale_derivatives)
    backpropagate_scaling(x, stride, scales, scale_derivatives, inner, gradients)
