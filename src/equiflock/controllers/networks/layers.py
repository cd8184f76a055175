"""Layers over hops and channels, for numbers and for vectors (section 3 of the paper).

Numbers come as (.., F, C): F hops, C channels. Vectors come with their dimension in front, (D, .., F, C), so that every
operation runs over contiguous channels. Nothing here depends on D.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Conv1d along the hops without padding: (.., F, C) to (.., F - k + 1, C').

    Args:
        x: (.., F, C).
        weight: (C', C, k).
        bias: (C',).

    It is a matrix product of all windows of k hops, which for networks this small is much faster than torch's conv1d.
    """
    # A kernel of size 1 takes each hop by itself.
    if weight.shape[2] == 1:
        return functional.linear(x, weight.squeeze(2), bias)
    # Windows of k hops as rows (.., F - k + 1, k C), and the weights in the same order, (C', k C).
    windows = x.unfold(-2, weight.shape[2], 1).transpose(-1, -2).flatten(-2)
    return functional.linear(windows, weight.transpose(1, 2).flatten(1), bias)


def compose_layers(first: Conv | EqConv, second: Conv | EqConv) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of the one layer that equals two layers of kernel size 1 with nothing between them.

    W = W_2 W_1 and b = W_2 b_1 + b_2: the same function, without the largest matrix product of such a network.
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
        """Draw biases as torch's own convolutions do, uniform in [-1, 1] / sqrt(C k); until then they are zero."""
        _, channels_in, kernel_size = self.weight.shape
        bound = 1.0 / math.sqrt(channels_in * kernel_size)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """(.., F, C) to (.., F - k + 1, C')."""
        return convolve(x, self.weight, self.bias)


class EqConv(nn.Module):
    """A convolution of vectors: EqConv(x)[o] = sum over channels c and hops f of W[o, c, f] x_{c, f}.

    It adds up vectors times numbers, treats all components alike and has no bias, so it commutes with every orthogonal
    matrix, in any dimension.
    """

    def __init__(self, channels_in: int, channels_out: int, kernel_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels_out, channels_in, kernel_size))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """(D, .., F, C) to (D, .., F - k + 1, C')."""
        return convolve(x, self.weight)


class ScaleLog(nn.Module):
    """Scale-log, which shortens long vectors: x ln(1 + |x|) / |x|, and 0 at 0, where the derivative is the identity."""

    def forward(self, x: Tensor) -> Tensor:
        """(D, ..) to (D, ..)."""
        norm = _compute_norm(x)
        return x * (torch.log1p(norm) / norm)


class ScaleTanh(nn.Module):
    """Scale-tanh, which shortens short vectors: x tanh |x|, with derivative zero at 0."""

    def forward(self, x: Tensor) -> Tensor:
        """(D, ..) to (D, ..)."""
        return x * torch.tanh(_compute_norm(x))


def _compute_norm(x: Tensor) -> Tensor:
    """|x| along the first axis; 1e-15 in place of 0, whose root has no gradient."""
    return torch.sqrt((x * x).sum(0) + 1e-30)
