"""The search itself: CMA-ES (Hansen, "The CMA Evolution Strategy: A Tutorial", 2016), by the package `cma`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64

from equiflock.experiments.tuning.genome import Vector
from equiflock.runtime.randomness import make_rng

DIVERGED_COST = 1e9
"""The cost of a candidate whose flight diverged."""


class Strategy:
    """Asks for the costs of candidates, generation after generation, and moves a normal distribution by them.

    All of it is a function of its arguments and the costs: told the same costs again, it is in the same state to the
    bit. That is how a search goes on after an interruption.

    Args:
        size: how many numbers are searched; they begin at 0.
        population: candidates per generation.
        sigma: the standard deviation of the first ones.
        seed: of the candidates.
        diagonal: adapt only the variance of each number, rather than all covariances.
    """

    def __init__(self, size: int, population: int, sigma: float, seed: int, diagonal: bool) -> None:
        import cma  # it takes a second

        # Numbers of a stream of its own, rather than the process's, which others may use meanwhile.
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
        """The candidates of the next generation."""
        self._candidates = self._search.ask()
        return [candidate.copy() for candidate in self._candidates]

    def tell(self, costs: Sequence[float] | Float64[np.ndarray, " population"]) -> None:
        """The costs of these candidates, in their order; infinite for one that could not fly."""
        finite = np.nan_to_num(np.asarray(costs, np.float64), nan=DIVERGED_COST, posinf=DIVERGED_COST)
        self._search.tell(self._candidates, np.minimum(finite, DIVERGED_COST).tolist())

    @property
    def mean(self) -> Vector:
        """The middle of the distribution now: what has been learned so far."""
        return np.array(self._search.mean, np.float64)

    @property
    def sigma(self) -> float:
        """The size of its steps now."""
        return float(self._search.sigma)


def compute_default_population(size: int) -> int:
    """4 + 3 ln n, rounded down: the population that CMA-ES takes for n numbers."""
    return 4 + int(3.0 * np.log(size))
