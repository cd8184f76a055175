"""Resampled curves begin with the measured ones, and need no more values than statements record."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest

from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.evaluation.curves import Curves, build_curve_table
from equiflock.paper.flocking_experiment import EFFORT, VARIANCE, FlockingJob, build_flocking_statements
from equiflock.paper.leader_experiment import DISTANCE, _select_last, build_leader_statements
from equiflock.paper.resampled_curves import ResampledCurves
from equiflock.statistics import estimate

FLOCKS, SIZES = 12, (50, 100)


def fly(only_needed: bool) -> pd.DataFrame:
    """Curves of two trainings that fall at other rates in each flock, with the values of the flocks that jobs keep."""
    tables = []
    times = np.arange(0, 201)[:, None] * 0.01
    for (place, name), agents in product(enumerate(("tanner", *PAPER_NETWORKS)), SIZES):
        for seed in (None,) if name == "tanner" else (0, 1):
            rng = np.random.default_rng([place, agents, seed or 0])
            rates = 2.0 + 0.05 * place + 0.5 * rng.random(FLOCKS)
            series = {VARIANCE: 6.0 * np.exp(-rates * times), EFFORT: 5.0 * np.exp(-times) + 0.1 * rng.random(FLOCKS)}
            job = FlockingJob(name, seed, agents=agents)
            select = job._select_times if only_needed else lambda metric, values: np.full(len(values), True)
            tables.append(build_curve_table(series, 0.01, select).assign(controller=name, seed=seed, agents=agents))
    return pd.concat(tables, ignore_index=True)


def test_values_of_the_needed_times_give_the_intervals_of_all_values() -> None:
    needed, everything = fly(only_needed=True), fly(only_needed=False)
    assert needed.flocks.notna().mean() < 0.6
    assert build_flocking_statements(needed) == build_flocking_statements(everything)
    checks = [check for statement in build_flocking_statements(needed) for check in statement.checks]
    assert all(check.estimate is not None and check.estimate.n == FLOCKS for check in checks)
    assert any(check.is_within_noise for check in checks)


def test_without_values_of_flocks_the_verdicts_are_the_same_and_have_no_interval() -> None:
    table = fly(only_needed=True)
    found = build_flocking_statements(table)
    for others in (build_flocking_statements(table.drop(columns="flocks")), build_flocking_statements(table, 0)):
        assert [[c.holds for c in each.checks] for each in others] == [[c.holds for c in each.checks] for each in found]
        assert all(check.estimate is None and not check.is_exact for each in others for check in each.checks)


def test_the_first_row_is_measured_and_the_others_are_bootstrap_samples() -> None:
    table = fly(only_needed=True)
    curves = ResampledCurves(table)
    last = curves.last("median", "etdagnn", metric=EFFORT, agents=100)
    assert last[0] == pytest.approx(Curves(table).last("median", "etdagnn", metric=EFFORT, agents=100))
    row = table[(table.controller == "etdagnn") & (table.seed == 1) & (table.agents == 100) & (table.metric == EFFORT)]
    values = [float(number) for number in row.flocks.iloc[-1].split()]
    expected = estimate(values)
    assert np.quantile(last[1:, 1], [0.025, 0.975], method="inverted_cdf") == pytest.approx(expected[1:3])


def test_leaders_are_compared_at_the_last_step_with_intervals() -> None:
    rng = np.random.default_rng(0)
    tables = [
        build_curve_table(
            {metric: rng.random((5, FLOCKS)) + 0.1 * place for metric in (DISTANCE, EFFORT)}, 0.01, _select_last
        ).assign(controller=name, seed=seed)
        for place, name in enumerate(PAPER_NETWORKS)
        for seed in (0, 1)
    ]
    checks = [check for each in build_leader_statements(pd.concat(tables)) for check in each.checks]
    assert len(checks) == 11
    assert all(check.estimate is not None and check.estimate.low < check.estimate.high for check in checks)
