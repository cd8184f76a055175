"""The controller of DAgger's flights: at each step either the expert or the pupil."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from equiflock.controllers.torch_bridge import as_numpy_function
from equiflock.features import Senses
from equiflock.flock import Flock, Observations, Vectors
from equiflock.protocols import AnyBody, Controller, FusedStep, LocalController, Sensing
from equiflock.senses.aggregation import DelayedAggregation
from equiflock.simulation.flight_builder import make_decision_function
from equiflock.simulation.fused_network_step import FlockArrays
from equiflock.simulation.fused_training_step import FusedTrainingStep, make_fused_training_step


class Mixture:
    """A controller that uses, at every step, the expert's accelerations with probability beta, else the pupil's.

    The expert is called at every step; `target` is its last result.

    Args:
        expert: any controller, privileged or not.
        student: a local controller, whose observations the flight makes.
        beta: the probability of the expert's acceleration.
        rng: draws one number per step.
        sensing: makes the expert's observations, whose channels and hops may differ from the pupil's.
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
        # In its compiled form, if it has one, with the weights that it has now.
        self.call_student: Callable[..., NDArray[Any]] = as_numpy_function(student)
        self._call_expert, _ = make_decision_function(expert)
        self.sensing = sensing or DelayedAggregation(expert.senses)
        self._restored_draw: float | None = None

    def __call__(self, flock: Flock, observations: Observations) -> NDArray[Any]:
        """Accelerations (B, N, D) of the whole flock, all by the expert or all by the pupil."""
        # The expert's accelerations are the targets to learn, whoever flies.
        self.target = self._call_expert(flock, self.sensing.observe(flock))
        if self.draw() < self.beta:
            return self.target
        # A copy, as these observations are read-only, and torch has no read-only tensors.
        return self.call_student(observations.copy())

    def draw(self) -> float:
        """The number that decides who flies this step."""
        number, self._restored_draw = self.rng.random() if self._restored_draw is None else self._restored_draw, None
        return number

    def restore_draw(self, number: float) -> None:
        """Let the next draw be this number again, for a step that was not made with it."""
        self._restored_draw = number

    def make_fused_step(self, sensing: Sensing, body: AnyBody) -> FusedStep | None:
        """A step that is one call, for a flight with these parts; None if an expert or pupil is not known to it."""
        training_step = make_fused_training_step(self.expert, self.call_student, (self.sensing, sensing), body)
        return None if training_step is None else FusedMixtureStep(self, training_step)


class FusedMixtureStep:
    """The step of a flight under a mixture, as `equiflock.protocols.FusedStep` describes it.

    Args:
        mixture: draws who flies, and is told the expert's accelerations.
        taught: makes the step.
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
        """Move the flock, let both sense, and let one of them decide."""
        mixture = self.mixture
        if self._target.shape != accelerations.shape:
            self._target = np.empty_like(accelerations)
        number = mixture.draw()
        arrays = flock, state, accelerations, self._target
        observations = self._training_step(
            *arrays, time_step, move_first=move_first, student_acts=number >= mixture.beta
        )
        # Where it fails the mixture is called after it, for the same step.
        if observations is None:
            mixture.restore_draw(number)
        mixture.target = self._target
        return observations

    def skip(
        self, flock: Flock, state: FlockArrays, accelerations: Vectors, time_step: float, move_first: bool, steps: int
    ) -> bool:
        """Nothing: every step of a lesson is one to learn from."""
        return False
