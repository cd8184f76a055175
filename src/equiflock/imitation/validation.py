"""How well a network flies flocks that it never learned from, beside the expert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from equiflock import metrics
from equiflock.controllers.bridge import as_numpy_function
from equiflock.imitation.recipe import DAgger
from equiflock.simulation import simulate
from equiflock.types import Controller, LocalController, Messages, Neighbourhood, OneHop


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
    """A network that flies through torch, as it does while it collects: what is measured is what learns, to the bit."""

    def __init__(self, pupil: LocalController) -> None:
        self.hops: int = pupil.hops
        self.one_hop: OneHop = pupil.one_hop
        self.neighbourhood: Neighbourhood = getattr(pupil, "neighbourhood", "moving")
        self._ask = as_numpy_function(pupil, learning=True)

    def __call__(self, messages: Messages) -> NDArray[Any]:
        """Accelerations (B, N, D)."""
        return self._ask(messages.copy())


class Validator:
    """Flies the validation flocks of a recipe, which are the same for every seed of it."""

    def __init__(self, recipe: DAgger) -> None:
        self.recipe = recipe
        self.start = recipe.disk(recipe.validation_flocks, seed=0, split="validation").draw()

    def __call__(self, pilot: Controller) -> Validation:
        """Judge a network, or the expert."""
        expert = getattr(pilot, "privileged", False)
        run = simulate(
            self.start,
            pilot if expert else _AsItLearns(cast(LocalController, pilot)),
            time_step=self.recipe.time_step,
            duration=self.recipe.duration,
            keep_every=None,
            record=(metrics.velocity_variance, metrics.mean_acceleration_norm),
        )
        return Validation(metrics.ivv(run), metrics.iman(run))
