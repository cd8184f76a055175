"""Validation: flights of a network from initial conditions outside its training set; and the report of an epoch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from jaxtyping import Float64

from equiflock.learning.recipe import DAgger
from equiflock.learning.training_scenarios import Start, split_by_shares
from equiflock.observations.radio import IDEAL_RADIO
from equiflock.protocols import Controller
from equiflock.scenarios.registry import build_flight_options
from equiflock.simulation import metrics
from equiflock.simulation.simulate import simulate

Integral: TypeAlias = Float64[np.ndarray, " B"]
"""A number per flock."""


@dataclass(frozen=True)
class Validation:
    """Result of a validation: per flock the integrals of velocity variance (IVV) and mean acceleration norm (IMAN)."""

    ivv: Integral
    iman: Integral

    def __str__(self) -> str:
        return "; ".join(
            "{} {:.3g} (IQR {:.3g} to {:.3g})".format(name, *np.quantile(values, (0.5, 0.25, 0.75)))
            for name, values in (("IVV", self.ivv), ("IMAN", self.iman))
        )


@dataclass(frozen=True)
class EpochReport:
    """Loss of an epoch, and the validation after it."""

    epoch: int
    """Number of completed epochs."""
    loss: float
    """Mean loss over the epoch's updates."""
    expert_share: float
    """beta, the probability that the expert acts in a step."""
    validation: Validation | None
    """Validation after this epoch; None if none was due."""


class Validator:
    """Flies the validation flocks of a recipe, which are the same for all of its seeds.

    Flights use the recipe's radio and body with the middle of every range, see `Range.middle`, and the same seeds at
    every validation of every training. If the recipe has several scenarios, each has its share of the flocks.
    """

    def __init__(self, recipe: DAgger) -> None:
        self.recipe = recipe
        counts = split_by_shares(recipe.validation_flocks, [scenario.share for scenario in recipe.training_scenarios])
        scenarios = [
            scenario.make_middle(count, seed=0, split="validation")
            for scenario, count in zip(recipe.training_scenarios, counts, strict=True)
            if count > 0
        ]
        self.starts = [Start(scenario, scenario.draw()) for scenario in scenarios]
        self.environment = recipe.environment_ranges.make_middle()

    def __call__(self, controller: Controller, ideal_radio: bool = False) -> Validation:
        """Fly all validation flocks under a controller for the recipe's duration.

        `ideal_radio` replaces the recipe's radio, for the expert, which has an ideal radio in the training as well.
        """
        environment = replace(self.environment, radio=IDEAL_RADIO) if ideal_radio else self.environment
        runs = [
            simulate(
                start.flock,
                controller,
                time_step=self.recipe.middle_time_step,
                duration=self.recipe.duration,
                **build_flight_options(start.scenario),
                environment=environment,
                # Only the integrals are needed, so keep no frames.
                keep_every=None,
                record=(metrics.velocity_variance, metrics.mean_acceleration_norm),
            )
            for start in self.starts
        ]
        return Validation(*(np.concatenate([metric(run) for run in runs]) for metric in (metrics.ivv, metrics.iman)))
