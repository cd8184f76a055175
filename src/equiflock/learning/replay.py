"""The memory of DAgger: the newest tuples of observations and expert's accelerations."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from equiflock.features import PAPER_FEATURES, Senses
from equiflock.runtime.checks import InputError, check_count
from equiflock.runtime.memory import physical_memory


class Replay:
    """A ring buffer of (observations, expert's accelerations) of whole flocks; when full, the oldest is overwritten.

    Args:
        capacity: how many tuples are kept.
        agents: N.
        senses: of the observations.
        dimensions: D.
    """

    def __init__(self, capacity: int, agents: int, senses: Senses, dimensions: int) -> None:
        check_count("capacity", capacity)
        check_fits(capacity, agents, senses.hops, dimensions, senses.width)
        self.observations = torch.zeros(capacity, agents, senses.hops, senses.width, dimensions)
        self.targets = torch.zeros(capacity, agents, dimensions)
        self.added = 0
        """How many tuples were ever added; the next is written at index `added % capacity`."""

    def __len__(self) -> int:
        """How many tuples are kept now."""
        return min(self.added, len(self.observations))

    def add(self, observations: Float[np.ndarray, "N K C D"], target: Float[np.ndarray, "N D"]) -> None:
        """Keep one tuple: every agent's observations, (N, K, C, D), and the expert's accelerations, (N, D)."""
        place = self.added % len(self.observations)
        # The tensors share their memory with these arrays.
        self.observations.numpy()[place] = observations
        self.targets.numpy()[place] = target
        self.added += 1

    def batch(self, places: Int64[np.ndarray, " batch"]) -> tuple[Tensor, Tensor]:
        """The tuples at these indices: observations (batch, N, K, C, D) and targets (batch, N, D)."""
        index = torch.from_numpy(places)
        return self.observations.index_select(0, index), self.targets.index_select(0, index)


def check_fits(tuples: int, agents: int, hops: int, dimensions: int, channels: int = len(PAPER_FEATURES)) -> None:
    """Raise a clear error, before memory is allocated, if the machine has too little for so many tuples."""
    size = 4 * tuples * agents * (channels * hops + 1) * dimensions  # bytes of float32
    if size > physical_memory():
        raise InputError(
            f"{tuples:,} tuples of {agents:,} agents and {hops:,} hops need {size // 2**30:,} GiB of memory, more than "
            "this machine has: lower capacity or batch, or take fewer agents or hops"
        )
