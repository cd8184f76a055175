"""Validation: flights of a network from initial conditions that are not in its training set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from equiflock.controllers.bridge import as_numpy_function
from equiflock.features import Senses
from equiflock.flock import Observations
from equiflock.learning.recipe import DAgger
from equiflock.protocols import Controller, LocalController
from equiflock.simulation import metrics
from equiflock.simulation.simulate import simulate


@dataclass(frozen=True)
class Validation:
    """The integrals of velocity variance (IVV) and of the mean acceleration norm (IMAN), for every flock."""

    ivv: Float64[np.ndarray, " B"]
    iman: Float64[np.ndarray, " B"]

    def __str__(self) -> str:
        return "; ".join(
            "{} {:.3g} (IQR {:.3g} to {:.3g})".format(name, *np.quantile(values, (0.5, 0.25, 0.75)))
            for name, values in (("IVV", self.ivv), ("IMAN", self.iman))
        )


class _AsItLearns:
    """A network run by torch rather than in its compiled form, as in DAgger's flights, so that bits are the same."""

    def __init__(self, pupil: LocalController) -> None:
        self.senses: Senses = pupil.senses
        self._ask = as_numpy_function(pupil, learning=True)

    def __call__(self, observations: Observations) -> NDArray[Any]:
        """Accelerations (B, N, D)."""
        return self._ask(observations.copy())


class Validator:
    """Flies the validation flocks of a recipe, which are the same for all of its seeds."""

    def __init__(self, recipe: DAgger) -> None:
        self.recipe = recipe
        self.scenario = recipe.scene(recipe.validation_flocks, seed=0, split="validation")
        self.start = self.scenario.draw()

    def __call__(self, controller: Controller) -> Validation:
        """Validate a network or the expert."""
        expert = getattr(controller, "privileged", False)
        run = simulate(
            self.start,
            controller if expert else _AsItLearns(cast(LocalController, controller)),
            time_step=self.recipe.time_step,
            duration=self.recipe.duration,
            ending=self.scenario.ending(),
            orbit=self.scenario.orbit,
            obstacles=self.scenario.obstacles,
            keep_every=None,
            record=(metrics.velocity_variance, metrics.mean_acceleration_norm),
        )
        return Validation(metrics.ivv(run), metrics.iman(run))
