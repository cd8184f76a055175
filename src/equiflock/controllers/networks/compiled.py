"""The networks of the package as compiled functions, for flights: torch's numbers within 1e-5, without its overhead.

Sixty-four agents go through a network side by side, each number of theirs a row of `LANES`, so that every inner loop is
plain arithmetic along such a row, which the compiler turns into vector instructions by itself. Functions that it has no
vector instruction for, 2^x and ln x, are polynomials here, and powers of two are made and read as bits of a float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from numpy.typing import NDArray

from equiflock.controllers.networks.layers import Conv, EqConv, composed
from equiflock.features import Senses
from equiflock.flock import Observations, Vectors
from equiflock.runtime import threads
from equiflock.runtime.checks import InputError
from equiflock.runtime.jit import Array, Index, inlined, kernel

if TYPE_CHECKING:
    from torch import nn

LANES = 64
"""Agents that go through a network side by side."""
AGENTS_PER_THREAD = 4_000
"""Fewer agents than this are not worth a thread of their own."""

# Python's float 1.0 would turn all of this into float64.
ZERO, ONE, TWO = np.float32(0), np.float32(1), np.float32(2)
LN_2 = np.float32(np.log(2))
TWO_PER_LN_2 = np.float32(2 / np.log(2))
# 2^f for 0 <= f < 1, to 1e-7, as a polynomial of degree 6.
COEFFICIENTS = Chebyshev.interpolate(np.exp2, 6, domain=[0, 1]).convert(kind=Polynomial).coef
P0, P1, P2, P3, P4, P5, P6 = (np.float32(coefficient) for coefficient in COEFFICIENTS)
# artanh s = s (1 + s^2 / 3 + s^4 / 5 + ..)
S3, S5, S7, S9, S11 = (np.float32(1 / n) for n in (3, 5, 7, 9, 11))
# A float32 is 2^(exponent - BIAS) (1 + mantissa / 2^EXPONENT_BITS).
EXPONENT_BITS, BIAS = np.int32(23), np.int32(127)
MANTISSA, BITS_OF_ONE = np.int32((1 << 23) - 1), np.int32(127 << 23)


@dataclass(frozen=True)
class CompiledNetwork:
    """A network of the package as a function of observations (B, N, K, C, D) that returns accelerations (B, N, D)."""

    order_free: ClassVar[bool] = True
    """Each agent's acceleration depends on its own block alone, so agents may come in any order."""
    name: str
    senses: Senses
    dimensions: int | None
    """D, or None for any."""
    forward: Callable[..., None]
    """One of the kernels below."""
    weights: tuple[Array, ...]

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
        known, accelerations = observations.reshape(B * N, -1), np.empty((B, N, D))
        common = known, *self.weights, accelerations.reshape(B * N, D)
        threads.share(self.forward, [(*common, *part) for part in threads.split(B * N, AGENTS_PER_THREAD)])
        return accelerations


def is_as_built(network: nn.Module, kinds: tuple[type, ...]) -> bool:
    """Whether a network has just these layers, float32 weights, and no hooks or replaced methods."""
    if tuple(map(type, network.layers)) != kinds:  # type: ignore[arg-type]
        return False
    for module in network.modules():
        if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
            return False
    return all(str(parameter.dtype) == "torch.float32" for parameter in network.parameters())


def compile_equivariant(name: str, senses: Senses, first: EqConv, second: EqConv, third: EqConv) -> CompiledNetwork:
    """ETDAGNN as a compiled function, with a copy of the weights that it has now."""
    (outer,), _ = composed(second, third)
    return CompiledNetwork(name, senses, None, _equivariant, (_inner(first), _numbers(outer)))


def compile_plain(
    name: str, senses: Senses, dimensions: int, layers: tuple[Conv, Conv, Conv], second_tanh: bool
) -> CompiledNetwork:
    """A TDAGNN as a compiled function, with a copy of the weights that it has now."""
    first, second, third = layers
    rest: tuple[Any, ...]
    if second_tanh:
        rest = second.weight.squeeze(2), second.bias, third.weight.squeeze(2), third.bias
    else:
        nothing = second.bias[:0]
        rest = nothing[:, None], nothing, *composed(second, third)
    weights = _inner(first), *map(_numbers, (first.bias, *rest))
    return CompiledNetwork(name, senses, dimensions, _plain, weights)


def _inner(first: Conv | EqConv) -> NDArray[np.float32]:
    """The first layer's weights (C', K C) in the order in which observations lie in memory: hop by hop."""
    return _numbers(first.weight.transpose(1, 2).flatten(1))


def _numbers(tensor: Any) -> NDArray[np.float32]:
    """A copy of a tensor as a contiguous array."""
    return np.array(tensor.detach().numpy(), order="C")  # a copy, which training does not change


# Kernels. Agents first .. last of observations (n, K * C * D) into accelerations (n, D), by blocks of LANES.


@kernel
def _equivariant(
    observations: Array, inner: Array, outer: Array, accelerations: Array, first: Index, last: Index
) -> None:
    """ETDAGNN: scale-log, EqConv to C' channels by `inner` (C', V), scale-tanh, and `outer` (C',) to one vector."""
    channels, V = inner.shape
    D = accelerations.shape[1]
    x = np.zeros((V * D, LANES), np.float32)
    hidden, total = np.empty((D, LANES), np.float32), np.empty((D, LANES), np.float32)
    norm, scale, bits = _lane(), _lane(), np.empty(LANES, np.int32)
    for base in range(first, last, LANES):
        count = min(LANES, last - base)
        _load(observations, base, count, x)
        # ScaleLog of each of the V = K C vectors that an agent knows: x ln(1 + |x|) / |x|.
        for v in range(V):
            _norm(x[v * D : (v + 1) * D], norm)
            _scale_log(norm, scale, bits)
            for d in range(D):
                _multiply(x[v * D + d], scale)
        total[:] = ZERO
        for o in range(channels):
            # EqConv: channel o is a weighted sum of those vectors, component by component.
            for d in range(D):
                hidden[d] = ZERO
                _mix(inner[o], x[d::D], hidden[d])
            # ScaleTanh: h tanh |h|. The two layers after it, in which nothing bends, are one weight for each channel.
            _norm(hidden, norm)
            _tanh(norm, scale, bits)
            for d in range(D):
                _add_product(total[d], hidden[d], scale, outer[o])
        _store(total, base, count, accelerations)


@kernel
def _plain(
    observations: Array,
    inner: Array,
    inner_bias: Array,
    middle: Array,
    middle_bias: Array,
    outer: Array,
    outer_bias: Array,
    accelerations: Array,
    first: Index,
    last: Index,
) -> None:
    """TDAGNN: three layers, tanh after two. TDAGNN-TF: an empty `middle`, which is multiplied out in `outer`."""
    x = np.zeros((observations.shape[1], LANES), np.float32)
    hidden, bent = np.empty((len(inner), LANES), np.float32), np.empty((len(middle), LANES), np.float32)
    total = np.empty((len(outer), LANES), np.float32)
    bits = np.empty(LANES, np.int32)
    for base in range(first, last, LANES):
        count = min(LANES, last - base)
        _load(observations, base, count, x)
        # tanh(W_1 x + b_1), with the weights of all hops in one matrix.
        _layer(inner, inner_bias, x, hidden)
        for o in range(len(hidden)):
            _tanh(hidden[o], hidden[o], bits)
        # tanh(W_2 h + b_2), or nothing where `middle` is empty.
        _layer(middle, middle_bias, hidden, bent)
        for o in range(len(bent)):
            _tanh(bent[o], bent[o], bits)
        # W_3 h + b_3, the acceleration.
        _layer(outer, outer_bias, bent if len(middle) > 0 else hidden, total)
        _store(total, base, count, accelerations)


@inlined
def _lane() -> Array:
    """Memory for one number of every agent of a block."""
    return np.empty(LANES, np.float32)


@inlined
def _load(observations: Array, base: Index, count: Index, x: Array) -> None:
    """Transpose the observations of `count` agents into rows of lanes; lanes beyond keep what they had."""
    for lane in range(count):
        for c in range(x.shape[0]):
            x[c, lane] = observations[base + lane, c]


@inlined
def _store(total: Array, base: Index, count: Index, accelerations: Array) -> None:
    """Transpose the results of `count` agents back."""
    for lane in range(count):
        for d in range(total.shape[0]):
            accelerations[base + lane, d] = total[d, lane]


@inlined
def _layer(weights: Array, bias: Array, x: Array, y: Array) -> None:
    """y[o] = bias[o] + sum over c of weights[o, c] x[c]."""
    for o in range(len(y)):
        y[o] = bias[o]
        _mix(weights[o], x, y[o])


@inlined
def _mix(weights: Array, x: Array, y: Array) -> None:
    """Y += sum over c of weights[c] x[c], three rows at a time to load and store y less often."""
    thirds = len(weights) // 3 * 3
    for c in range(0, thirds, 3):
        a, b, w = weights[c], weights[c + 1], weights[c + 2]
        x_a, x_b, x_w = x[c], x[c + 1], x[c + 2]
        for lane in range(LANES):
            y[lane] += a * x_a[lane] + b * x_b[lane] + w * x_w[lane]
    for c in range(thirds, len(weights)):
        a, x_a = weights[c], x[c]
        for lane in range(LANES):
            y[lane] += a * x_a[lane]


@inlined
def _norm(vectors: Array, norm: Array) -> None:
    """|x| of vectors (D, LANES)."""
    x, y = vectors[0], vectors[1]
    if len(vectors) == 2:
        for lane in range(LANES):
            norm[lane] = np.sqrt(x[lane] * x[lane] + y[lane] * y[lane])
    else:
        z = vectors[2]
        for lane in range(LANES):
            norm[lane] = np.sqrt(x[lane] * x[lane] + y[lane] * y[lane] + z[lane] * z[lane])


@inlined
def _multiply(x: Array, scale: Array) -> None:
    """X *= scale."""
    for lane in range(LANES):
        x[lane] *= scale[lane]


@inlined
def _add_product(total: Array, x: Array, scale: Array, weight: Any) -> None:
    """Total += weight * scale * x."""
    for lane in range(LANES):
        total[lane] += weight * scale[lane] * x[lane]


@inlined
def _tanh(x: Array, y: Array, bits: Array) -> None:
    """Y = tanh x = sign(x) (1 - e) / (1 + e) with e = exp(-2 |x|) = 2^k 2^f, k whole and 0 <= f < 1."""
    # 2^k, by writing k into the exponent bits of a float32. Below 2^-126 it would not be a normal number.
    power = bits.view(np.float32)
    for lane in range(LANES):
        exponent = max(-abs(x[lane]) * TWO_PER_LN_2, np.float32(-126))
        bits[lane] = (np.int32(np.floor(exponent)) + BIAS) << EXPONENT_BITS
    # e = 2^k times the polynomial for 2^f, and tanh of it.
    for lane in range(LANES):
        exponent = max(-abs(x[lane]) * TWO_PER_LN_2, np.float32(-126))
        f = exponent - np.floor(exponent)
        e = power[lane] * ((((((P6 * f + P5) * f + P4) * f + P3) * f + P2) * f + P1) * f + P0)
        y[lane] = np.copysign((ONE - e) / (ONE + e), x[lane])


@inlined
def _scale_log(norm: Array, scale: Array, bits: Array) -> None:
    """Set scale to ln(1 + norm) / norm, and 1 at 0; `norm` becomes 1 + norm.

    With u = 1 + norm = 2^k m as a float32, ln u = k ln 2 + 2 artanh s for s = (m - 1) / (m + 1); and ln u / (u - 1) has
    none of the error that rounding u would bring to ln u / norm.
    """
    # u = 1 + norm, then k from its exponent bits and m from its mantissa.
    mantissa, norm_bits = bits.view(np.float32), norm.view(np.int32)
    for lane in range(LANES):
        norm[lane] += ONE
    for lane in range(LANES):
        scale[lane] = np.float32((norm_bits[lane] >> EXPONENT_BITS) - BIAS)
        bits[lane] = (norm_bits[lane] & MANTISSA) | BITS_OF_ONE
    # ln u = k ln 2 + 2 artanh s by its series, divided by u - 1; the limit at 0 is 1.
    for lane in range(LANES):
        s = (mantissa[lane] - ONE) / (mantissa[lane] + ONE)
        q = s * s
        series = ((((q * S11 + S9) * q + S7) * q + S5) * q + S3) * q + ONE
        above = norm[lane] - ONE
        ratio = (scale[lane] * LN_2 + TWO * s * series) / (above if above > ZERO else ONE)
        scale[lane] = ratio if above > ZERO else ONE
