"""The controller of DAgger's rollouts: at each step either the expert or the student acts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from equiflock.controllers.torch_bridge import as_numpy_function
from equiflock.features import Senses
from equiflock.flock import Flock, Observations, Vectors
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.protocols import AnyBody, Controller, FusedStep, LocalController, Sensing
from equiflock.simulation.flight_builder import make_decision_function
from equiflock.simulation.fused_step import FlockArrays, FusedTrainingStep, make_fused_training_step


class Mixture:
    """Controller that returns, at each step, the expert's accelerations with probability beta, else the student's.

    The expert is called at every step; `target` holds its last accelerations.

    Args:
        expert: any controller, privileged or not.
        student: a local controller, whose observations the flight computes.
        beta: the probability that the expert acts in a step.
        rng: generator of one number per step.
        sensing: computes the expert's observations, whose channels and hops may differ from the student's.
    """

    privileged: Literal[True] = True

    def __init__(
        self,
        expert: Controller,
        student: LocalController,
        beta: float,
        rng: np.random.Generator,
        sensing: DelayedAggregation | None = None,
    ) -> None:
        self.senses: Senses = student.senses
        self.beta = beta
        self.rng = rng
        self.target: Vectors | None = None
        self.expert = expert
        # The compiled form, if any, is a snapshot of the current weights.
        self.call_student: Callable[..., NDArray[Any]] = as_numpy_function(student)
        self._call_expert, _ = make_decision_function(expert)
        self.sensing = sensing or DelayedAggregation(expert.senses)
        self._restored_draw: float | None = None

    def __call__(self, flock: Flock, observations: Observations) -> NDArray[Any]:
        """Return the accelerations (B, N, D) of all agents, either all from the expert or all from the student."""
        # The expert's accelerations are the training targets in every step.
        self.target = self._call_expert(flock, self.sensing.observe(flock))
        if self.draw() < self.beta:
            return self.target
        # Copy, because these observations are read-only and torch has no read-only tensors.
        return self.call_student(observations.copy())

    def draw(self) -> float:
        """Return a uniform number from [0, 1); the expert acts if it is below beta.

        The first call after `restore_draw` returns the restored number instead.
        """
        number, self._restored_draw = self.rng.random() if self._restored_draw is None else self._restored_draw, None
        return number

    def restore_draw(self, number: float) -> None:
        """Make the next draw return this number, after a step that failed."""
        self._restored_draw = number

    def make_fused_step(self, sensing: Sensing, body: AnyBody) -> FusedStep | None:
        """Return the fused step, or None if this combination of expert, student, sensing and body is unsupported."""
        training_step = make_fused_training_step(self.expert, self.call_student, (self.sensing, sensing), body)
        return None if training_step is None else FusedMixtureStep(self, training_step)


class FusedMixtureStep:
    """Fused step of a flight under a mixture; implements `equiflock.protocols.FusedStep`.

    Args:
        mixture: draws whether expert or student acts, and stores the expert's accelerations.
        training_step: computes the step.
    """

    def __init__(self, mixture: Mixture, training_step: FusedTrainingStep) -> None:
        self.mixture = mixture
        self.fits = training_step.fits
        self._training_step = training_step
        self._target: Vectors = np.empty((0, 0, 0))

    def step(
        self,
        flock: Flock,
        state: FlockArrays,
        accelerations: Vectors,
        time_step: float,
        active: NDArray[Any],
        move_first: bool,
    ) -> Observations | None:
        """Move the flock if `move_first`, compute the observations of both policies, and let one write `accelerations`.

        Return the student's observations, or None if the step failed; the mixture, called for the same step, then draws
        the same number. `mixture.target` is set to the expert's accelerations.
        """
        mixture = self.mixture
        if self._target.shape != accelerations.shape:
            self._target = np.empty_like(accelerations)
        number = mixture.draw()
        arrays = flock, state, accelerations, self._target
        observations = self._training_step(
            *arrays, time_step, move_first=move_first, student_acts=number >= mixture.beta
        )
        # If the fused step fails, the caller calls the mixture for the same step.
        if observations is None:
            mixture.restore_draw(number)
        mixture.target = self._target
        return observations

    def skip(
        self, flock: Flock, state: FlockArrays, accelerations: Vectors, time_step: float, move_first: bool, steps: int
    ) -> bool:
        """Return False: no step can be skipped, because every step adds a tuple to the replay."""
        return False
