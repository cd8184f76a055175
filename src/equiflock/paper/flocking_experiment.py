"""Flocking: unseen flocks of several sizes under every controller (section 5 of the paper, "Flocking")."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float64

from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.evaluation.curves import Curves, build_curve_table
from equiflock.learning.recipe import EXPERT
from equiflock.paper.interpretation import Interpretation
from equiflock.paper.ledger import FEW_HUNDREDTHS, MORE_THAN_HALF, Check, Statement
from equiflock.paper.policies import PolicyFlightJob, TrainedPolicies
from equiflock.paper.training_statements import MEAN, SUM
from equiflock.scenarios import Scenario
from equiflock.simulation import metrics

VARIANCE, EFFORT = "velocity_variance", "mean_acceleration_norm"
LOW_VARIANCE = 0.2
"""Velocity variance at which the paper compares the speed of controllers."""


@dataclass(frozen=True)
class FlockingJob(PolicyFlightJob):
    """Flights of one controller on the test flocks of one size."""

    controller: str
    seed: int | None
    agents: int
    flocks: int = 50
    time_step: float = 1e-3
    duration: float = 2.0
    policies: TrainedPolicies = field(default_factory=TrainedPolicies)
    split: str | None = None

    @property
    def key(self) -> str:
        """Name of the job."""
        return f"flocking-{self.base_name}-{self.seed}-{self.agents}"

    @property
    def labels(self) -> dict[str, Any]:
        """Columns that identify the job's rows in the experiment's table."""
        return {"controller": self.base_name, "seed": self.seed, "agents": self.agents}

    @property
    def scenario(self) -> Scenario:
        """Scenario of the test flocks."""
        return self.build_scenario("flocking")

    def run(self) -> pd.DataFrame:
        """Return quartiles over flocks of velocity variance and mean acceleration norm every 0.01 s.

        The columns are those of `build_curve_table`.
        """
        recorded = metrics.velocity_variance, metrics.mean_acceleration_norm
        run = self.fly(self.draw_start(), keep_every=None, record=recorded)
        return build_curve_table(run.series, self.time_step)


def build_flocking_jobs(
    sizes: tuple[int, ...],
    seeds: tuple[int, ...],
    flocks: int,
    interpretation: Interpretation,
    policies: TrainedPolicies,
    split: str | None,
) -> list[FlockingJob]:
    """Return the jobs of the experiment: every controller, seed and size, and the expert."""
    shared: dict[str, Any] = {"duration": interpretation.flocking_duration, "policies": policies, "split": split}
    controllers: list[tuple[str, int | None]] = [(interpretation.expert, None), *product(PAPER_NETWORKS, seeds)]
    return [FlockingJob(name, seed, agents, flocks, **shared) for agents, (name, seed) in product(sizes, controllers)]


def build_flocking_statements(table: pd.DataFrame) -> list[Statement]:
    """Return F1 to F6, without those about sizes that are not in the table."""
    curves = Curves(table)
    sizes = sorted(int(agents) for agents in table.agents.unique())
    small, large = [n for n in sizes if n <= 100], [n for n in sizes if n >= 200]
    statements = [_f1(curves, sizes), _f2(curves, small, large)]
    statements += [_f3(curves)] if 50 in sizes else []
    statements += [_f4(curves)] if 100 in sizes else []
    return [*statements, _f5(curves, sizes), _f6(curves, sizes)]


# Each rule was written down before measuring; a check compares medians over flocks, one per training seed.


def _f1(curves: Curves, sizes: list[int]) -> Statement:
    """Return F1: mean aggregation brings the variance below 0.2 before sum aggregation."""

    def compute_settling_times(name: str, agents: int) -> Float64[np.ndarray, " S"]:
        """Return the first time at which the median velocity variance is below 0.2, per seed; infinite if never."""
        below = curves.get_curve("median", name, metric=VARIANCE, agents=agents) < LOW_VARIANCE
        return np.where(below.any(axis=1), curves.x[below.argmax(axis=1)], np.inf)

    return Statement(
        "F1",
        "The mean-aggregation controllers bring the median velocity variance below 0.2 before the sum-aggregation ones "
        "do.",
        "Each of the two before each of the two, at every size; to a hundredth of a second.",
        tuple(
            Check.less(
                f"N = {n}, seconds to {LOW_VARIANCE}: {a} before {b}",
                compute_settling_times(a, n),
                compute_settling_times(b, n),
            )
            for n, a, b in product(sizes, MEAN, SUM)
        ),
    )


def _f2(curves: Curves, small: list[int], large: list[int]) -> Statement:
    """Return F2: which controllers have the lower final variance, for the small (N <= 100) and the large sizes."""

    def below(a: str, b: str, n: int) -> Check:
        """Return the check that the final median variance of a is below that of b, at size n."""
        return Check.less(
            f"N = {n}, last variance: {a} below {b}",
            curves.last("median", a, metric=VARIANCE, agents=n),
            curves.last("median", b, metric=VARIANCE, agents=n),
        )

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


def _f3(curves: Curves) -> Statement:
    """Return F3: at N = 50, three controllers have a lower variance than the expert most of the time."""
    # The expert has no training seeds: its single curve is compared with those of all seeds.
    expert = curves.get_curve("median", EXPERT, metric=VARIANCE, agents=50)

    def compute_lead(name: str) -> Float64[np.ndarray, "S X"]:
        """Return the expert's variance minus the controller's at every time, per seed."""
        return np.asarray(expert - curves.get_curve("median", name, metric=VARIANCE, agents=50))

    def check_most(description: str, condition: Bool[np.ndarray, "S X"]) -> Check:
        """Return the check that a condition holds at more than half of the times."""
        return Check.within(description, condition.mean(axis=1), MORE_THAN_HALF, 1.0)

    exception = (curves.x >= 0.1) & (curves.x <= 0.3)

    return Statement(
        "F3",
        "N = 50: TDAGNN-TF and the mean-aggregation controllers are below the expert for most of the run, TDAGNN-TF "
        "not from 0.1 to 0.3 s.",
        "Median variance below the expert's at more than half of the times; TDAGNN-TF's above the expert's at more "
        "than half of those from 0.1 to 0.3 s.",
        (
            *(check_most(f"share of time below: {name}", compute_lead(name) > 0) for name in ("tdagnn-tf", *MEAN)),
            check_most("share of 0.1 to 0.3 s above: tdagnn-tf", compute_lead("tdagnn-tf")[:, exception] < 0),
        ),
    )


def _f4(curves: Curves) -> Statement:
    """Return F4: at N = 100, ETDAGNN has a lower final variance than the expert."""
    last = curves.last("median", "etdagnn", metric=VARIANCE, agents=100)
    expert = np.broadcast_to(curves.last("median", EXPERT, metric=VARIANCE, agents=100), last.shape)
    return Statement(
        "F4",
        "N = 100: ETDAGNN ends with a lower velocity variance than the expert.",
        "Median at the last step below the expert's.",
        (Check.less("last variance: etdagnn below tanner", last, expert),),
    )


def _f5(curves: Curves, sizes: list[int]) -> Statement:
    """Return F5: the final acceleration norm of sum aggregation is that of mean aggregation or a little smaller."""

    def compute_excess(mean: str, sum_: str, n: int) -> Float64[np.ndarray, " S"]:
        """Return the final acceleration norm of a mean-aggregation controller minus that of a sum-aggregation one."""
        return np.asarray(
            curves.last("median", mean, metric=EFFORT, agents=n) - curves.last("median", sum_, metric=EFFORT, agents=n)
        )

    return Statement(
        "F5",
        "At the last step the sum-aggregation controllers' mean acceleration norm matches that of the mean-aggregation "
        "ones or is a few hundredths smaller.",
        f"At most 0.01 larger and at most {FEW_HUNDREDTHS:g} smaller, each of the two against each of the two, at "
        "every size.",
        tuple(
            Check.within(f"N = {n}, last acceleration: {a} - {b}", compute_excess(a, b, n), -0.01, FEW_HUNDREDTHS)
            for n, a, b in product(sizes, MEAN, SUM)
        ),
    )


def _f6(curves: Curves, sizes: list[int]) -> Statement:
    """Return F6: all controllers have about the same final acceleration norm."""
    last = {
        (name, n): curves.last("median", name, metric=EFFORT, agents=n) for name, n in product(PAPER_NETWORKS, sizes)
    }
    return Statement(
        "F6",
        "The controllers have approximately the same mean acceleration norm.",
        f"Medians at the last step within {FEW_HUNDREDTHS:g} of each other, pair by pair, at every size.",
        tuple(
            Check.within(
                f"N = {n}, last acceleration: {a} - {b}", last[a, n] - last[b, n], -FEW_HUNDREDTHS, FEW_HUNDREDTHS
            )
            for n in sizes
            for a, b in combinations(PAPER_NETWORKS, 2)
        ),
    )
