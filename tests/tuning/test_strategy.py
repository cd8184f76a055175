"""The search finds the minimum of a toy cost, and depends only on its seed and the costs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from equiflock.tuning.search_space import Strategy, compute_default_population

TARGET = np.linspace(-1.0, 2.0, 8)


def toy(candidate: np.ndarray) -> float:
    """A valley, ten times as steep along every other axis."""
    return float(np.square((candidate - TARGET) * np.resize([1.0, 10.0], 8)).sum())


@pytest.mark.parametrize("diagonal", [True, False])
def test_a_toy_cost_is_minimised(diagonal: bool) -> None:
    strategy = Strategy(8, 12, 0.5, seed=1, diagonal=diagonal)
    for _ in range(150):
        strategy.tell([toy(candidate) for candidate in strategy.ask()])
    assert np.allclose(strategy.mean, TARGET, atol=1e-4)
    assert strategy.sigma < 0.01


@pytest.mark.parametrize("diagonal", [True, False])
def test_equal_costs_give_equal_candidates_whatever_other_code_draws(diagonal: bool) -> None:
    one, two, other = (Strategy(30, 6, 0.1, seed, diagonal) for seed in (1, 1, 2))
    for _ in range(20):
        np.random.seed(7)  # noqa: NPY002
        mine = one.ask()
        assert np.random.rand() == np.random.RandomState(7).rand()  # noqa: NPY002
        again, others = two.ask(), other.ask()
        assert np.array_equal(mine, again)
        assert not np.array_equal(mine, others)
        for strategy, candidates in ((one, mine), (two, again), (other, others)):
            strategy.tell([float(np.square(candidate).sum()) for candidate in candidates])
    assert np.array_equal(one.mean, two.mean)


def test_candidates_that_cannot_fly_are_the_worst_of_all() -> None:
    strategy = Strategy(8, 12, 0.5, seed=1, diagonal=False)
    for _ in range(120):
        costs = [toy(candidate) if candidate[0] < 0.0 else math.inf for candidate in strategy.ask()]
        strategy.tell(costs)
    assert np.allclose(strategy.mean, TARGET, atol=1e-3)


def test_the_default_population_is_that_of_the_authors() -> None:
    assert [compute_default_population(size) for size in (10, 419, 563)] == [10, 22, 22]
