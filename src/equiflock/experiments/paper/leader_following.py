"""Leader following: two agents lead, the others have learned only to flock (section 5, "Leader following")."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from equiflock.controllers.trained import TRAINED
from equiflock.experiments.curves import TimeCurves, controller_of, curve_table
from equiflock.experiments.paper.ledger import Check, Statement
from equiflock.flock import Flock
from equiflock.scenarios import LeaderFollowing, RandomDisk
from equiflock.scenarios.leaders import LeaderVelocity
from equiflock.simulation import metrics
from equiflock.simulation.simulate import simulate
from equiflock.simulation.trajectory import Trajectory

DISTANCE, EFFORT, PIECES = "mean_leader_velocity_distance", "mean_acceleration_norm", "component_count"


@dataclass(frozen=True)
class LeaderJob:
    """One controller on the test flocks, two agents of each being leaders."""

    recorded: ClassVar = (
        metrics.mean_leader_velocity_distance,
        metrics.mean_acceleration_norm,
        metrics.component_count,
    )
    controller: str
    seed: int | None
    flocks: int = 50
    agents: int = 100
    leader_velocity: LeaderVelocity = "mean"
    time_step: float = 1e-3
    duration: float = 3.0

    @property
    def key(self) -> str:
        """The job's name."""
        return f"leaders-{self.leader_velocity}-{self.controller}-{self.seed}-{self.agents}"

    @property
    def labels(self) -> dict[str, Any]:
        """Of its rows."""
        return {"controller": self.controller, "seed": self.seed, "leader_velocity": self.leader_velocity}

    def start(self) -> Flock:
        """The flocks and their leaders."""
        disk = RandomDisk(self.flocks, self.agents, split="leader following")
        return LeaderFollowing(disk, leader_velocity=self.leader_velocity).draw()

    def fly(self, start: Flock, **kept: Any) -> Trajectory:
        """The flight of these flocks; `kept` tells `simulate` what to keep of it."""
        controller = controller_of(self.controller, self.seed)
        return simulate(start, controller, time_step=self.time_step, duration=self.duration, **kept)

    def run(self) -> pd.DataFrame:
        """Distance to the leaders' velocity, mean acceleration norm and components, every hundredth of a second."""
        return self.table(self.fly(self.start(), keep_every=None, record=self.recorded))

    def table(self, run: Trajectory) -> pd.DataFrame:
        """The result, from a flight with what is `recorded`."""
        series = {**run.series, "disconnected": (run.series[PIECES] > 1).astype(float)}
        names = DISTANCE, EFFORT, "disconnected"
        return curve_table(replace(run, series=series), names, every=max(round(0.01 / self.time_step), 1))


def leader_jobs(seeds: tuple[int, ...], flocks: int) -> list[LeaderJob]:
    """The whole experiment: every controller and seed."""
    return [LeaderJob(name, seed, flocks) for name, seed in product(TRAINED, seeds)]


def leader_statements(table: pd.DataFrame) -> list[Statement]:
    """L1 and L2."""
    curves = TimeCurves(table)
    last = {name: curves.last(DISTANCE, name) for name in TRAINED}
    effort = {name: curves.last(EFFORT, name) for name in TRAINED}
    best = "tdagnn-tf-mean"
    others = [name for name in TRAINED if name != best]
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
            "Medians at the last step within a factor of 1.5 of each other, pair by pair.",
            tuple(
                Check.within(f"last acceleration: {a} / {b}", np.asarray(effort[a] / effort[b]), 1 / 1.5, 1.5)
                for a, b in combinations(TRAINED, 2)
            ),
        ),
    ]
