"""A network for kernels: a table of its layers, and all weights in one array.

Layers of vectors treat the D components of their vectors alike; layers of numbers have one component. The first layer
spans all hops, the others have kernels of size 1, so each layer is one matrix. The sides of matrices are padded with
zeros to a multiple of `lane_kernels.BLOCK`; padding stays zero in training, as its gradient is zero.

Layers without an activation between them are one linear map, and are folded into one before they are evaluated:

    A_k = W_k A_(k-1),    c_k = W_k c_(k-1) + b_k

with A_k = W_k and c_k = b_k for a layer after an activation. A_k and c_k are the `folded` weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

from equiflock._runtime.jit import Array, kernel
from equiflock.controllers.networks.architecture import Activation, Architecture, Convolution
from equiflock.controllers.networks.lane_kernels import pad_size

IDENTITY, TANH, SCALE_TANH, SCALE_LOG = range(4)
"""Activations after a layer."""
ACTIVATIONS: dict[Activation, int] = {"tanh": TANH, "scale-tanh": SCALE_TANH, "scale-log": SCALE_LOG}

(
    OUTPUTS,
    INPUTS,
    WEIGHTS_OFFSET,
    BIAS_OFFSET,
    ACTIVATION,
    FOLDED_INPUTS,
    FOLDED_OFFSET,
    FOLDED_BIAS_OFFSET,
    FOLDS_PREVIOUS,
    COLUMN_COUNT,
) = range(10)
"""Columns of the table: padded sides; offsets of weights and bias (-1: no bias); the activation after the layer; the
number of inputs and the offsets of A_k and c_k among the folded weights; and whether the layer before is folded in."""


class Layer(NamedTuple):
    """The weights of one convolution."""

    weight: Float32[np.ndarray, "outputs inputs hops"]
    bias: Float32[np.ndarray, " outputs"] | None


@dataclass(frozen=True, eq=False)
class Chain:
    """Layers, each a matrix, and activations in their order."""

    layers: tuple[Layer, ...]
    table: Int64[np.ndarray, "layers columns"]
    input_activation: int
    """Activation before the first layer, or IDENTITY."""
    acts_on_vectors: bool

    @property
    def input_width(self) -> int:
        """Number of vectors, or numbers, in the first layer's input."""
        return int(self.layers[0].weight[0].size)

    @property
    def size(self) -> int:
        """Number of weights, padding included."""
        last = self.table[-1]
        return int(max(last[WEIGHTS_OFFSET] + last[OUTPUTS] * last[INPUTS], last[BIAS_OFFSET] + last[OUTPUTS]))

    @property
    def folded_size(self) -> int:
        """Number of entries of A_k and c_k of all layers, padding included."""
        return int(self.table[-1, FOLDED_BIAS_OFFSET] + self.table[-1, OUTPUTS])

    def weights(self) -> Float32[np.ndarray, " size"]:
        """Return a copy of the layers' present weights and biases in one array, with zeros as padding."""
        flat = np.zeros(self.size, np.float32)
        for array, view in self._pair_views(flat):
            view[:] = array
        return flat

    def store(self, flat: Float32[np.ndarray, " size"]) -> None:
        """Copy weights from an array of `weights()` into the layers, in place; padding is ignored."""
        for array, view in self._pair_views(flat):
            array[:] = view

    def fold_weights(self) -> Float32[np.ndarray, " folded"]:
        """Return A_k and c_k of the present weights, in one array with the offsets of the table."""
        folded = np.empty(self.folded_size, np.float32)
        fold(self.table, self.weights(), folded)
        return folded

    def _pair_views(self, flat: Array) -> list[tuple[Array, Array]]:
        """Return pairs of views of equal shape, without padding: a layer's weight or bias, and its place in `flat`."""
        pairs = []
        for layer, row in zip(self.layers, self.table, strict=True):
            # Inputs in the memory order of observations: hop by hop.
            weight = layer.weight.transpose(0, 2, 1)
            outputs, K, C = weight.shape
            entries = flat[row[WEIGHTS_OFFSET] :][: row[OUTPUTS] * row[INPUTS]]
            matrix = entries.reshape(row[OUTPUTS], row[INPUTS])
            pairs.append((weight, matrix[:outputs, : K * C].reshape(outputs, K, C)))
            if layer.bias is not None:
                pairs.append((layer.bias, flat[row[BIAS_OFFSET] : row[BIAS_OFFSET] + outputs]))
        return pairs


def build_chain(architecture: Architecture, tensors: Mapping[str, Array], near: bool = False) -> Chain:
    """Return the chain of an architecture that `is_chain`, sharing memory with the float32 tensors.

    With `near`, its weights are those of agents near obstacles.
    """
    layers, activations = [], []
    for part, after in zip(architecture.parts, (*architecture.parts[1:], None), strict=True):
        if isinstance(part, Convolution):
            name = part.near if near else part.name
            layers.append(
                Layer(tensors[f"{name}.weight"], None if architecture.acts_on_vectors else tensors[f"{name}.bias"])
            )
            activations.append(ACTIVATIONS[after] if isinstance(after, str) else IDENTITY)
    first = architecture.parts[0]
    input_activation = ACTIVATIONS[first] if isinstance(first, str) else IDENTITY
    return Chain(tuple(layers), _build_table(layers, activations), input_activation, architecture.acts_on_vectors)


def _build_table(layers: Sequence[Layer], activations: Sequence[int]) -> Int64[np.ndarray, "layers columns"]:
    """Return the table of layers; activations[k] follows layer k, and IDENTITY makes layer k + 1 fold it in."""
    table = np.zeros((len(layers), COLUMN_COUNT), np.int64)
    at = folded_at = 0
    for k, (layer, row) in enumerate(zip(layers, table, strict=True)):
        outputs, inputs = pad_size(layer.weight.shape[0]), pad_size(layer.weight.shape[1] * layer.weight.shape[2])
        folds_previous = k > 0 and activations[k - 1] == IDENTITY
        folded_inputs = table[k - 1, FOLDED_INPUTS] if folds_previous else inputs
        row[[OUTPUTS, INPUTS, ACTIVATION]] = outputs, inputs, activations[k]
        row[[FOLDS_PREVIOUS, FOLDED_INPUTS]] = folds_previous, folded_inputs
        # Weight and bias of each layer, one after the other.
        row[WEIGHTS_OFFSET], at = at, at + outputs * inputs
        row[BIAS_OFFSET] = -1
        if layer.bias is not None:
            row[BIAS_OFFSET], at = at, at + outputs
        row[FOLDED_OFFSET], row[FOLDED_BIAS_OFFSET] = folded_at, folded_at + outputs * folded_inputs
        folded_at += outputs * folded_inputs + outputs
    return table


@kernel
def fold(table: Array, weights: Array, folded: Array) -> None:
    """Write A_k and c_k of every layer into `folded` (folded_size,), from `weights` (size,); c_k = 0 without bias."""
    for k in range(len(table)):
        outputs, inputs, width = table[k, OUTPUTS], table[k, INPUTS], table[k, FOLDED_INPUTS]
        W = weights[table[k, WEIGHTS_OFFSET] :][: outputs * inputs].reshape(outputs, inputs)
        A = folded[table[k, FOLDED_OFFSET] :][: outputs * width].reshape(outputs, width)
        c = folded[table[k, FOLDED_BIAS_OFFSET] :][:outputs]
        # c_k = b_k, or zero if the layer has no bias.
        for o in range(outputs):
            c[o] = weights[table[k, BIAS_OFFSET] + o] if table[k, BIAS_OFFSET] >= 0 else np.float32(0)
        # A_k = W_k. These are loops because Numba takes seconds to compile an assignment to a slice.
        if not table[k, FOLDS_PREVIOUS]:
            for o in range(outputs):
                for i in range(inputs):
                    A[o, i] = W[o, i]
            continue
        # A_k = W_k A_(k-1), c_k += W_k c_(k-1).
        A_before = folded[table[k - 1, FOLDED_OFFSET] :][: inputs * width].reshape(inputs, width)
        c_before = folded[table[k - 1, FOLDED_BIAS_OFFSET] :][:inputs]
        for o in range(outputs):
            for n in range(width):
                A[o, n] = np.float32(0)
            for i in range(inputs):
                c[o] += W[o, i] * c_before[i]
                for n in range(width):
                    A[o, n] += W[o, i] * A_before[i, n]


@kernel
def unfold(table: Array, weights: Array, folded: Array, folded_gradient: Array, gradient: Array) -> None:
    """Write the gradient of all weights to `gradient` (size,), from dL/dA_k and dL/dc_k in `folded_gradient`.

    For a layer that folds in the one before, dL/dW_k = dL/dA_k A_(k-1)^T + dL/dc_k c_(k-1)^T, and W_k^T dL/dA_k and
    W_k^T dL/dc_k are added to the entries of the layer before in `folded_gradient`. For other layers
    dL/dW_k = dL/dA_k. For all, dL/db_k = dL/dc_k.
    """
    for k in range(len(table) - 1, -1, -1):
        outputs, inputs, width = table[k, OUTPUTS], table[k, INPUTS], table[k, FOLDED_INPUTS]
        W = weights[table[k, WEIGHTS_OFFSET] :][: outputs * inputs].reshape(outputs, inputs)
        dW = gradient[table[k, WEIGHTS_OFFSET] :][: outputs * inputs].reshape(outputs, inputs)
        dA = folded_gradient[table[k, FOLDED_OFFSET] :][: outputs * width].reshape(outputs, width)
        dc = folded_gradient[table[k, FOLDED_BIAS_OFFSET] :][:outputs]
        # dL/db_k.
        if table[k, BIAS_OFFSET] >= 0:
            for o in range(outputs):
                gradient[table[k, BIAS_OFFSET] + o] = dc[o]
        if not table[k, FOLDS_PREVIOUS]:
            for o in range(outputs):
                for i in range(inputs):
                    dW[o, i] = dA[o, i]
            continue
        A_before = folded[table[k - 1, FOLDED_OFFSET] :][: inputs * width].reshape(inputs, width)
        c_before = folded[table[k - 1, FOLDED_BIAS_OFFSET] :][:inputs]
        # dL/dW_k, and the contributions to dL/dA_(k-1) and dL/dc_(k-1).
        dA_before = folded_gradient[table[k - 1, FOLDED_OFFSET] :][: inputs * width].reshape(inputs, width)
        dc_before = folded_gradient[table[k - 1, FOLDED_BIAS_OFFSET] :][:inputs]
        for o in range(outputs):
            for i in range(inputs):
                total = dc[o] * c_before[i]
                dc_before[i] += W[o, i] * dc[o]
                for n in range(width):
                    total += dA[o, n] * A_before[i, n]
                    dA_before[i, n] += W[o, i] * dA[o, n]
                dW[o, i] = total
