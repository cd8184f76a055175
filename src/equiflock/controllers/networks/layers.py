"""Layers over hops and channels, for numbers and for vectors (section 3 of the paper).

Numbers have the shape (.., F, C): F hops, C channels. Vectors have their components first, (D, .., F, C), so that every
operation runs over contiguous channels. No layer depends on D.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the convolution along the hops without padding: (.., F, C) to (.., F - k + 1, C').

    Args:
        x: (.., F, C).
        weight: (C', C, k).
        bias: (C',).

    The matrix product over all windows of k hops is much faster than torch's conv1d for networks of this size.
    """
    # A kernel of size 1 acts on each hop separately.
    if weight.shape[2] == 1:
        return functional.linear(x, weight.squeeze(2), bias)
    # Windows of k hops as rows (.., F - k + 1, k C), and the weights in the same order, (C', k C).
    windows = x.unfold(-2, weight.shape[2], 1).transpose(-1, -2).flatten(-2)
    return functional.linear(windows, weight.transpose(1, 2).flatten(1), bias)


def compose_layers(first: Conv | EqConv, second: Conv | EqConv) -> tuple[Tensor, Tensor | None]:
    """Return weight and bias of the layer that equals two consecutive layers of kernel size 1.

    W = W_2 W_1, of shape (C'', C), and b = W_2 b_1 + b_2, or None for layers of vectors. This avoids the largest matrix
    product of the network.
    """
    # Equivariant layers have no bias.
    outer = second.weight.squeeze(2)
    bias = torch.addmv(second.bias, outer, first.bias) if isinstance(first, Conv) and isinstance(second, Conv) else None
    return outer @ first.weight.squeeze(2), bias


class Conv(nn.Module):
    """A convolution of numbers along the hops, with bias: (.., F, C) to (.., F - k + 1, C')."""

    def __init__(self, channels_in: int, channels_out: int, kernel_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels_out, channels_in, kernel_size))
        self.bias = nn.Parameter(torch.zeros(channels_out))
        nn.init.xavier_uniform_(self.weight)

    def draw_biases(self) -> None:
        """Draw biases as torch's convolutions do, uniform in [-1, 1] / sqrt(C k); they are zero before."""
        _, channels_in, kernel_size = self.weight.shape
        bound = 1.0 / math.sqrt(channels_in * kernel_size)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """Map (.., F, C) to (.., F - k + 1, C')."""
        return convolve(x, self.weight, self.bias)


class EqConv(nn.Module):
    """A convolution of vectors: EqConv(x)[o] = sum over channels c and hops f of W[o, c, f] x_{c, f}.

    The layer sums vectors times numbers, treats all components alike and has no bias, so it commutes with every
    orthogonal matrix, in any dimension.
    """

    def __init__(self, channels_in: int, channels_out: int, kernel_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels_out, channels_in, kernel_size))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Map (D, .., F, C) to (D, .., F - k + 1, C')."""
        return convolve(x, self.weight)


class ScaleLog(nn.Module):
    """Scale-log, which shortens long vectors: x ln(1 + |x|) / |x|, and 0 at 0, where the derivative is the identity."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (D, ..) to (D, ..)."""
        norm = _compute_norm(x)
        return x * (torch.log1p(norm) / norm)


class ScaleTanh(nn.Module):
    """Scale-tanh, which shortens short vectors: x tanh |x|, with derivative zero at 0."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (D, ..) to (D, ..)."""
        return x * torch.tanh(_compute_norm(x))


def _compute_norm(x: Tensor) -> Tensor:
    """Return |x| along the first axis, and 1e-15 instead of 0, where the root has no gradient."""
    return torch.sqrt((x * x).sum(0) + 1e-30)
