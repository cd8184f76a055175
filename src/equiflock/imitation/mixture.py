"""The pilot that DAgger collects with: now the expert, now the pupil."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from equiflock.controllers.bridge import as_numpy_function
from equiflock.messages import DelayedAggregation
from equiflock.types import Flock, LocalController, Messages, OneHop, PrivilegedController, Vectors


class Mixture:
    """At every step the expert's acceleration with probability beta, else the pupil's.

    The expert is asked at every step; `target` is its last answer.

    Args:
        expert: a privileged controller.
        pupil: a local controller, whose messages the flight makes.
        beta: the probability.
        rng: decides.
    """

    privileged: Literal[True] = True

    def __init__(
        self,
        expert: PrivilegedController,
        pupil: LocalController,
        beta: float,
        rng: np.random.Generator,
    ) -> None:
        self.expert = expert
        self.hops: int = pupil.hops
        self.one_hop: OneHop = pupil.one_hop
        self.beta = beta
        self.rng = rng
        self.target: Vectors | None = None
        self._ask_pupil: Callable[..., NDArray[Any]] = as_numpy_function(pupil, learning=True)
        # The expert has its own ears: it may want other sums than the pupil.
        self._ears = DelayedAggregation(hops=expert.hops, one_hop=expert.one_hop)

    def __call__(self, flock: Flock, messages: Messages) -> NDArray[Any]:
        """Accelerations (B, N, D)."""
        self.target = self.expert(flock, self._ears.hear(flock))
        if self.rng.random() < self.beta:
            return self.target
        return self._ask_pupil(messages.copy())
