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
    """Flies the validation flocks of a recipe, which are the same for all of its seeds.

    They fly under the recipe's radio and in its bodies, where of a range the middle is taken: the geometric mean for
    limits, the middle rounded down for counts. What is random about these has the same seed at every validation of
    every training.
    """

    def __init__(self, recipe: DAgger) -> None:
        self.recipe = recipe
        self.scenario = recipe.scene(recipe.validation_flocks, seed=0, split="validation")
        self.start = self.scenario.draw()
        self.world = recipe.worlds.middle()

    def __call__(self, controller: Controller, perfect_radio: bool = False) -> Validation:
        """Validate a network; or, with a perfect radio, the expert, which in flights of the training has one too."""
        run = simulate(
            self.start,
            controller,
            time_step=self.recipe.time_step,
            duration=self.recipe.duration,
            ending=self.scenario.ending(),
            orbit=self.scenario.orbit,
            obstacles=self.scenario.obstacles,
            radio=None if perfect_radio else self.world.radio,
            body=self.world.body,
            # Only the integrals are needed, so no frames are kept.
            keep_every=None,
            record=(metrics.velocity_variance, metrics.mean_acceleration_norm),
        )
        return Validation(metrics.ivv(run), metrics.iman(run))
