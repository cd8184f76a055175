"""Flocking: unseen flocks of several sizes under every controller (section 5 of the paper, "Flocking")."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float64

from equiflock.controllers.trained import TRAINED
from equiflock.experiments.curves import TimeCurves, controller_of, curve_table
from equiflock.experiments.paper.ledger import Check, Statement
from equiflock.experiments.paper.training import MEAN, SUM
from equiflock.flock import Flock
from equiflock.learning.recipe import EXPERT
from equiflock.scenarios import RandomDisk
from equiflock.simulation import metrics
from equiflock.simulation.simulate import simulate
from equiflock.simulation.trajectory import Trajectory

VARIANCE, EFFORT = "velocity_variance", "mean_acceleration_norm"
CALM = 0.2
"""The velocity variance that the paper takes for the end of the first, fast phase."""


@dataclass(frozen=True)
class FlockingJob:
    """One controller on the test flocks of one size."""

    recorded: ClassVar = (metrics.velocity_variance, metrics.mean_acceleration_norm)
    controller: str
    seed: int | None
    agents: int
    flocks: int = 50
    time_step: float = 1e-3
    duration: float = 2.0

    @property
    def key(self) -> str:
        """The job's name."""
        return f"flocking-{self.controller}-{self.seed}-{self.agents}"

    @property
    def labels(self) -> dict[str, Any]:
        """Of its rows."""
        return {"controller": self.controller, "seed": self.seed, "agents": self.agents}

    def start(self) -> Flock:
        """The flocks."""
        return RandomDisk(self.flocks, self.agents, split="test").draw()

    def fly(self, start: Flock, **kept: Any) -> Trajectory:
        """The flight of these flocks; `kept` tells `simulate` what to keep of it."""
        controller = controller_of(self.controller, self.seed)
        return simulate(start, controller, time_step=self.time_step, duration=self.duration, **kept)

    def run(self) -> pd.DataFrame:
        """Velocity variance and mean acceleration norm, every hundredth of a second."""
        return self.table(self.fly(self.start(), keep_every=None, record=self.recorded))

    def table(self, run: Trajectory) -> pd.DataFrame:
        """The result, from a flight with what is `recorded`."""
        return curve_table(run, (VARIANCE, EFFORT), every=max(round(0.01 / self.time_step), 1))


def flocking_jobs(sizes: tuple[int, ...], seeds: tuple[int, ...], flocks: int) -> list[FlockingJob]:
    """The whole experiment: every controller, seed and size, and the expert."""
    trained = [FlockingJob(name, seed, agents, flocks) for agents, name, seed in product(sizes, TRAINED, seeds)]
    return [*(FlockingJob(EXPERT, None, agents, flocks) for agents in sizes), *trained]


def flocking_statements(table: pd.DataFrame) -> list[Statement]:
    """F1 to F5, as far as the sizes are in the table."""
    curves = TimeCurves(table)
    sizes = sorted(int(agents) for agents in table.agents.unique())
    small, large = [n for n in sizes if n <= 100], [n for n in sizes if n >= 200]
    found = [_f1(curves, sizes), _f2(curves, small, large)]
    found += [_f3(curves)] if 50 in sizes else []
    found += [_f4(curves)] if 100 in sizes else []
    return [*found, _f5(curves, sizes)]


def _f1(curves: TimeCurves, sizes: list[int]) -> Statement:
    def calm_at(name: str, agents: int) -> Float64[np.ndarray, " S"]:
        """When the median velocity variance is below 0.2 for the first time, for every seed; infinite if never."""
        below = curves.of(VARIANCE, name, agents=agents) < CALM
        return np.where(below.any(axis=1), curves.times[below.argmax(axis=1)], np.inf)

    return Statement(
        "F1",
        "The mean-aggregation controllers bring the median velocity variance below 0.2 before the sum-aggregation ones "
        "do.",
        "Each of the two before each of the two, at every size; to a hundredth of a second.",
        tuple(
            Check.less(f"N = {n}, seconds to {CALM}: {a} before {b}", calm_at(a, n), calm_at(b, n))
            for n, a, b in product(sizes, MEAN, SUM)
        ),
    )


def _f2(curves: TimeCurves, small: list[int], large: list[int]) -> Statement:
    def below(a: str, b: str, n: int) -> Check:
        words = f"N = {n}, last variance: {a} below {b}"
        return Check.less(words, curves.last(VARIANCE, a, agents=n), curves.last(VARIANCE, b, agents=n))

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


def _f3(curves: TimeCurves) -> Statement:
    expert = curves.of(VARIANCE, EXPERT, agents=50)

    def share_below(name: str, first: float = 0.0, last: float = np.inf) -> Float64[np.ndarray, " S"]:
        during = (curves.times >= first) & (curves.times <= last)
        return np.asarray((curves.of(VARIANCE, name, agents=50) < expert)[:, during].mean(axis=1))

    return Statement(
        "F3",
        "N = 50: TDAGNN-TF and the mean-aggregation controllers are below the expert for most of the run, TDAGNN-TF "
        "not from 0.1 to 0.3 s.",
        "Median variance below the expert's at half of the times or more; for TDAGNN-TF at half of those from 0.1 to "
        "0.3 s or less.",
        (
            *(Check.within(f"share of time below: {a}", share_below(a), 0.5, 1.0) for a in ("tdagnn-tf", *MEAN)),
            Check.within("share of 0.1 to 0.3 s below: tdagnn-tf", share_below("tdagnn-tf", 0.1, 0.3), 0.0, 0.5),
        ),
    )


def _f4(curves: TimeCurves) -> Statement:
    last = curves.last(VARIANCE, "etdagnn", agents=100)
    expert = np.broadcast_to(curves.last(VARIANCE, EXPERT, agents=100), last.shape)
    return Statement(
        "F4",
        "N = 100: ETDAGNN ends with a lower velocity variance than the expert.",
        "Median at the last step below the expert's.",
        (Check.less("last variance: etdagnn below tanner", last, expert),),
    )


def _f5(curves: TimeCurves, sizes: list[int]) -> Statement:
    def excess(mean: str, sum_: str, n: int) -> Float64[np.ndarray, " S"]:
        return np.asarray(curves.last(EFFORT, mean, agents=n) - curves.last(EFFORT, sum_, agents=n))

    return Statement(
        "F5",
        "At the last step the sum-aggregation controllers' mean acceleration norm matches that of the mean-aggregation "
        "ones or is a few hundredths smaller.",
        "Smaller by -0.01 to 0.05, each of the two against each of the two, at every size.",
        tuple(
            Check.within(f"N = {n}, last acceleration: {a} - {b}", excess(a, b, n), -0.01, 0.05)
            for n, a, b in product(sizes, MEAN, SUM)
        ),
    )
