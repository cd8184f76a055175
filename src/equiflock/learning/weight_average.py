"""Exponential average of a network's weights over the epochs of its training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from equiflock.learning.rollouts import copy_state_dict


class WeightAverage:
    """Exponential average of the weights w_1, w_2, .. over epochs, corrected for initialization bias:

        a_n = a_(n-1) + (w_n - a_(n-1)) (1 - d) / (1 - d^n),

    so a_1 = w_1, and a_n is the mean of w_1 .. w_n in which each epoch has 1 / d times the weight of the previous one.

    Args:
        network: network whose weights and buffers are averaged.
        decay: d, from 0 to 1.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.tensors: dict[str, Tensor] = copy_state_dict(network)

    def add(self, network: nn.Module, epoch: int) -> None:
        """Update the average with the weights after an epoch, counted from 1; integer buffers are copied."""
        share = (1.0 - self.decay) / (1.0 - self.decay**epoch)
        with torch.no_grad():
            for name, tensor in copy_state_dict(network).items():
                # Integer buffers are copied, not averaged.
                if tensor.is_floating_point():
                    self.tensors[name].lerp_(tensor, share)
                else:
                    self.tensors[name].copy_(tensor)

    def copy_into(self, network: nn.Module) -> None:
        """Load the averaged weights into a network."""
        network.load_state_dict(self.tensors)

    @contextmanager
    def swap_into(self, network: nn.Module) -> Iterator[None]:
        """Inside the block, load the averaged weights into a network; restore its own afterwards."""
        current = copy_state_dict(network)
        self.copy_into(network)
        try:
            yield
        finally:
            network.load_state_dict(current)

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the tensors of a checkpoint; raise ValueError if they belong to another network."""
        expected, received = (
            {name: tensor.shape for name, tensor in state.items()} for state in (self.tensors, tensors)
        )
        if expected != received:
            raise ValueError("its averaged weights belong to another network")
        for name, tensor in tensors.items():
            self.tensors[name].copy_(tensor)
