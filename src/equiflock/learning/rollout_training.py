"""Training by gradients through flights: each epoch flies flocks under the network and lowers the flights' objective.

A flight is cut into parts of `horizon` steps. After each part one Adam step follows the gradient of its mean
objective, clipped to a norm of `GRADIENT_NORM`; no gradients pass from one part to the one before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from equiflock._runtime.checks import InputError, raise_wrong_choice
from equiflock._runtime.randomness import make_rng
from equiflock._runtime.specs import parse_weighted_specs
from equiflock.flock import LEADER, Flock
from equiflock.learning.dagger import Trainer
from equiflock.learning.learner import TorchLearner
from equiflock.learning.recipe import DAgger
from equiflock.learning.torch_flight import TorchFlight, TorchMoment
from equiflock.simulation.simulate import count_steps

GRADIENT_NORM = 1.0
"""Largest norm of a gradient; gradients through many steps of a flock can be huge."""


class ObjectiveTerm(NamedTuple):
    """One part of an objective."""

    weight: float
    compute: Callable[[TorchMoment, Tensor], Tensor]
    """Returns one number per agent, (B, N), from a moment and the mask of leaders."""


def _compute_variance(moment: TorchMoment, leads: Tensor) -> Tensor:
    """Return |v_i - mean(v)|^2."""
    return (moment.velocities - moment.velocities.mean(1, keepdim=True)).square().sum(-1)


def _compute_effort(moment: TorchMoment, leads: Tensor) -> Tensor:
    """Return |a_i|^2."""
    return moment.accelerations.square().sum(-1)


def _compute_leader_distance(moment: TorchMoment, leads: Tensor) -> Tensor:
    """Return |v_i - v_L|^2 from the mean velocity of the leaders."""
    weights = (leads / leads.sum(1, keepdim=True)).to(moment.velocities.dtype)[..., None]
    return (moment.velocities - (weights * moment.velocities).sum(1, keepdim=True)).square().sum(-1)


OBJECTIVES = {"variance": _compute_variance, "effort": _compute_effort, "leaders": _compute_leader_distance}


def parse_objective(text: str) -> tuple[ObjectiveTerm, ...]:
    """Return the terms of an objective such as variance+0.0001*effort; raise InputError if a name is unknown."""
    terms = []
    for weight, spec in parse_weighted_specs("objective", text, DAgger.objective):
        if spec.name not in OBJECTIVES or spec.options:
            raise_wrong_choice("objective", spec.name if spec.name not in OBJECTIVES else text, tuple(OBJECTIVES))
        terms.append(ObjectiveTerm(weight, OBJECTIVES[spec.name]))
    return tuple(terms)


class RolloutTrainer(Trainer):
    """State of a training by gradients through flights; `run_epoch` trains for one epoch."""

    def __init__(self, recipe: DAgger, network: nn.Module | None = None) -> None:
        self._terms = parse_objective(recipe.objective)
        super().__init__(recipe, network)
        shapes = {start.flock.shape for starts in self.starts for start in starts}
        if len(shapes) > 1:
            raise InputError("rollouts fly several flocks at once: agents must be a number, not a range")
        needs_leaders = any(term.compute is _compute_leader_distance for term in self._terms)
        if needs_leaders and not all((start.flock.roles == LEADER).any() for starts in self.starts for start in starts):
            raise InputError("the objective 'leaders' needs a leader in every flock: use the scenario leaders")
        # Check the first flight before the first epoch.
        self._make_flight()
        # Gradients come from torch, and so does Adam.
        self._adam = TorchLearner(self.network, recipe.learning_rate)
        self.learner = self._adam

    def run_rollout(self) -> None:
        """Do nothing: flights are part of `update`, and leave no tuples in a replay."""

    def update(self) -> float:
        """Fly flocks of the training set and take an Adam step after each part; return the mean objective."""
        recipe, objectives = self.recipe, []
        self._adam.set_learning_rate(recipe.compute_learning_rate(self.epoch))
        flight = self._make_flight()
        leads = torch.from_numpy(np.asarray(flight.start.roles == LEADER))
        remaining = count_steps(recipe.duration, flight.time_step)
        while remaining > 0:
            steps = min(recipe.horizon, remaining)
            moments = islice(flight, steps)
            objective = torch.stack([self._compute_objective(moment, leads) for moment in moments]).mean()
            objectives.append(float(objective.detach()))
            if not math.isfinite(objectives[-1]):
                return objectives[-1]
            self._adam.optimizer.zero_grad(set_to_none=True)
            objective.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.network.parameters(), GRADIENT_NORM)
            self._adam.optimizer.step()
            flight.detach()
            remaining -= steps
        return float(np.mean(objectives))

    def _make_flight(self) -> TorchFlight:
        """Return the epoch's flight of `batch` flocks of its scenario, drawn with replacement from the training set."""
        starts = self.starts[self.scenario_index]
        indices = make_rng(self.recipe.seed, "rollout", self.epoch).integers(len(starts), size=self.recipe.batch)
        flocks = [starts[index].flock for index in indices.tolist()]
        arrays = (np.concatenate(parts) for parts in zip(*(flock.arrays for flock in flocks), strict=True))
        start = Flock.view(*arrays, comm_radius=flocks[0].comm_radius)
        time_step = self.recipe.draw_time_step(self.epoch)
        return TorchFlight(start, self.network, time_step=time_step, environment=self.environment)

    def _compute_objective(self, moment: TorchMoment, leads: Tensor) -> Tensor:
        """Return the mean objective of all agents at a moment."""
        return torch.stack([term.weight * term.compute(moment, leads).mean() for term in self._terms]).sum()
