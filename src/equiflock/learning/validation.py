"""Validation: flights of a network from initial conditions that are not in its training set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Float64

from equiflock.learning.recipe import DAgger
from equiflock.learning.training_scenarios import Start, split_by_shares
from equiflock.protocols import Controller
from equiflock.scenarios.registry import build_flight_options
from equiflock.simulation import metrics
from equiflock.simulation.simulate import simulate

Integral: TypeAlias = Float64[np.ndarray, " B"]
"""A number for every flock."""


@dataclass(frozen=True)
class Validation:
    """The result of a validation: for every flock the integrals of velocity variance and mean acceleration norm."""

    ivv: Integral
    iman: Integral

    def __str__(self) -> str:
        return "; ".join(
            "{} {:.3g} (IQR {:.3g} to {:.3g})".format(name, *np.quantile(values, (0.5, 0.25, 0.75)))
            for name, values in (("IVV", self.ivv), ("IMAN", self.iman))
        )


class Validator:
    """Flies the validation flocks of a recipe, which are the same for all of its seeds.

    They fly under the recipe's radio and in its bodies, where of a range the middle is taken: the geometric mean for
    limits, the middle rounded down for counts. What is random about these has the same seed at every validation of
    every training. Of a recipe with several scenarios, each has its share of the flocks, in the recipe's order.
    """

    def __init__(self, recipe: DAgger) -> None:
        self.recipe = recipe
        counts = split_by_shares(recipe.validation_flocks, [scene.share for scene in recipe.training_scenarios])
        found = [
            scene.middle(count, seed=0, split="validation")
            for scene, count in zip(recipe.training_scenarios, counts, strict=True)
            if count > 0
        ]
        self.starts = [Start(scenario, scenario.draw()) for scenario in found]
        self.world = recipe.worlds.middle()

    def __call__(self, controller: Controller, ideal_radio: bool = False) -> Validation:
        """Validate a network; or, with a perfect radio, the expert, which in flights of the training has one too."""
        found = [self._run_scenario(start, controller, ideal_radio) for start in self.starts]
        return Validation(*(np.concatenate(parts) for parts in zip(*found, strict=True)))

    def _run_scenario(self, start: Start, controller: Controller, ideal_radio: bool) -> tuple[Integral, Integral]:
        """IVV and IMAN of the flocks of one scenario."""
        run = simulate(
            start.flock,
            controller,
            time_step=self.recipe.time_step,
            duration=self.recipe.duration,
            **build_flight_options(start.scenario),
            radio=None if ideal_radio else self.world.radio,
            body=self.world.body,
            # Only the integrals are needed, so no frames are kept.
            keep_every=None,
            record=(metrics.velocity_variance, metrics.mean_acceleration_norm),
        )
        return metrics.ivv(run), metrics.iman(run)
