"""The flights of DAgger whose tuples are in the replay, with what it takes to fly them again.

A flight is a function of the recipe, its epoch and the network at the beginning of that epoch, as all randomness comes
from streams named by the seed and the epoch. So a checkpoint keeps the network of every such epoch, some hundred kB in
all, rather than the replay, which is a hundred times as large.
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
    """One flight; two are equal if they added the same tuples to the replay at the same places."""

    epoch: int
    """How many epochs had been done before it."""
    tuples_before: int
    """How many tuples had been added to the replay before it."""
    tuples: int
    """How many tuples it added."""
    checksum: int
    """CRC-32 of those tuples."""
    network: dict[str, Tensor] = field(compare=False)
    """The network's weights and buffers when it began."""

    @property
    def tuples_after(self) -> int:
        """How many tuples had been added to the replay after it."""
        return self.tuples_before + self.tuples


class RolloutHistory:
    """The flights of which at least one tuple is still in a replay of some capacity, the oldest first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._rollouts: deque[Rollout] = deque()

    def __len__(self) -> int:
        return len(self._rollouts)

    def __iter__(self) -> Iterator[Rollout]:
        return iter(self._rollouts)

    def add(self, rollout: Rollout) -> None:
        """Keep a flight, and forget those of which it overwrote the last tuple."""
        # One that ended before its first step left nothing in the replay.
        if rollout.tuples > 0:
            self._rollouts.append(rollout)
        while self._rollouts and self._rollouts[0].tuples_after <= rollout.tuples_after - self.capacity:
            self._rollouts.popleft()

    def clear(self) -> None:
        """Forget all flights."""
        self._rollouts.clear()


def copy_state_dict(network: nn.Module) -> dict[str, Tensor]:
    """Copies of a network's weights and buffers, by their names."""
    state = network.state_dict().items()
    # A module may keep other things in its state, which no file of weights can hold.
    return {name: tensor.detach().clone() for name, tensor in state if isinstance(tensor, Tensor)}


def compute_crc32(*arrays: NDArray[Any]) -> int:
    """CRC-32 of these arrays, one after the other."""
    total = 0
    for array in arrays:
        total = zlib.crc32(np.ascontiguousarray(array).data, total)
    return total
