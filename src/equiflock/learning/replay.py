"""The replay buffer of DAgger, and the rollouts whose tuples are in it.

A rollout is a function of the recipe, its epoch and the network at the start of that epoch, because all random numbers
come from streams named by the seed and the epoch. Therefore a checkpoint stores the network of every such epoch, some
hundred kB in total, instead of the replay, which is a hundred times as large.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from torch import Tensor

from equiflock._runtime.checks import check_count
from equiflock._runtime.memory import check_fits_memory
from equiflock.features import PAPER_FEATURES
from equiflock.learning.loss import Tuples

if TYPE_CHECKING:
    from equiflock.learning.learner import Learner


class ReplayBuffer:
    """Ring buffer of tuples of N agents, in the memory layout of a learner; when full, it overwrites the oldest."""

    def __init__(self, capacity: int, agents: int, dimensions: int, learner: Learner) -> None:
        check_count("capacity", capacity)
        self.learner, self.agents = learner, agents
        shapes = learner.get_tuple_shapes(agents, dimensions)
        self.tuples = Tuples(*(np.zeros((capacity, *shape), np.float32) for shape in shapes))
        self.total_added = 0
        """Number of tuples ever added; the next is written at index `total_added % capacity`."""

    @property
    def capacity(self) -> int:
        """Largest number of tuples."""
        return len(self.tuples[0])

    def __len__(self) -> int:
        """Return the current number of tuples."""
        return min(self.total_added, self.capacity)

    def add(self, observations: Float[np.ndarray, "T N K C D"], targets: Float[np.ndarray, "T N D"]) -> None:
        """Add T tuples: observations, and the expert's accelerations."""
        done = 0
        while done < len(targets):
            # As many tuples as fit before the end of the ring.
            index = self.total_added % self.capacity
            count = min(len(targets) - done, self.capacity - index)
            part, ring = slice(done, done + count), slice(index, index + count)
            self.learner.pack(observations[part], targets[part], Tuples(*(array[ring] for array in self.tuples)))
            self.total_added, done = self.total_added + count, done + count


def check_memory(tuples: int, agents: int, hops: int, dimensions: int, channels: int = len(PAPER_FEATURES)) -> None:
    """Raise InputError if this many float32 tuples need more than the machine's physical memory, free or not."""
    size = 4 * tuples * agents * (channels * hops + 1) * dimensions  # bytes of float32
    purpose = f"a batch or buffer of {tuples:,} tuples of {agents:,} agents and {hops:,} hops"
    check_fits_memory(purpose, size, "lower capacity, batch, agents or hops")


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


class RolloutHistory(deque[Rollout]):
    """Rollouts with at least one tuple in a replay of this capacity, oldest first."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity

    def add(self, rollout: Rollout) -> None:
        """Add a rollout, unless it has no tuples, and drop rollouts without a tuple left in the replay."""
        if rollout.tuples > 0:
            self.append(rollout)
        while self and self[0].tuples_after <= rollout.tuples_after - self.capacity:
            self.popleft()
