"""Kernels on rows of 128 agents that networks consist of: matrix products, activations, and their gradients.

A network is evaluated for `LANES` agents at once. Each number is a row of lanes, and rows are contiguous in a flat
array, so every inner loop is plain arithmetic along rows at constant distances, which the compiler vectorizes; outputs
must not overlap inputs. The sides of matrices are multiples of `BLOCK`, padded with zeros, so that products consist of
equal blocks that fit into registers. Functions without a vector instruction are built from operations that have one:
tanh is a quotient of polynomials, the logarithm a series that starts from the bits of a float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock._runtime.jit import Array, Index, fma, inline_kernel, kernel

LANES = 128
"""Number of agents per block."""
BLOCK = 4
"""Rows and columns of a block of a matrix."""
ROW_2, ROW_3, BLOCK_LANES = 2 * LANES, 3 * LANES, BLOCK * LANES
PARTIAL_SUMS = 16
"""Number of partial sums of a sum over lanes; lane n belongs to partial sum n modulo PARTIAL_SUMS."""
PARTIAL_SUMS_2, PARTIAL_SUMS_3, LANES_PER_ROUND = 2 * PARTIAL_SUMS, 3 * PARTIAL_SUMS, 4 * PARTIAL_SUMS

# float32 constants, since a Python float would promote everything to float64.
ZERO, ONE, TWO = np.float32(0), np.float32(1), np.float32(2)
TINY = np.float32(1e-30)
"""Added to |x|^2, so that the root has a gradient at 0."""
# tanh x = x P(x^2) / Q(x^2) for |x| <= TANH_LIMIT, beyond which tanh x rounds to 1 in float32. The coefficients are a
# least-squares fit of the relative error, which is at most 3e-7.
TANH_LIMIT = np.float32(8)
P0, P1, P2, P3, P4 = map(np.float32, (1.0, 0.13444518, 0.0035716216, 2.1895035e-05, 1.5230912e-08))
Q0, Q1, Q2, Q3, Q4 = map(np.float32, (1.0, 0.46777844, 0.026164534, 0.00034113298, 8.522653e-07))
LN_2 = np.float32(np.log(2))
# artanh s = s (1 + s^2 / 3 + s^4 / 5 + ..)
S3, S5, S7, S9, S11 = (np.float32(1 / n) for n in (3, 5, 7, 9, 11))
# A float32 is 2^(exponent - BIAS) (1 + mantissa / 2^EXPONENT_BITS).
EXPONENT_BITS, BIAS = np.int32(23), np.int32(127)
MANTISSA, BITS_OF_ONE = np.int32((1 << 23) - 1), np.int32(127 << 23)


def pad_size(count: int) -> int:
    """Round up to a multiple of `BLOCK`, except that 1 stays 1, as the last layer of vectors has one output."""
    return 1 if count == 1 else -(-count // BLOCK) * BLOCK


@kernel
def apply_affine(weights: Array, biases: Array, inputs: Index, x: Array, y: Array) -> None:
    """Set y = W x + b, for x of `inputs` rows and W in row-major order; numbers of rows are 1 or multiples of BLOCK."""
    outputs = y.size // LANES
    if outputs == 1 or inputs == 1:
        _apply_thin_affine(weights, biases, inputs, x, y)
        return
    for o in range(0, outputs, BLOCK):
        # Four rows of y start with their biases and accumulate four rows of x at a time, with 16 weights in registers.
        four, bias = y[o * LANES : o * LANES + BLOCK_LANES], biases[o : o + BLOCK]
        a0, b0, e0, f0 = bias[0], bias[1], bias[2], bias[3]
        for lane in range(LANES):
            four[lane], four[lane + LANES], four[lane + ROW_2], four[lane + ROW_3] = a0, b0, e0, f0
        w = weights[o * inputs : (o + BLOCK) * inputs]
        for c in range(0, inputs, BLOCK):
            a, b = w[c : c + BLOCK], w[inputs + c : inputs + c + BLOCK]
            e, f = w[2 * inputs + c : 2 * inputs + c + BLOCK], w[3 * inputs + c : 3 * inputs + c + BLOCK]
            a0, a1, a2, a3 = a[0], a[1], a[2], a[3]
            b0, b1, b2, b3 = b[0], b[1], b[2], b[3]
            e0, e1, e2, e3 = e[0], e[1], e[2], e[3]
            f0, f1, f2, f3 = f[0], f[1], f[2], f[3]
            rows = x[c * LANES : c * LANES + BLOCK_LANES]
            for lane in range(LANES):
                x0, x1 = rows[lane], rows[lane + LANES]
                x2, x3 = rows[lane + ROW_2], rows[lane + ROW_3]
                four[lane] = fma(a3, x3, fma(a2, x2, fma(a1, x1, fma(a0, x0, four[lane]))))
                four[lane + LANES] = fma(b3, x3, fma(b2, x2, fma(b1, x1, fma(b0, x0, four[lane + LANES]))))
                four[lane + ROW_2] = fma(e3, x3, fma(e2, x2, fma(e1, x1, fma(e0, x0, four[lane + ROW_2]))))
                four[lane + ROW_3] = fma(f3, x3, fma(f2, x2, fma(f1, x1, fma(f0, x0, four[lane + ROW_3]))))


@kernel
def _apply_thin_affine(weights: Array, biases: Array, inputs: Index, x: Array, y: Array) -> None:
    """Set y = W x + b for W of one row or one column."""
    for o in range(y.size // LANES):
        row, bias = y[o * LANES : (o + 1) * LANES], biases[o]
        if inputs == 1:
            w, first_row = weights[o], x[:LANES]
            for lane in range(LANES):
                row[lane] = fma(w, first_row[lane], bias)
            continue
        for lane in range(LANES):
            row[lane] = bias
        for c in range(0, inputs, BLOCK):
            w = weights[c : c + BLOCK]
            w0, w1, w2, w3 = w[0], w[1], w[2], w[3]
            rows = x[c * LANES : c * LANES + BLOCK_LANES]
            for lane in range(LANES):
                x0, x1, x2, x3 = rows[lane], rows[lane + LANES], rows[lane + ROW_2], rows[lane + ROW_3]
                row[lane] = fma(w3, x3, fma(w2, x2, fma(w1, x1, fma(w0, x0, row[lane]))))


@kernel
def add_outer_product(gradients: Array, x: Array, inputs: Index, sums: Array) -> None:
    """Add gradients[o] x[c] to the partial sums of (o, c): the gradient of W in y = W x, for gradients = dL/dy."""
    outputs = gradients.size // LANES
    if outputs == 1 or inputs == 1:
        _add_thin_outer_product(gradients, x, inputs, sums)
        return
    for o in range(outputs):
        for c in range(0, inputs, BLOCK):
            # The partial sums of (o, c) .. (o, c + 3), each of which accumulates four lanes at a time.
            four = sums[(o * inputs + c) * PARTIAL_SUMS :][:LANES_PER_ROUND]
            for first in range(0, LANES, LANES_PER_ROUND):
                a = gradients[o * LANES + first :][:LANES_PER_ROUND]
                b = x[c * LANES + first :][: ROW_3 + LANES_PER_ROUND]
                e, f, g = b[LANES:], b[ROW_2:], b[ROW_3:]
                for n in range(PARTIAL_SUMS):
                    a0, a1, a2, a3 = a[n], a[n + PARTIAL_SUMS], a[n + PARTIAL_SUMS_2], a[n + PARTIAL_SUMS_3]
                    four[n] = _fma_4(a0, a1, a2, a3, b, n, four[n])
                    four[n + PARTIAL_SUMS] = _fma_4(a0, a1, a2, a3, e, n, four[n + PARTIAL_SUMS])
                    four[n + PARTIAL_SUMS_2] = _fma_4(a0, a1, a2, a3, f, n, four[n + PARTIAL_SUMS_2])
                    four[n + PARTIAL_SUMS_3] = _fma_4(a0, a1, a2, a3, g, n, four[n + PARTIAL_SUMS_3])


@inline_kernel
def _fma_4(a0: Any, a1: Any, a2: Any, a3: Any, b: Array, n: Index, total: Any) -> Any:
    """Return total plus four products, with lanes n, n + PARTIAL_SUMS, .. of b as second factors."""
    return fma(
        a3, b[n + PARTIAL_SUMS_3], fma(a2, b[n + PARTIAL_SUMS_2], fma(a1, b[n + PARTIAL_SUMS], fma(a0, b[n], total)))
    )


@kernel
def _add_thin_outer_product(gradients: Array, x: Array, inputs: Index, sums: Array) -> None:
    """Do the same as `add_outer_product` for a matrix of one row or one column."""
    for o in range(gradients.size // LANES):
        for c in range(inputs):
            own = sums[(o * inputs + c) * PARTIAL_SUMS :][:PARTIAL_SUMS]
            for first in range(0, LANES, LANES_PER_ROUND):
                a, b = gradients[o * LANES + first :][:LANES_PER_ROUND], x[c * LANES + first :][:LANES_PER_ROUND]
                for n in range(PARTIAL_SUMS):
                    a0, a1, a2, a3 = a[n], a[n + PARTIAL_SUMS], a[n + PARTIAL_SUMS_2], a[n + PARTIAL_SUMS_3]
                    own[n] = _fma_4(a0, a1, a2, a3, b, n, own[n])


@kernel
def add_rows(rows: Array, sums: Array) -> None:
    """Add the lanes of row o to partial sums o * PARTIAL_SUMS .. (o + 1) * PARTIAL_SUMS - 1, for every row o."""
    for o in range(rows.size // LANES):
        own = sums[o * PARTIAL_SUMS :][:PARTIAL_SUMS]
        for first in range(0, LANES, LANES_PER_ROUND):
            a = rows[o * LANES + first :][:LANES_PER_ROUND]
            for n in range(PARTIAL_SUMS):
                own[n] += (a[n] + a[n + PARTIAL_SUMS]) + (a[n + PARTIAL_SUMS_2] + a[n + PARTIAL_SUMS_3])


@kernel
def finish_sums(sums: Array, totals: Array) -> None:
    """Set each total to the sum of its partial sums."""
    for n in range(totals.size):
        total, own = ZERO, sums[n * PARTIAL_SUMS :][:PARTIAL_SUMS]
        for part in range(PARTIAL_SUMS):
            total += own[part]
        totals[n] = total


@inline_kernel
def tanh_scalar(x: Any) -> Any:
    """Return tanh of one float32, with a relative error of at most 3e-7."""
    x = min(max(x, -TANH_LIMIT), TANH_LIMIT)
    z = x * x
    numerator = fma(fma(fma(fma(P4, z, P3), z, P2), z, P1), z, P0)
    return x * numerator / fma(fma(fma(fma(Q4, z, Q3), z, Q2), z, Q1), z, Q0)


@kernel
def tanh(x: Array, y: Array) -> None:
    """Compute y = tanh x elementwise."""
    for lane in range(x.size):
        y[lane] = tanh_scalar(x[lane])


@kernel
def backpropagate_tanh(y: Array, gradients: Array) -> None:
    """Turn dL/dy into dL/dx, in place, for y = tanh x: multiply by 1 - y^2."""
    for lane in range(y.size):
        gradients[lane] *= ONE - y[lane] * y[lane]


@kernel
def compute_norms(x: Array, stride: Index, norm: Array) -> None:
    """Set norm to sqrt(|x|^2 + TINY) of vectors with two or three components, which are `stride` apart in x.

    `norm` may be shorter than `stride`: the vectors after it are ignored.
    """
    size = norm.size
    u, v, w = x[:size], x[stride : stride + size], x[2 * stride : 2 * stride + size]
    if w.size == 0:
        for lane in range(size):
            norm[lane] = np.sqrt(fma(u[lane], u[lane], fma(v[lane], v[lane], TINY)))
    else:
        for lane in range(size):
            norm[lane] = np.sqrt(fma(u[lane], u[lane], fma(v[lane], v[lane], fma(w[lane], w[lane], TINY))))


@kernel
def compute_log_scales(norm: Array, scale: Array, bits: Array) -> None:
    """Set scale to ln(1 + norm) / norm.

    With u = 1 + norm = 2^k m as a float32, ln u = k ln 2 + 2 artanh s for s = (m - 1) / (m + 1). Dividing by u - 1
    instead of norm cancels the error of rounding u. The limit at 0 is 1.
    """
    mantissa = bits.view(np.float32)
    # u = 1 + norm, then k from its exponent bits and m from its mantissa.
    for lane in range(norm.size):
        mantissa[lane] = norm[lane] + ONE
    for lane in range(norm.size):
        scale[lane] = np.float32((bits[lane] >> EXPONENT_BITS) - BIAS)
        bits[lane] = (bits[lane] & MANTISSA) | BITS_OF_ONE
    # ln u = k ln 2 + 2 artanh s by its series, divided by u - 1.
    for lane in range(norm.size):
        s = (mantissa[lane] - ONE) / (mantissa[lane] + ONE)
        q = s * s
        series = fma(fma(fma(fma(fma(q, S11, S9), q, S7), q, S5), q, S3), q, ONE)
        difference = (norm[lane] + ONE) - ONE
        ratio = (scale[lane] * LN_2 + TWO * s * series) / (difference if difference > ZERO else ONE)
        scale[lane] = ratio if difference > ZERO else ONE


@kernel
def compute_tanh_scales(norm: Array, scale: Array) -> None:
    """Set scale to tanh |x|."""
    for lane in range(norm.size):
        scale[lane] = tanh_scalar(norm[lane])


@kernel
def scale_vectors(x: Array, stride: Index, scale: Array, y: Array) -> None:
    """Set y = scale x for every component, `stride` apart, of the first scale.size vectors; skip the others."""
    size = scale.size
    for at in range(0, x.size, stride):
        source, target = x[at : at + size], y[at : at + size]
        for lane in range(size):
            target[lane] = source[lane] * scale[lane]


@kernel
def backpropagate_scaling(
    x: Array, stride: Index, scale: Array, scale_derivatives: Array, inner: Array, gradients: Array
) -> None:
    """Turn dL/dy into dL/dx, in place, for y = s(|x|) x: s dL/dy + (s' / |x|) <x, dL/dy> x.

    `scale_derivatives` is s' / |x|, and `inner` is memory for (s' / |x|) <x, dL/dy>.
    """
    size = scale.size
    u, v = x[:size], x[stride : stride + size]
    du, dv = gradients[:size], gradients[stride : stride + size]
    for lane in range(size):
        inner[lane] = fma(u[lane], du[lane], v[lane] * dv[lane]) * scale_derivatives[lane]
    if x.size > 2 * stride:
        w, dw = x[2 * stride :], gradients[2 * stride :]
        for lane in range(size):
            inner[lane] = fma(w[lane], dw[lane] * scale_derivatives[lane], inner[lane])
    for at in range(0, x.size, stride):
        component, gradient = x[at : at + size], gradients[at : at + size]
        for lane in range(size):
            gradient[lane] = fma(scale[lane], gradient[lane], inner[lane] * component[lane])


@kernel
def compute_tanh_derivatives(norm: Array, scale: Array, scale_derivatives: Array) -> None:
    """Compute s' / |x| for s = tanh |x|, which is `scale`."""
    for lane in range(norm.size):
        scale_derivatives[lane] = (ONE - scale[lane] * scale[lane]) / norm[lane]


@kernel
def compute_log_derivatives(norm: Array, scale: Array, scale_derivatives: Array) -> None:
    """Compute s' / |x| = (1 / (1 + |x|) - s) / |x|^2 for s = ln(1 + |x|) / |x|, which is `scale`."""
    for lane in range(norm.size):
        scale_derivatives[lane] = (ONE / (ONE + norm[lane]) - scale[lane]) / norm[lane] / norm[lane]
