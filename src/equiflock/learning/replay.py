"""The memory of DAgger: the newest tuples of observations and expert's accelerations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from equiflock.features import PAPER_FEATURES
from equiflock.learning.learner_types import Tuples
from equiflock.runtime.checks import InputError, check_count
from equiflock.runtime.physical_memory import read_physical_memory

if TYPE_CHECKING:
    from equiflock.learning.learner import Learner


class ReplayBuffer:
    """A ring buffer of (observations, expert's accelerations) of whole flocks; when full, the oldest is overwritten.

    Args:
        capacity: how many tuples are kept.
        agents: N.
        dimensions: D.
        learner: reads the tuples, and says in which form they are kept.
    """

    def __init__(self, capacity: int, agents: int, dimensions: int, learner: Learner) -> None:
        check_count("capacity", capacity)
        known, wanted = learner.get_tuple_shapes(agents, dimensions)
        self.learner = learner
        self.agents = agents
        self.tuples = Tuples(np.zeros((capacity, *known), np.float32), np.zeros((capacity, *wanted), np.float32))
        """Observations and targets as the learner packed them."""
        self.total_added = 0
        """How many tuples were ever added; the next is written at index `total_added % capacity`."""

    @property
    def capacity(self) -> int:
        """How many tuples can be kept."""
        return len(self.tuples[0])

    def __len__(self) -> int:
        """How many tuples are kept now."""
        return min(self.total_added, self.capacity)

    def add(self, observations: Float[np.ndarray, "T N K C D"], targets: Float[np.ndarray, "T N D"]) -> None:
        """Keep tuples: every agent's observations, (T, N, K, C, D), and the expert's accelerations, (T, N, D)."""
        known, wanted = self.tuples
        done = 0
        while done < len(targets):
            # As many as fit before the ring's end.
            place = self.total_added % self.capacity
            count = min(len(targets) - done, self.capacity - place)
            part, ring = slice(done, done + count), slice(place, place + count)
            self.learner.pack(observations[part], targets[part], Tuples(known[ring], wanted[ring]))
            self.total_added, done = self.total_added + count, done + count


def check_memory(tuples: int, agents: int, hops: int, dimensions: int, channels: int = len(PAPER_FEATURES)) -> None:
    """Raise a clear error, before memory is allocated, if the machine has too little for this many tuples."""
    size = 4 * tuples * agents * (channels * hops + 1) * dimensions  # bytes of float32
    if size > read_physical_memory():
        raise InputError(
            f"{tuples:,} tuples of {agents:,} agents and {hops:,} hops need {size // 2**30:,} GiB of memory, more than "
            "this machine has: lower capacity or batch, or take fewer agents or hops"
        )
