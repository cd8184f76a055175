"""Flocking: unseen flocks of several sizes under every controller (section 5 of the paper, "Flocking")."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float64

from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.evaluation.curves import build_curve_table
from equiflock.learning.recipe import EXPERT
from equiflock.paper.ledger import FEW_HUNDREDTHS, MORE_THAN_HALF, Check, Statement
from equiflock.paper.policies import PolicyFlightJob
from equiflock.paper.profile import Profile
from equiflock.paper.resampled_curves import ResampledCurves
from equiflock.paper.training_experiment import MEAN, SUM
from equiflock.simulation import metrics
from equiflock.statistics import RESAMPLES

VARIANCE, EFFORT = "velocity_variance", "mean_acceleration_norm"
LOW_VARIANCE = 0.2
"""Velocity variance at which the paper compares the speed of controllers."""
COMPARED_SIZE = 50
"""Number of agents of the flocks whose variance the paper compares with the expert's over the whole run."""


@dataclass(frozen=True)
class FlockingJob(PolicyFlightJob):
    """Flights of one controller on the test flocks of one size."""

    time_step: float = 1e-3

    experiment = "flocking"
    label_names = ("agents",)

    def run(self) -> pd.DataFrame:
        """Return quartiles over flocks of velocity variance and mean acceleration norm; see `build_curve_table`."""
        recorded = metrics.velocity_variance, metrics.mean_acceleration_norm
        run = self.fly(self.draw_start(), keep_every=None, record=recorded)
        return build_curve_table(run.series, self.time_step, self._select_times)

    def _select_times(self, metric: str, values: Float64[np.ndarray, "X B"]) -> Bool[np.ndarray, " X"]:
        """Return the times at which statements need the values of all flocks.

        These are the last, those at which flocks are on both sides of LOW_VARIANCE, since the median of no resample
        changes its side at others, and all times of the flocks that are compared with the expert throughout (F3).
        """
        is_last = np.arange(len(values)) == len(values) - 1
        if metric != VARIANCE:
            return np.asarray(is_last)
        below = values < LOW_VARIANCE
        return np.asarray(is_last | (below.any(axis=1) & ~below.all(axis=1)) | (self.agents == COMPARED_SIZE))


def build_flocking_jobs(profile: Profile, folder: Path) -> list[FlockingJob]:
    """Return the jobs of the experiment: every controller, seed and size, and the expert."""
    shared = profile.build_flight_options(folder, "flocking") | {"duration": profile.interpretation.flocking_duration}
    controllers = [(profile.interpretation.expert, None), *profile.networks]
    return [
        FlockingJob(name, seed, agents=agents, **shared) for agents, (name, seed) in product(profile.sizes, controllers)
    ]


def build_flocking_statements(table: pd.DataFrame, resamples: int = RESAMPLES) -> list[Statement]:
    """Return F1 to F6, without those about sizes that are not in the table.

    Each rule was written down before measuring; a check compares medians over flocks, one per training seed.
    """
    curves = ResampledCurves(table, resamples=resamples)
    sizes = sorted(int(agents) for agents in table.agents.unique())
    statements = [_judge_settling_times(curves, sizes), _judge_final_variance(curves, sizes)]
    if COMPARED_SIZE in sizes:
        statements.append(_judge_variance_below_expert(curves))
    if 100 in sizes:
        statements.append(_judge_final_variance_below_expert(curves))
    return [*statements, _judge_final_effort_of_aggregations(curves, sizes), _judge_equal_effort(curves, sizes)]


def _judge_settling_times(curves: ResampledCurves, sizes: list[int]) -> Statement:
    """Judge statement F1."""

    def compute_settling_times(name: str, agents: int) -> Float64[np.ndarray, "R S"]:
        """Return the first time at which the median velocity variance is below 0.2, per seed; infinite if never."""
        below = curves.get_curve("median", name, metric=VARIANCE, agents=agents) < LOW_VARIANCE
        return np.where(below.any(axis=-1), curves.x[below.argmax(axis=-1)], np.inf)

    times = {(name, n): compute_settling_times(name, n) for name, n in product(PAPER_NETWORKS, sizes)}
    return Statement(
        "F1",
        "The mean-aggregation controllers bring the median velocity variance below 0.2 before the sum-aggregation ones "
        "do.",
        "Each of the two before each of the two, at every size; to a hundredth of a second.",
        tuple(
            Check.less(
                f"N = {n}, seconds to {LOW_VARIANCE}: {a} before {b}",
                times[a, n],
                times[b, n],
                flocks=curves.flocks,
            )
            for n, a, b in product(sizes, MEAN, SUM)
        ),
    )


def _judge_final_variance(curves: ResampledCurves, sizes: list[int]) -> Statement:
    """Judge statement F2."""

    def below(a: str, b: str, n: int) -> Check:
        """Return the check that the final median variance of a is below that of b, at size n."""
        first, second = (curves.last("median", name, metric=VARIANCE, agents=n) for name in (a, b))
        return Check.less(f"N = {n}, last variance: {a} below {b}", first, second, flocks=curves.flocks)

    small, large = [n for n in sizes if n <= 100], [n for n in sizes if n >= 200]
    return Statement(
        "F2",
        "At the last step, for N <= 100 the mean-aggregation controllers have the lower velocity variance and ETDAGNN "
        "the lowest; for N >= 200 the sum-aggregation ones, and TDAGNN-TF the lowest.",
        "Each of the two below each of the two, and the lowest below each other one, at every size.",
        (
            *(below(a, b, n) for n, a, b in product(small, MEAN, SUM)),
            *(below("etdagnn", "tdagnn-tf-mean", n) for n in small),
            *(below(a, b, n) for n, a, b in product(large, SUM, MEAN)),
            *(below("tdagnn-tf", "tdagnn", n) for n in large),
        ),
    )


def _judge_variance_below_expert(curves: ResampledCurves) -> Statement:
    """Judge statement F3."""
    # The expert has no training seeds: its single curve is compared with those of all seeds.
    expert = curves.get_curve("median", EXPERT, metric=VARIANCE, agents=COMPARED_SIZE)

    def compute_lead(name: str) -> Float64[np.ndarray, "R S X"]:
        """Return the expert's variance minus the controller's at every time, per seed."""
        return np.asarray(expert - curves.get_curve("median", name, metric=VARIANCE, agents=COMPARED_SIZE))

    def check_most(description: str, condition: Bool[np.ndarray, "R S X"]) -> Check:
        """Return the check that a condition holds at more than half of the times."""
        return Check.within(description, condition.mean(axis=-1), MORE_THAN_HALF, 1.0, flocks=curves.flocks)

    exception = (curves.x >= 0.1) & (curves.x <= 0.3)
    return Statement(
        "F3",
        "N = 50: TDAGNN-TF and the mean-aggregation controllers are below the expert for most of the run, TDAGNN-TF "
        "not from 0.1 to 0.3 s.",
        "Median variance below the expert's at more than half of the times; TDAGNN-TF's above the expert's at more "
        "than half of those from 0.1 to 0.3 s.",
        (
            *(check_most(f"share of time below: {name}", compute_lead(name) > 0) for name in ("tdagnn-tf", *MEAN)),
            check_most("share of 0.1 to 0.3 s above: tdagnn-tf", compute_lead("tdagnn-tf")[..., exception] < 0),
        ),
    )


def _judge_final_variance_below_expert(curves: ResampledCurves) -> Statement:
    """Judge statement F4."""
    last = curves.last("median", "etdagnn", metric=VARIANCE, agents=100)
    expert = np.broadcast_to(curves.last("median", EXPERT, metric=VARIANCE, agents=100), last.shape)
    return Statement(
        "F4",
        "N = 100: ETDAGNN ends with a lower velocity variance than the expert.",
        "Median at the last step below the expert's.",
        (Check.less("last variance: etdagnn below tanner", last, expert, flocks=curves.flocks),),
    )


def _judge_final_effort_of_aggregations(curves: ResampledCurves, sizes: list[int]) -> Statement:
    """Judge statement F5."""

    def compute_excess(mean: str, sum_: str, n: int) -> Float64[np.ndarray, "R S"]:
        """Return the final acceleration norm of a mean-aggregation controller minus that of a sum-aggregation one."""
        first, second = (curves.last("median", name, metric=EFFORT, agents=n) for name in (mean, sum_))
        return np.asarray(first - second)

    return Statement(
        "F5",
        "At the last step the sum-aggregation controllers' mean acceleration norm matches that of the mean-aggregation "
        "ones or is a few hundredths smaller.",
        f"At most 0.01 larger and at most {FEW_HUNDREDTHS:g} smaller, each of the two against each of the two, at "
        "every size.",
        tuple(
            Check.within(
                f"N = {n}, last acceleration: {a} - {b}",
                compute_excess(a, b, n),
                -0.01,
                FEW_HUNDREDTHS,
                flocks=curves.flocks,
            )
            for n, a, b in product(sizes, MEAN, SUM)
        ),
    )


def _judge_equal_effort(curves: ResampledCurves, sizes: list[int]) -> Statement:
    """Judge statement F6."""
    checks: list[Check] = []
    for n in sizes:
        effort = {name: curves.last("median", name, metric=EFFORT, agents=n) for name in PAPER_NETWORKS}
        template = f"N = {n}, last acceleration: {{}} - {{}}"
        checks += Check.close_pairs(template, effort, FEW_HUNDREDTHS, flocks=curves.flocks)
    return Statement(
        "F6",
        "The controllers have approximately the same mean acceleration norm.",
        f"Medians at the last step within {FEW_HUNDREDTHS:g} of each other, pair by pair, at every size.",
        tuple(checks),
    )
