"""Validation: flights of a network from initial conditions that are not in its training set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from equiflock.learning.recipe import DAgger
from equiflock.protocols import Controller
from equiflock.simulation import metrics
from equiflock.simulation.simulate import simulate


@dataclass(frozen=True)
class Validation:
    """The result of a validation: for every flock the integrals of velocity variance and mean acceleration norm."""

    ivv: Float64[np.ndarray, " B"]
    iman: Float64[np.ndarray, " B"]

    def __str__(self) -> str:
        return "; ".join(
            "{} {:.3g} (IQR {:.3g} to {:.3g})".format(name, *np.quantile(values, (0.5, 0.25, 0.75)))
            for name, values in (("IVV", self.ivv), ("IMAN", self.iman))
        )


class Validator:
    """Flies the validation flocks of a recipe, which are the same for all of its seeds."""

    def __init__(self, recipe: DAgger) -> None:
        self.recipe = recipe
        self.scenario = recipe.scene(recipe.validation_flocks, seed=0, split="validation")
        self.start = self.scenario.draw()

    def __call__(self, controller: Controller) -> Validation:
        """Validate a network or the expert."""
        run = simulate(
            self.start,
            controller,
            time_step=self.recipe.time_step,
            duration=self.recipe.duration,
            ending=self.scenario.ending(),
            orbit=self.scenario.orbit,
            obstacles=self.scenario.obstacles,
            # Only the integrals are needed, so no frames are kept.
            keep_every=None,
            record=(metrics.velocity_variance, metrics.mean_acceleration_norm),
        )
        return Validation(metrics.ivv(run), metrics.iman(run))
