"""Search strategy: CMA-ES (Hansen, "The CMA Evolution Strategy: A Tutorial", 2016), from the package `cma`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64

from equiflock.experiments.tuning.genome import Vector
from equiflock.runtime.randomness import make_rng

DIVERGED_COST = 1e9
"""Cost of a candidate whose flight diverged."""


class Strategy:
    """CMA-ES with an ask-tell interface: adapts a normal distribution to the costs of candidates.

    Its state is a function of its arguments and the costs, bit for bit. An interrupted search is therefore continued
    by replaying the stored costs.

    Args:
        size: number of searched parameters, initially 0.
        population: candidates per generation.
        sigma: standard deviation of the first candidates.
        seed: seed of the candidates.
        diagonal: adapt only the variance of each parameter, not all covariances.
    """

    def __init__(self, size: int, population: int, sigma: float, seed: int, diagonal: bool) -> None:
        import cma  # importing takes a second

        # A separate random stream: other code may draw from the process's global one.
        rng = make_rng(seed, "tuning")
        options = {
            "popsize": population,
            "CMA_diagonal": diagonal,
            "randn": lambda *shape: rng.standard_normal(shape),
            "seed": np.nan,
            "verbose": -9,
            "verb_log": 0,
        }
        self._search: Any = cma.CMAEvolutionStrategy(np.zeros(size), sigma, options)
        self._candidates: list[Vector] = []

    def ask(self) -> list[Vector]:
        """Draw the candidates of the next generation; call `tell` with their costs before the next `ask`."""
        self._candidates = self._search.ask()
        return [candidate.copy() for candidate in self._candidates]

    def tell(self, costs: Sequence[float] | Float64[np.ndarray, " population"]) -> None:
        """Adapt the distribution to the costs of the last candidates, in order.

        Infinite costs, of diverged flights, and NaN count as `DIVERGED_COST`.
        """
        finite = np.nan_to_num(np.asarray(costs, np.float64), nan=DIVERGED_COST, posinf=DIVERGED_COST)
        self._search.tell(self._candidates, np.minimum(finite, DIVERGED_COST).tolist())

    @property
    def mean(self) -> Vector:
        """Current mean of the distribution."""
        return np.array(self._search.mean, np.float64)

    @property
    def sigma(self) -> float:
        """Current step size."""
        return float(self._search.sigma)


def compute_default_population(size: int) -> int:
    """Return 4 + 3 ln n, rounded down: the default population of CMA-ES for n parameters."""
    return 4 + int(3.0 * np.log(size))
