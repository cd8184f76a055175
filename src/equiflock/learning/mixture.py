"""The controller of DAgger's flights: at each step either the expert or the pupil."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from equiflock.controllers.bridge import as_numpy_function
from equiflock.features import Senses
from equiflock.flock import Flock, Observations, Vectors
from equiflock.protocols import Controller, LocalController
from equiflock.senses.aggregation import DelayedAggregation
from equiflock.simulation.assembly import decision


class Mixture:
    """A controller that uses, at every step, the expert's accelerations with probability beta, else the pupil's.

    The expert is called at every step; `target` is its last result.

    Args:
        expert: any controller, privileged or not.
        pupil: a local controller, whose observations the flight makes.
        beta: the probability of the expert's acceleration.
        rng: draws one number per step.
        sensing: makes the expert's observations, whose channels and hops may differ from the pupil's.
    """

    privileged: Literal[True] = True

    def __init__(
        self,
        expert: Controller,
        pupil: LocalController,
        beta: float,
        rng: np.random.Generator,
        sensing: DelayedAggregation | None = None,
    ) -> None:
        self.senses: Senses = pupil.senses
        self.beta = beta
        self.rng = rng
        self.target: Vectors | None = None
        # In its compiled form, if it has one, with the weights that it has now.
        self._ask_pupil: Callable[..., NDArray[Any]] = as_numpy_function(pupil)
        self._ask_expert, _ = decision(expert)
        self._sensing = sensing or DelayedAggregation(expert.senses)

    def __call__(self, flock: Flock, observations: Observations) -> NDArray[Any]:
        """Accelerations (B, N, D) of the whole flock, all by the expert or all by the pupil."""
        # The expert's accelerations are the targets to learn, whoever flies.
        self.target = self._ask_expert(flock, self._sensing.hear(flock))
        if self.rng.random() < self.beta:
            return self.target
        # A copy, as these observations are read-only, and torch has no read-only tensors.
        return self._ask_pupil(observations.copy())
