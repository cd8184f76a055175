"""Leader following: two agents lead, the others were trained only to flock (section 5, "Leader following")."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any

import pandas as pd

from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.evaluation.curves import Curves, build_curve_table
from equiflock.paper.interpretation import Interpretation
from equiflock.paper.ledger import FEW_HUNDREDTHS, Check, Statement
from equiflock.paper.policies import PolicyFlightJob, TrainedPolicies
from equiflock.scenarios import Scenario
from equiflock.scenarios.leaders import LeaderVelocity
from equiflock.simulation.flight_jobs import resolve_measures

DISTANCE, EFFORT, COMPONENTS = "mean_leader_velocity_distance", "mean_acceleration_norm", "component_count"


@dataclass(frozen=True)
class LeaderJob(PolicyFlightJob):
    """Flights of one controller on the test flocks with two leaders each."""

    controller: str
    seed: int | None
    flocks: int = 50
    agents: int = 100
    leader_velocity: LeaderVelocity = "mean"
    time_step: float = 1e-3
    duration: float = 3.0
    policies: TrainedPolicies = field(default_factory=TrainedPolicies)
    split: str | None = None

    @property
    def key(self) -> str:
        """Name of the job."""
        return f"leaders-{self.leader_velocity}-{self.controller}-{self.seed}-{self.agents}"

    @property
    def labels(self) -> dict[str, Any]:
        """Columns that identify the job's rows in the experiment's table."""
        return {"controller": self.controller, "seed": self.seed, "leader_velocity": self.leader_velocity}

    @property
    def scenario(self) -> Scenario:
        """Scenario of flocks with two leaders."""
        return self.build_scenario("leaders", leader_velocity=self.leader_velocity)

    def run(self) -> pd.DataFrame:
        """Return quartiles over flocks every 0.01 s; see `build_curve_table`.

        Metrics are the distance to the leaders' velocity, the mean acceleration norm and "disconnected", 0 or 1 per
        flock.
        """
        run = self.fly(self.draw_start(), keep_every=None, record=resolve_measures(self.scenario))
        # 0 or 1 per flock; the mean over flocks is the disconnected share.
        series = {**run.series, "disconnected": (run.series[COMPONENTS] > 1).astype(float)}
        return build_curve_table({name: series[name] for name in (DISTANCE, EFFORT, "disconnected")}, self.time_step)


def build_leader_jobs(
    seeds: tuple[int, ...], flocks: int, interpretation: Interpretation, policies: TrainedPolicies, split: str | None
) -> list[LeaderJob]:
    """Return the jobs of the experiment: every controller and seed."""
    shared: dict[str, Any] = {"leader_velocity": interpretation.leader_velocity, "policies": policies, "split": split}
    return [LeaderJob(name, seed, flocks, **shared) for name, seed in product(PAPER_NETWORKS, seeds)]


def build_leader_statements(table: pd.DataFrame) -> list[Statement]:
    """Return L1, the distance to the leaders' velocity, and L2, the effort, both at the last step."""
    curves = Curves(table)
    # One number per training seed: the median over flocks at the last step.
    last = {name: curves.last("median", name, metric=DISTANCE) for name in PAPER_NETWORKS}
    effort = {name: curves.last("median", name, metric=EFFORT) for name in PAPER_NETWORKS}
    best = "tdagnn-tf-mean"
    others = [name for name in PAPER_NETWORKS if name != best]
    return [
        Statement(
            "L1",
            "At the last step TDAGNN-TF-mean has the lowest median MLVD; ETDAGNN's is nearly double, TDAGNN's nearly "
            "triple.",
            "Below each of the others; ratios from 1.5 to 2.5 and from 2.25 to 3.75.",
            (
                *(Check.less(f"last MLVD: {best} below {name}", last[best], last[name]) for name in others),
                Check.within(f"last MLVD: etdagnn / {best}", last["etdagnn"] / last[best], 1.5, 2.5),
                Check.within(f"last MLVD: tdagnn / {best}", last["tdagnn"] / last[best], 2.25, 3.75),
            ),
        ),
        Statement(
            "L2",
            "The controllers have approximately the same mean acceleration norm.",
            f"Medians at the last step within {FEW_HUNDREDTHS:g} of each other, pair by pair.",
            tuple(
                Check.within(f"last acceleration: {a} - {b}", effort[a] - effort[b], -FEW_HUNDREDTHS, FEW_HUNDREDTHS)
                for a, b in combinations(PAPER_NETWORKS, 2)
            ),
        ),
    ]
