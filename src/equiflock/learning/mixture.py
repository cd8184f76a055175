"""The controller of DAgger's rollouts: at each step either the expert or the student acts."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from equiflock.controllers.gain_schedule import apply_gain_schedule, as_sampled_function, compute_gain
from equiflock.features import Senses
from equiflock.flock import Flock, Observations
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.protocols import AnyBody, Controller, FusedStep, LocalController, Sensing
from equiflock.simulation.flight_builder import make_decision_function
from equiflock.simulation.fused_step import make_fused_step


class Mixture:
    """Controller that returns, at each step, the expert's accelerations with probability beta, else the student's.

    The expert is called at every step; `target` holds its last accelerations.

    Args:
        expert: any controller, privileged or not.
        student: a local controller, whose observations the flight computes.
        beta: the probability that the expert acts in a step.
        rng: generator of one number per step.
        time_step: dt, which sets the gains of expert and student.
        sensing: computes the expert's observations, whose channels and hops may differ from the student's.
        gain_margin: further factor on the student's accelerations.
        latency: steps by which the student's messages are late, which lowers its gain.
    """

    privileged: Literal[True] = True

    def __init__(
        self,
        expert: Controller,
        student: LocalController,
        beta: float,
        rng: np.random.Generator,
        time_step: float,
        sensing: DelayedAggregation | None = None,
        gain_margin: float = 1.0,
        latency: int = 0,
    ) -> None:
        self.senses: Senses = student.senses
        self.beta = beta
        self.rng = rng
        self.target: NDArray[Any] | None = None
        self.expert = apply_gain_schedule(expert, time_step)
        self._call_expert, _ = make_decision_function(self.expert, time_step)
        # Targets do not depend on the latency; only the student's flown gain does.
        self.student_gain = compute_gain(student, time_step)
        flown_gain = compute_gain(student, time_step, latency) * gain_margin
        # The compiled form, if any, is a snapshot of the current weights.
        self.call_student = as_sampled_function(student, flown_gain)
        self.sensing = sensing or DelayedAggregation(expert.senses)
        self._expert_acts: bool | None = None

    def __call__(self, flock: Flock, observations: Observations) -> NDArray[Any]:
        """Return the accelerations (B, N, D) of all agents, either all from the expert or all from the student."""
        # The expert's accelerations are the training targets in every step.
        target = self._call_expert(flock, self.sensing.observe(flock))
        expert_acts = self.draw()
        self.end_step(target)
        # Copy, because these observations are read-only and torch has no read-only tensors.
        return target if expert_acts else self.call_student(observations.copy())

    def draw(self) -> bool:
        """Return whether the expert acts in this step, drawn with probability beta; the same until `end_step`."""
        if self._expert_acts is None:
            self._expert_acts = bool(self.rng.random() < self.beta)
        return self._expert_acts

    def end_step(self, target: NDArray[Any]) -> None:
        """Store the expert's accelerations (B, N, D) of this step; the next one draws again."""
        self.target, self._expert_acts = target, None

    def make_fused_step(self, sensing: Sensing, body: AnyBody) -> FusedStep | None:
        """Return the fused step, or None if this combination of expert, student, sensing and body is unsupported."""
        return make_fused_step(sensing, self.call_student, body, expert=self)
