"""The rollouts of DAgger whose tuples are in the replay, with the data needed to repeat them.

A rollout is a function of the recipe, its epoch and the network at the start of that epoch, because all random numbers
come from streams named by the seed and the epoch. Therefore a checkpoint stores the network of every such epoch, some
hundred kB in total, instead of the replay, which is a hundred times as large.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn


@dataclass(frozen=True)
class Rollout:
    """One flight of a training; two are equal if they added the same tuples at the same indices of the replay."""

    epoch: int
    """Number of epochs completed before it."""
    tuples_before: int
    """Number of tuples added to the replay before it."""
    tuples: int
    """Number of tuples it added."""
    checksum: int
    """CRC-32 of those tuples."""
    network: dict[str, Tensor] = field(compare=False)
    """Weights and buffers of the network at its start."""

    @property
    def tuples_after(self) -> int:
        """Number of tuples added to the replay up to its end."""
        return self.tuples_before + self.tuples


class RolloutHistory:
    """Rollouts with at least one tuple in a replay of this capacity, oldest first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._rollouts: deque[Rollout] = deque()

    def __len__(self) -> int:
        return len(self._rollouts)

    def __iter__(self) -> Iterator[Rollout]:
        return iter(self._rollouts)

    def add(self, rollout: Rollout) -> None:
        """Add a rollout, unless it has no tuples, and drop rollouts without a tuple left in the replay."""
        # A rollout that ended before its first step added no tuple.
        if rollout.tuples > 0:
            self._rollouts.append(rollout)
        while self._rollouts and self._rollouts[0].tuples_after <= rollout.tuples_after - self.capacity:
            self._rollouts.popleft()

    def clear(self) -> None:
        """Drop all rollouts."""
        self._rollouts.clear()


def copy_state_dict(network: nn.Module) -> dict[str, Tensor]:
    """Return copies of a network's weights and buffers by name; entries that are not tensors are left out."""
    state = network.state_dict().items()
    # The state of a module may hold other objects, which safetensors cannot store.
    return {name: tensor.detach().clone() for name, tensor in state if isinstance(tensor, Tensor)}


def compute_crc32(*arrays: NDArray[Any]) -> int:
    """Return the CRC-32 of the arrays' bytes, one array after another."""
    total = 0
    for array in arrays:
        total = zlib.crc32(np.ascontiguousarray(array).data, total)
    return total
