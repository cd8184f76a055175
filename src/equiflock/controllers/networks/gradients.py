"""Errors and gradients of a chain of layers over a batch of tuples, compiled.

A tuple is what the N agents of one flock observed, and the accelerations that they should have answered. Tuples are
kept as rows of agents, float32: for layers of vectors row d V + v is component d of the v-th of V vectors, for layers
of numbers row v is the v-th number. An activation before the first layer is applied when a tuple is packed, since no
weight comes before it. A batch goes through the network in blocks of `LANES` agents, forth and, while all that a block
needs is still in the processor's nearest cache, back again.

Arguments of these kernels:

    tuples   observations (T, rows, N) and targets (T, D, N)
    places   (b,), which of the T tuples are the batch
    program  of the network, as `compiled.program_of` makes it
    memory   as `batch_memory` makes it
    errors   (b,) float64, to which the sum over agents of |error|^2 is added
    shares   (b,) float32, the weight of each tuple's |error|^2 in what is differentiated
    turned   the folded matrices, transposed (`turn`)
    sums     partial sums (`lanes.PARTS` each) of the gradient of the folded weights, to which that of a batch is added
"""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.controllers.networks.chain import (
    ACTIVATION,
    FOLDED,
    FOLDED_BIAS,
    FOLDED_INPUTS,
    NOTHING,
    OUTPUTS,
    SCALE_LOG,
    TANH,
)
from equiflock.controllers.networks.compiled import apply_layer, bend, load, scale_memory
from equiflock.controllers.networks.lanes import (
    LANES,
    PARTS,
    TWO,
    ZERO,
    add_outer_product,
    add_rows,
    log_bends,
    product,
    stretch_slopes,
    tanh_bends,
    tanh_slopes,
)
from equiflock.runtime.jit import Array, Index, kernel

NOBODY = -1
"""The owner of a lane in which there is no agent."""


@kernel
def batch_memory(table: Array, components: Index, D: Index) -> Any:
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
    slopes = np.zeros(components * widest * LANES, np.float32), np.zeros(components * widest * LANES, np.float32)
    return agents, results, scale_memory(made), slopes, scale_memory(widest), np.zeros(widest, np.float32)


@kernel
def pack(observations: Array, before: Index, components: Index, rows: Array) -> None:
    """Write observations (T, N, K * C * D) as rows (T, K * C * D, N), bent by what comes before the first layer."""
    T, N, width = observations.shape
    channels = width // components
    raw, known = np.zeros(width * LANES, np.float32), np.zeros(width * LANES, np.float32)
    memory = scale_memory(channels)
    for t in range(T):
        for base in range(0, N, LANES):
            count = min(LANES, N - base)
            load(observations[t], base, count, components, raw)
            bent = bend(raw, before, components, channels, memory, known)
            for c in range(width):
                _copy(bent, c * LANES, count, rows[t, c], base)


@kernel
def add_errors(tuples: Any, places: Array, program: Any, memory: Any, errors: Array) -> None:
    """Add up |error|^2 of every tuple of a batch."""
    shares = np.zeros(len(places), np.float32)
    _, targets = tuples
    for base in range(0, len(places) * targets.shape[2], LANES):
        _gather(tuples, places, shares, base, program, memory)
        _begin_slopes(_forth(program, memory, targets.shape[1]), program, memory, errors)


@kernel
def add_gradient(
    tuples: Any, places: Array, shares: Array, program: Any, memory: Any, errors: Array, turned: Array, sums: Array
) -> None:
    """Add up |error|^2 of every tuple, and the gradient of the sum over tuples of shares times |error|^2."""
    _, targets = tuples
    for base in range(0, len(places) * targets.shape[2], LANES):
        _gather(tuples, places, shares, base, program, memory)
        result = _forth(program, memory, targets.shape[1])
        _begin_slopes(result, program, memory, errors)
        _back(program, memory, targets.shape[1], turned, sums)


@kernel
def turn(table: Array, folded: Array, turned: Array) -> None:
    """Transpose the folded matrices, each in its place."""
    for k in range(len(table)):
        outputs, inputs = table[k, OUTPUTS], table[k, FOLDED_INPUTS]
        A = folded[table[k, FOLDED] :][: outputs * inputs].reshape(outputs, inputs)
        turned[table[k, FOLDED] :][: outputs * inputs].reshape(inputs, outputs)[:] = A.T


@kernel
def _gather(tuples: Any, places: Array, shares: Array, base: Index, program: Any, memory: Any) -> None:
    """Copy a block of the batch's agents; lanes beyond the last agent are zero and have no share in the loss."""
    known, targets = tuples
    x, target, share, _, owner = memory[0]
    N, D, rows = targets.shape[2], targets.shape[1], known.shape[1]
    components = D if program[3] else 1
    # Rows of vectors are padded after each component.
    width, padding = rows // components, x.size // LANES // components - rows // components
    lane = 0
    while lane < LANES:
        # So many agents of one tuple are next.
        tuple_, agent = (base + lane) // N, (base + lane) % N
        if tuple_ >= len(places):
            count = LANES - lane
            x.reshape(-1, LANES)[:, lane:] = ZERO
            target.reshape(-1, LANES)[:, lane:] = ZERO
            share[lane:], owner[lane:] = ZERO, NOBODY
        else:
            count = min(N - agent, LANES - lane)
            its, wanted = known[places[tuple_]], targets[places[tuple_]]
            for row in range(rows):
                _copy(its[row], agent, count, x, (row + row // width * padding) * LANES + lane)
            for d in range(D):
                _copy(wanted[d], agent, count, target, d * LANES + lane)
            share[lane : lane + count] = shares[tuple_]
            owner[lane : lane + count] = tuple_
        lane += count


@kernel
def _copy(source: Array, first: Index, count: Index, target: Array, at: Index) -> None:
    part, place = source[first : first + count], target[at : at + count]
    for n in range(count):
        place[n] = part[n]


@kernel
def _forth(program: Any, memory: Any, D: Index) -> Any:
    """A block through all layers; returns the rows of the last, and keeps those of every layer."""
    table, folded, _, of_vectors = program
    components = D if of_vectors else 1
    x = memory[0][0]
    (made, bent), kept = memory[1], memory[2]
    at = 0
    for k in range(len(table)):
        outputs = table[k, OUTPUTS]
        first, last = components * at * LANES, components * (at + outputs) * LANES
        # Layers with nothing between them are multiplied out: only the last of them is computed.
        if k + 1 == len(table) or table[k, ACTIVATION] != NOTHING:
            apply_layer(table[k], folded, components, x, made[first:last])
            scales = kept[0][at * LANES :], kept[1][at * LANES :], kept[2][at * LANES :]
            x = bend(made[first:last], table[k, ACTIVATION], components, outputs, scales, bent[first:last])
        at += outputs
    return x


@kernel
def _begin_slopes(result: Array, program: Any, memory: Any, errors: Array) -> None:
    """Add up |error|^2 of each tuple, and begin the slopes with 2 share error."""
    _, target, share, squares, owner = memory[0]
    slopes = memory[3][0][: result.size]
    slopes[:], squares[:] = ZERO, ZERO
    for d in range(target.size // LANES):
        # The acceleration is the one vector, or the D numbers, that are left.
        answer, slope = result[d * LANES : (d + 1) * LANES], slopes[d * LANES : (d + 1) * LANES]
        wanted = target[d * LANES : (d + 1) * LANES]
        for lane in range(LANES):
            error = answer[lane] - wanted[lane]
            slope[lane] = TWO * share[lane] * error
            squares[lane] += error * error
    for lane in range(LANES):
        if owner[lane] != NOBODY:
            errors[owner[lane]] += squares[lane]


@kernel
def _back(program: Any, memory: Any, D: Index, turned: Array, sums: Array) -> None:
    """The slopes of a block back through all layers, each of which adds to its gradient."""
    table, _, _, of_vectors = program
    components = D if of_vectors else 1
    made, bent = memory[1]
    slopes, passed = memory[3]
    at = table[:, OUTPUTS].sum()
    for k in range(len(table) - 1, -1, -1):
        outputs, inputs = table[k, OUTPUTS], table[k, FOLDED_INPUTS]
        at -= outputs
        if k + 1 < len(table) and table[k, ACTIVATION] == NOTHING:
            continue
        first, last = components * at * LANES, components * (at + outputs) * LANES
        # Back through the activation, then into the gradient of c_k.
        its = slopes[: last - first]
        _bend_back(table[k, ACTIVATION], made[first:last], bent[first:last], components, at, memory, its)
        # What went into the layer: the result of the last layer before it that was computed, or observations.
        start = at
        row = k
        while row > 0 and table[row - 1, ACTIVATION] == NOTHING:
            row -= 1
            start -= table[row, OUTPUTS]
        x = memory[0][0] if row == 0 else bent[components * (start - inputs) * LANES : components * start * LANES]
        weights = sums[table[k, FOLDED] * PARTS :][: outputs * inputs * PARTS]
        biases = sums[table[k, FOLDED_BIAS] * PARTS :][: outputs * PARTS]
        across = turned[table[k, FOLDED] :][: outputs * inputs]
        for d in range(components):
            own = its[d * outputs * LANES : (d + 1) * outputs * LANES]
            # Layers of vectors have no bias.
            if not of_vectors:
                add_rows(own, biases)
            add_outer_product(own, x[d * inputs * LANES : (d + 1) * inputs * LANES], inputs, weights)
            # dL/dx = A_k^T dL/dy, which nothing needs of observations.
            if row > 0:
                product(across, memory[5], outputs, own, passed[d * inputs * LANES : (d + 1) * inputs * LANES])
        slopes, passed = passed, slopes


@kernel
def _bend_back(activation: Index, x: Array, y: Array, components: Index, at: Index, memory: Any, slopes: Array) -> None:
    """From dL/dy to dL/dx, in place, for y the activation of x."""
    if activation == NOTHING:
        return
    if activation == TANH:
        tanh_slopes(y, slopes)
        return
    # The norms and scales that were kept on the way forth.
    stride = x.size // components
    norm, scale = memory[2][0][at * LANES :][:stride], memory[2][1][at * LANES :][:stride]
    bends, inner = memory[4][0][:stride], memory[4][1][:stride]
    if activation == SCALE_LOG:
        log_bends(norm, scale, bends)
    else:
        tanh_bends(norm, scale, bends)
    stretch_slopes(x, stride, scale, bends, inner, slopes)
