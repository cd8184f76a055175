"""A controller as a chain of matrices: the lemmas "Conv1d as a linear layer" and "EqConv as a linear layer".

Without padding, and for input of one size, a convolution along the hops is a product with a fixed matrix. Its input's
channels stand end to end, X = [x[1], .. x[C]], each a row of its F hops, and so do those of its output: between input
channel c and output channel o stands the Toeplitz matrix T(c, o) with T(c, o)[f, g] = w[o, c, f - g]. So

    Conv1d:  [X, 1] [ T    0 ]  =  [Y, 1]        EqConv:  X T = Y
                    [ b I  M ]

where the columns of ones, one for each hop of the layer's output to which its bias is added, are passed on to the next
layer by M. For EqConv the rows are the D components of the vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from equiflock.controllers.networks.layers import Conv, EqConv
from equiflock.controllers.networks.models import as_module
from equiflock.features import Senses
from equiflock.runtime.checks import InputError


@runtime_checkable
class ChainController(Protocol):
    """A controller that is a sequence of layers and activations, such as those of the paper."""

    @property
    def senses(self) -> Senses:
        """The channels and hops of its observations."""
        ...

    @property
    def chain(self) -> Sequence[nn.Module]:
        """`Conv`s or `EqConv`s in their order, with the activations between them; the last is a convolution."""
        ...


@dataclass(frozen=True)
class MLP:
    """sigma_0(X) W_1, then sigma_1(.) W_2, .. sigma_(L-1)(.) W_L: the same function as the controller."""

    weights: tuple[Float[Tensor, "_ _"], ...]
    """W_1 .. W_L, each to be multiplied from the right."""
    activations: tuple[nn.Sequential, ...]
    """sigma_0 .. sigma_(L-1); none follows W_L. They leave the columns of ones as they are."""
    ones: tuple[int, ...]
    """How many columns of ones the input of each matrix ends with; none for equivariant layers."""
    equivariant: bool
    """Whether rows are the components of vectors, and activations act on columns."""

    @property
    def largest_dimension(self) -> int:
        """The largest number of rows or columns of any matrix."""
        return max(size for weight in self.weights for size in weight.shape)

    def build_input(self, observations: Float[Tensor, "B N K C D"]) -> Float[Tensor, "B N rows columns"]:
        """X of every agent, with its ones: a row of (channel, component, hop), or D rows of (channel, hop)."""
        hops_last = observations.movedim(2, -1)  # (B, N, C, D, K)
        if self.equivariant:
            return hops_last.movedim(3, 2).flatten(-2)
        ones = observations.new_ones(*observations.shape[:2], 1, self.ones[0])
        return torch.cat([hops_last.flatten(2)[:, :, None], ones], dim=-1)

    def __call__(self, observations: Float[Tensor, "B N K C D"]) -> Float[Tensor, "B N D"]:
        """Accelerations (B, N, D) from observations (B, N, K, C, D)."""
        return self.multiply(self.build_input(observations)).flatten(2)

    def multiply(self, x: Float[Tensor, "*batch rows columns"]) -> Float[Tensor, "*batch rows out"]:
        """The product of all layers for an input with its columns of ones."""
        for activation, weight, ones in zip(self.activations, self.weights, self.ones, strict=True):
            numbers, constant = x[..., : x.shape[-1] - ones], x[..., x.shape[-1] - ones :]
            # Activations take the components of vectors as the first axis.
            bent = activation(numbers.movedim(-2, 0)).movedim(0, -2)
            x = torch.cat([bent, constant], dim=-1) @ weight
        return x


def as_mlp(controller: object) -> MLP:
    """A controller of the paper's family as an MLP.

    Args:
        controller: a network of the package, or a torch module of your own with `senses` and a `chain` of layers.
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
            raise InputError(f"{type(module).__name__} in chain has weights that no matrix holds: only layers may")
        else:
            activations[-1].append(module)
    # Check that the layers are of one kind and fit each other, and that nothing follows the last.
    if not layers or len({type(layer) for layer in layers}) > 1:
        raise InputError("chain must hold Conv layers only or EqConv layers only, and at least one")
    if len(activations.pop()) > 0:
        raise InputError("chain must end with a convolution: nothing comes after the acceleration")
    for before, after in pairwise(layers):
        if before.weight.shape[0] != after.weight.shape[1]:
            sizes = f"{before.weight.shape[0]} channels out, {after.weight.shape[1]} in"
            raise InputError(f"chain must hold layers that fit each other; got {sizes}")
    # How many hops are left after each layer: a kernel of size k takes k - 1 of them; one must remain.
    places = [controller.senses.hops]
    for layer in layers:
        places.append(places[-1] - layer.weight.shape[2] + 1)
    if places[-1] != 1:
        raise InputError(f"chain must leave one of {controller.senses.hops} hops; its kernels leave {places[-1]}")
    # EqConv has no bias, so it needs no columns of ones.
    equivariant = isinstance(layers[0], EqConv)
    ones = (0,) * len(layers) if equivariant else tuple(places[1:])
    weights = [_build_matrix(layer, F, after) for layer, F, after in zip(layers, places, (*ones[1:], 0), strict=False)]
    return MLP(tuple(weights), tuple(activations), ones, equivariant)


def _build_matrix(layer: Conv | EqConv, places: int, ones_after: int) -> Float[Tensor, "a b"]:
    """A layer's matrix for input of so many hops, with columns for the ones that are passed on to the next layer."""
    with torch.no_grad():
        matrix = build_toeplitz(layer.weight, places)
        if isinstance(layer, EqConv):
            return matrix
        ones = places - layer.weight.shape[2] + 1
        # [X, 1] times [[T, 0], [b I, M]]: the bias of a channel is added at each of its hops.
        bias = torch.kron(layer.bias[None], torch.eye(ones).to(layer.bias))
        # Without padding a layer never has more hops than the one before, so M just drops the ones in excess.
        pass_on = torch.eye(ones, ones_after).to(matrix)
        above = torch.cat([matrix, matrix.new_zeros(len(matrix), ones_after)], dim=1)
        return torch.cat([above, torch.cat([bias, pass_on], dim=1)])


def build_toeplitz(weight: Float[Tensor, "o c k"], places: int) -> Float[Tensor, "a b"]:
    """The matrix (c F, o (F - k + 1)) of a convolution without padding over F places."""
    channels_out, channels_in, kernel = weight.shape
    left = places - kernel + 1
    # Output hop g is made of the input hops g .. g + k - 1, by the same weights for every g.
    blocks = weight.new_zeros(channels_in, places, channels_out, left)
    for place in range(left):
        blocks[:, place : place + kernel, :, place] = weight.permute(1, 2, 0)
    return blocks.flatten(2).flatten(0, 1)
