"""A controller as a chain of matrices: the lemmas "Conv1d as a linear layer" and "EqConv as a linear layer".

Without padding, and for input of a fixed size, a convolution along the hops is a product with a fixed matrix. The
channels of its input are concatenated, X = [x[1], .. x[C]], each a row of F hops, as are those of its output. The block
between input channel c and output channel o is the Toeplitz matrix T(c, o) with T(c, o)[f, g] = w[o, c, f - g]:

    Conv1d:  [X, 1] [ T    0 ]  =  [Y, 1]        EqConv:  X T = Y
                    [ b I  M ]

M passes the columns of ones, one per hop of the layer's output, to which its bias is added, on to the next layer. For
EqConv, the rows are the D components of the vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from equiflock._runtime.checks import InputError
from equiflock.controllers.networks.models import Conv, EqConv, as_module
from equiflock.features import Senses


@runtime_checkable
class ChainController(Protocol):
    """Controller that is a sequence of layers and activations, such as those of the paper."""

    @property
    def senses(self) -> Senses:
        """Channels and hops of its observations."""

    @property
    def chain(self) -> Sequence[nn.Module]:
        """`Conv` or `EqConv` layers in order, with the activations between them; the last is a convolution."""


@dataclass(frozen=True)
class MLP:
    """The function of a controller as sigma_0(X) W_1, then sigma_1(.) W_2, .. sigma_(L-1)(.) W_L."""

    weights: tuple[Float[Tensor, "_ _"], ...]
    """W_1 .. W_L, each multiplied from the right."""
    activations: tuple[nn.Sequential, ...]
    """sigma_0 .. sigma_(L-1); none follows W_L. They do not change the columns of ones."""
    ones: tuple[int, ...]
    """Number of columns of ones at the end of each matrix's input; 0 for equivariant layers."""
    equivariant: bool
    """Whether the rows are the components of vectors, so that activations act on columns."""

    @property
    def largest_dimension(self) -> int:
        """Largest number of rows or columns of any matrix."""
        return max(size for weight in self.weights for size in weight.shape)

    def build_input(self, observations: Float[Tensor, "B N K C D"]) -> Float[Tensor, "B N rows columns"]:
        """Return X of each agent: one row (channel, component, hop) with `ones[0]` ones, or D rows (channel, hop)."""
        hops_last = observations.movedim(2, -1)  # (B, N, C, D, K)
        if self.equivariant:
            return hops_last.movedim(3, 2).flatten(-2)
        ones = observations.new_ones(*observations.shape[:2], 1, self.ones[0])
        return torch.cat([hops_last.flatten(2)[:, :, None], ones], dim=-1)

    def __call__(self, observations: Float[Tensor, "B N K C D"]) -> Float[Tensor, "B N D"]:
        """Return the accelerations for these observations."""
        return self.multiply(self.build_input(observations)).flatten(2)

    def multiply(self, x: Float[Tensor, "*batch rows columns"]) -> Float[Tensor, "*batch rows out"]:
        """Apply all activations and matrices to the result of `build_input`; activations skip the columns of ones."""
        for activation, weight, ones in zip(self.activations, self.weights, self.ones, strict=True):
            numbers, constant = x[..., : x.shape[-1] - ones], x[..., x.shape[-1] - ones :]
            # Activations take the components of vectors as the first axis.
            activated = activation(numbers.movedim(-2, 0)).movedim(0, -2)
            x = torch.cat([activated, constant], dim=-1) @ weight
        return x


def as_mlp(controller: object) -> MLP:
    """Return a network of the package, or any torch module with `senses` and a `chain` of layers, as an MLP.

    Its weights are copies. Raise InputError if the chain mixes Conv and EqConv, has weights elsewhere, ends with an
    activation, or leaves more than one hop.
    """
    controller = as_module(controller)
    if not isinstance(controller, ChainController):
        raise InputError(
            "controller must be a network of the paper's family, with senses and a chain of Conv or EqConv layers and "
            f"activations; got {type(controller).__name__}"
        )
    # Split the chain into layers and the activations before each of them.
    layers: list[Conv | EqConv] = []
    activations = [nn.Sequential()]
    for module in controller.chain:
        if isinstance(module, (Conv, EqConv)):
            layers.append(module)
            activations.append(nn.Sequential())
        elif next(module.parameters(), None) is not None:
            raise InputError(f"chain must hold weights only in Conv or EqConv layers; got {type(module).__name__}")
        else:
            activations[-1].append(module)
    # Check that all layers have the same type and matching channels, and that no activation follows the last.
    if not layers or len({type(layer) for layer in layers}) > 1:
        raise InputError("chain must hold Conv layers only or EqConv layers only, and at least one")
    if len(activations.pop()) > 0:
        raise InputError("chain must end with a convolution, whose output is the acceleration")
    for before, after in pairwise(layers):
        if before.weight.shape[0] != after.weight.shape[1]:
            sizes = f"{before.weight.shape[0]} channels out, {after.weight.shape[1]} in"
            raise InputError(f"chain must hold layers with matching channels; got {sizes}")
    # Number of hops after each layer: a kernel of size k removes k - 1 of them, and one must remain.
    hops = [controller.senses.hops]
    for layer in layers:
        hops.append(hops[-1] - layer.weight.shape[2] + 1)
    if hops[-1] != 1:
        raise InputError(f"chain must leave one of {controller.senses.hops} hops; its kernels leave {hops[-1]}")
    # EqConv has no bias, so it needs no columns of ones.
    equivariant = isinstance(layers[0], EqConv)
    ones = (0,) * len(layers) if equivariant else tuple(hops[1:])
    weights = [_build_matrix(layer, F, after) for layer, F, after in zip(layers, hops, (*ones[1:], 0), strict=False)]
    return MLP(tuple(weights), tuple(activations), ones, equivariant)


def _build_matrix(layer: Conv | EqConv, hops: int, ones_after: int) -> Float[Tensor, "a b"]:
    """Return a layer's matrix for input of F = `hops` hops.

    For Conv it includes the rows of the bias and `ones_after` columns, which pass ones on to the next layer.
    """
    with torch.no_grad():
        matrix = build_toeplitz(layer.weight, hops)
        if isinstance(layer, EqConv):
            return matrix
        ones = hops - layer.weight.shape[2] + 1
        # [X, 1] [[T, 0], [b I, M]]: the bias of a channel is added at each of its hops.
        bias = torch.kron(layer.bias[None], torch.eye(ones).to(layer.bias))
        # Without padding, the number of hops never grows from layer to layer, so M drops the surplus ones.
        pass_on = torch.eye(ones, ones_after).to(matrix)
        above = torch.cat([matrix, matrix.new_zeros(len(matrix), ones_after)], dim=1)
        return torch.cat([above, torch.cat([bias, pass_on], dim=1)])


def build_toeplitz(weight: Float[Tensor, "o c k"], hops: int) -> Float[Tensor, "a b"]:
    """Return the matrix (c F, o (F - k + 1)) of a convolution without padding over F hops."""
    channels_out, channels_in, kernel = weight.shape
    hops_out = hops - kernel + 1
    # Output hop g depends on the input hops g .. g + k - 1, with the same weights for every g.
    blocks = weight.new_zeros(channels_in, hops, channels_out, hops_out)
    for g in range(hops_out):
        blocks[:, g : g + kernel, :, g] = weight.permute(1, 2, 0)
    return blocks.flatten(2).flatten(0, 1)
