"""The replay buffer of DAgger: the newest tuples of observations and expert's accelerations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from equiflock._runtime.checks import InputError, check_count
from equiflock._runtime.memory import read_physical_memory
from equiflock.features import PAPER_FEATURES
from equiflock.learning.loss import Tuples

if TYPE_CHECKING:
    from equiflock.learning.learner import Learner


class ReplayBuffer:
    """Ring buffer of (observations, expert's accelerations) of whole flocks; when full, it overwrites the oldest tuple.

    Args:
        capacity: largest number of tuples.
        agents: N.
        dimensions: D.
        learner: the learner that reads the tuples and defines their memory layout.
    """

    def __init__(self, capacity: int, agents: int, dimensions: int, learner: Learner) -> None:
        check_count("capacity", capacity)
        observation_shape, target_shape = learner.get_tuple_shapes(agents, dimensions)
        self.learner = learner
        self.agents = agents
        self.tuples = Tuples(
            np.zeros((capacity, *observation_shape), np.float32),
            np.zeros((capacity, *target_shape), np.float32),
        )
        """Observations and targets in the memory layout of the learner."""
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
        """Add T tuples, observations and the expert's accelerations; when full, the oldest are overwritten."""
        stored_observations, stored_targets = self.tuples
        done = 0
        while done < len(targets):
            # As many tuples as fit before the end of the ring.
            index = self.total_added % self.capacity
            count = min(len(targets) - done, self.capacity - index)
            part, ring = slice(done, done + count), slice(index, index + count)
            self.learner.pack(
                observations[part], targets[part], Tuples(stored_observations[ring], stored_targets[ring])
            )
            self.total_added, done = self.total_added + count, done + count


def check_memory(tuples: int, agents: int, hops: int, dimensions: int, channels: int = len(PAPER_FEATURES)) -> None:
    """Raise InputError if this many float32 tuples need more than the machine's physical memory, free or not."""
    size = 4 * tuples * agents * (channels * hops + 1) * dimensions  # bytes of float32
    if size > read_physical_memory():
        raise InputError(
            f"{tuples:,} tuples of {agents:,} agents and {hops:,} hops need {size // 2**30:,} GiB of memory, more than "
            "this machine has: lower capacity, batch, agents or hops"
        )
