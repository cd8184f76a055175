"""Errors and gradients of a chain of layers over a batch of tuples, compiled.

A tuple is what the N agents of one flock observed, and the accelerations that they should have answered. Tuples are
kept as rows of agents, float32: for layers of vectors row d V + v is component d of the v-th of V vectors, for layers
of numbers row v is the v-th number. An activation before the first layer is applied when a tuple is packed, since no
weight comes before it. A batch goes through the network in blocks of `LANES` agents, forth and, while all that a block
needs is still in the processor's nearest cache, back again.

Arguments of these kernels:

    tuples   observations (T, rows, N) and targets (T, D, N)
    places   (b,), which of the T tuples are the batch
    program  of the network, as `compiled.make_chain_args` makes it
    memory   as `make_batch_buffers` makes it
    errors   (b,) float64, to which the sum over agents of |error|^2 is added
    shares   (b,) float32, the weight of each tuple's |error|^2 in what is differentiated
    turned   the folded matrices, transposed (`transpose`)
    sums     partial sums (`lanes.PARTIAL_SUMS` each) of the gradient of the folded weights, to which that of a batch is added
"""

from __future__ import annotations

from typing import Any

import numpy as np

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
from equiflock.controllers.networks.compiled import activate, apply_layer, load_observations, make_scale_buffers
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
from equiflock.runtime.jit import Array, Index, kernel

NO_TUPLE = -1
"""The owner of a lane in which there is no agent."""


@kernel
def make_batch_buffers(table: Array, components: Index, D: Index) -> Any:
    """Memory for one block of agents on its way through a network and back."""
    inputs, made = table[0, FOLDED_INPUTS], table[:, OUTPUTS].sum()
    widest = max(inputs, table[:, OUTPUTS].max())
    # Each agent's observations, targets, share in the loss, |error|^2, and the place of its tuple in the batch.
    agents = (
        np.zeros(components * inputs * LANES, np.float32),
        np.zeros(D * LANES, np.float32),
        np.zeros(LANES, np.float32),
        np.zeros(LANES, np.float32),
        np.zeros(LANES, np.int64),
    )
    # What each layer made, before and after its activation, and the norms and scales of the latter.
    results = np.zeros(components * made * LANES, np.float32), np.zeros(components * made * LANES, np.float32)
    # Slopes dL/dx, by turns in two arrays, and s' / |x| and <x, dL/dy> of vectors.
    gradients = np.zeros(components * widest * LANES, np.float32), np.zeros(components * widest * LANES, np.float32)
    return (
        agents,
        results,
        make_scale_buffers(made),
        gradients,
        make_scale_buffers(widest),
        np.zeros(widest, np.float32),
    )


@kernel
def pack(observations: Array, input_activation: Index, components: Index, rows: Array) -> None:
    """Write observations (T, N, K * C * D) as rows (T, K * C * D, N), bent by what comes before the first layer."""
    T, N, width = observations.shape
    channels = width // components
    raw, known = np.zeros(width * LANES, np.float32), np.zeros(width * LANES, np.float32)
    buffers = make_scale_buffers(channels)
    for t in range(T):
        for base in range(0, N, LANES):
            count = min(LANES, N - base)
            load_observations(observations[t], base, count, components, raw)
            bent = activate(raw, input_activation, components, channels, buffers, known)
            for c in range(width):
                _copy(bent, c * LANES, count, rows[t, c], base)


@kernel
def add_squared_errors(tuples: Any, batch_indices: Array, chain_args: Any, buffers: Any, errors: Array) -> None:
    """Add up |error|^2 of every tuple of a batch."""
    tuple_weights = np.zeros(len(batch_indices), np.float32)
    _, targets = tuples
    for base in range(0, len(batch_indices) * targets.shape[2], LANES):
        _gather_block(tuples, batch_indices, tuple_weights, base, chain_args, buffers)
        _start_backward(_forward(chain_args, buffers, targets.shape[1]), chain_args, buffers, errors)


@kernel
def add_gradient(
    tuples: Any,
    batch_indices: Array,
    tuple_weights: Array,
    chain_args: Any,
    buffers: Any,
    errors: Array,
    transposed: Array,
    sums: Array,
) -> None:
    """Add up |error|^2 of every tuple, and the gradient of the sum over tuples of shares times |error|^2."""
    _, targets = tuples
    for base in range(0, len(batch_indices) * targets.shape[2], LANES):
        _gather_block(tuples, batch_indices, tuple_weights, base, chain_args, buffers)
        result = _forward(chain_args, buffers, targets.shape[1])
        _start_backward(result, chain_args, buffers, errors)
        _backward(chain_args, buffers, targets.shape[1], transposed, sums)


@kernel
def transpose(table: Array, folded: Array, transposed: Array) -> None:
    """Transpose the folded matrices, each in its place."""
    for k in range(len(table)):
        outputs, inputs = table[k, OUTPUTS], table[k, FOLDED_INPUTS]
        A = folded[table[k, FOLDED_OFFSET] :][: outputs * inputs].reshape(outputs, inputs)
        transposed[table[k, FOLDED_OFFSET] :][: outputs * inputs].reshape(inputs, outputs)[:] = A.T


@kernel
def _gather_block(
    tuples: Any, batch_indices: Array, tuple_weights: Array, base: Index, chain_args: Any, buffers: Any
) -> None:
    """Copy a block of the batch's agents; lanes beyond the last agent are zero and have no share in the loss."""
    known, targets = tuples
    x, target, share, _, owner = buffers[0]
    N, D, rows = targets.shape[2], targets.shape[1], known.shape[1]
    components = D if chain_args[3] else 1
    # Rows of vectors are padded after each component.
    width, padding = rows // components, x.size // LANES // components - rows // components
    lane = 0
    while lane < LANES:
        # So many agents of one tuple are next.
        tuple_, agent = (base + lane) // N, (base + lane) % N
        if tuple_ >= len(batch_indices):
            count = LANES - lane
            x.reshape(-1, LANES)[:, lane:] = ZERO
            target.reshape(-1, LANES)[:, lane:] = ZERO
            share[lane:], owner[lane:] = ZERO, NO_TUPLE
        else:
            count = min(N - agent, LANES - lane)
            its, wanted = known[batch_indices[tuple_]], targets[batch_indices[tuple_]]
            for row in range(rows):
                _copy(its[row], agent, count, x, (row + row // width * padding) * LANES + lane)
            for d in range(D):
                _copy(wanted[d], agent, count, target, d * LANES + lane)
            share[lane : lane + count] = tuple_weights[tuple_]
            owner[lane : lane + count] = tuple_
        lane += count


@kernel
def _copy(source: Array, first: Index, count: Index, target: Array, at: Index) -> None:
    part, place = source[first : first + count], target[at : at + count]
    for n in range(count):
        place[n] = part[n]


@kernel
def _forward(chain_args: Any, buffers: Any, D: Index) -> Any:
    """A block through all layers; returns the rows of the last, and keeps those of every layer."""
    table, folded, _, acts_on_vectors = chain_args
    components = D if acts_on_vectors else 1
    x = buffers[0][0]
    (made, bent), kept = buffers[1], buffers[2]
    at = 0
    for k in range(len(table)):
        outputs = table[k, OUTPUTS]
        first, last = components * at * LANES, components * (at + outputs) * LANES
        # Layers with nothing between them are multiplied out: only the last of them is computed.
        if k + 1 == len(table) or table[k, ACTIVATION] != IDENTITY:
            apply_layer(table[k], folded, components, x, made[first:last])
            scales = kept[0][at * LANES :], kept[1][at * LANES :], kept[2][at * LANES :]
            x = activate(made[first:last], table[k, ACTIVATION], components, outputs, scales, bent[first:last])
        at += outputs
    return x


@kernel
def _start_backward(result: Array, chain_args: Any, buffers: Any, errors: Array) -> None:
    """Add up |error|^2 of each tuple, and begin the slopes with 2 share error."""
    _, target, share, squares, owner = buffers[0]
    gradients = buffers[3][0][: result.size]
    gradients[:], squares[:] = ZERO, ZERO
    for d in range(target.size // LANES):
        # The acceleration is the one vector, or the D numbers, that are left.
        answer, slope = result[d * LANES : (d + 1) * LANES], gradients[d * LANES : (d + 1) * LANES]
        wanted = target[d * LANES : (d + 1) * LANES]
        for lane in range(LANES):
            error = answer[lane] - wanted[lane]
            slope[lane] = TWO * share[lane] * error
            squares[lane] += error * error
    for lane in range(LANES):
        if owner[lane] != NO_TUPLE:
            errors[owner[lane]] += squares[lane]


@kernel
def _backward(chain_args: Any, buffers: Any, D: Index, transposed: Array, sums: Array) -> None:
    """The slopes of a block back through all layers, each of which adds to its gradient."""
    table, _, _, acts_on_vectors = chain_args
    components = D if acts_on_vectors else 1
    made, bent = buffers[1]
    gradients, passed = buffers[3]
    at = table[:, OUTPUTS].sum()
    for k in range(len(table) - 1, -1, -1):
        outputs, inputs = table[k, OUTPUTS], table[k, FOLDED_INPUTS]
        at -= outputs
        if k + 1 < len(table) and table[k, ACTIVATION] == IDENTITY:
            continue
        first, last = components * at * LANES, components * (at + outputs) * LANES
        # Back through the activation, then into the gradient of c_k.
        its = gradients[: last - first]
        _backpropagate_activation(
            table[k, ACTIVATION], made[first:last], bent[first:last], components, at, buffers, its
        )
        # What went into the layer: the result of the last layer before it that was computed, or observations.
        start = at
        row = k
        while row > 0 and table[row - 1, ACTIVATION] == IDENTITY:
            row -= 1
            start -= table[row, OUTPUTS]
        x = buffers[0][0] if row == 0 else bent[components * (start - inputs) * LANES : components * start * LANES]
        weights = sums[table[k, FOLDED_OFFSET] * PARTIAL_SUMS :][: outputs * inputs * PARTIAL_SUMS]
        biases = sums[table[k, FOLDED_BIAS_OFFSET] * PARTIAL_SUMS :][: outputs * PARTIAL_SUMS]
        across = transposed[table[k, FOLDED_OFFSET] :][: outputs * inputs]
        for d in range(components):
            own = its[d * outputs * LANES : (d + 1) * outputs * LANES]
            # Layers of vectors have no bias.
            if not acts_on_vectors:
                add_rows(own, biases)
            add_outer_product(own, x[d * inputs * LANES : (d + 1) * inputs * LANES], inputs, weights)
            # dL/dx = A_k^T dL/dy, which nothing needs of observations.
            if row > 0:
                apply_affine(across, buffers[5], outputs, own, passed[d * inputs * LANES : (d + 1) * inputs * LANES])
        gradients, passed = passed, gradients


@kernel
def _backpropagate_activation(
    activation: Index, x: Array, y: Array, components: Index, at: Index, buffers: Any, gradients: Array
) -> None:
    """From dL/dy to dL/dx, in place, for y the activation of x."""
    if activation == IDENTITY:
        return
    if activation == TANH:
        backpropagate_tanh(y, gradients)
        return
    # The norms and scales that were kept on the way forth.
    stride = x.size // components
    norm, scale = buffers[2][0][at * LANES :][:stride], buffers[2][1][at * LANES :][:stride]
    bends, inner = buffers[4][0][:stride], buffers[4][1][:stride]
    if activation == SCALE_LOG:
        compute_log_derivatives(norm, scale, bends)
    else:
        compute_tanh_derivatives(norm, scale, bends)
    backpropagate_scaling(x, stride, scale, bends, inner, gradients)
