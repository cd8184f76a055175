"""The average of a network's weights over the epochs of its training, in which late epochs count most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from equiflock.learning.rollouts import copy_state_dict


class WeightAverage:
    """An exponential average of weights w_1, w_2, .. over epochs, without the bias of its beginning:

        a_n = a_(n-1) + (w_n - a_(n-1)) (1 - d) / (1 - d^n),

    so a_1 = w_1, and a_n is the mean of all weights so far in which each epoch counts 1 / d as much as the one before.

    Args:
        network: whose weights and buffers are averaged.
        decay: d, from 0 to 1.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.tensors: dict[str, Tensor] = copy_state_dict(network)

    def add(self, network: nn.Module, epoch: int) -> None:
        """Count the weights that a network has after an epoch, the first of which has the number 1."""
        share = (1.0 - self.decay) / (1.0 - self.decay**epoch)
        with torch.no_grad():
            for name, tensor in copy_state_dict(network).items():
                # Of counters among the buffers there is no average.
                if tensor.is_floating_point():
                    self.tensors[name].lerp_(tensor, share)
                else:
                    self.tensors[name].copy_(tensor)

    def copy_into(self, network: nn.Module) -> None:
        """Let a network have the average as its weights."""
        network.load_state_dict(self.tensors)

    @contextmanager
    def swap_into(self, network: nn.Module) -> Iterator[None]:
        """Let a network have the average as its weights inside the block, and its own ones again afterwards."""
        own = copy_state_dict(network)
        self.copy_into(network)
        try:
            yield
        finally:
            network.load_state_dict(own)

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from the tensors of a checkpoint; ValueError if they are not of the same network."""
        shapes, found = ({name: each.shape for name, each in some.items()} for some in (self.tensors, tensors))
        if shapes != found:
            raise ValueError("the average of its weights is of other weights")
        for name, tensor in tensors.items():
            self.tensors[name].copy_(tensor)
