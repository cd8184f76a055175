"""Profiles (size and interpretation) of a reproduction; jobs, tables and statements of its experiments."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from equiflock.controllers.trained import PAPER_SEEDS
from equiflock.experiments.paper.architecture import build_architecture_statements
from equiflock.experiments.paper.connectivity import build_connectivity_jobs, build_connectivity_statements
from equiflock.experiments.paper.flocking import build_flocking_jobs, build_flocking_statements
from equiflock.experiments.paper.generalization import (
    build_cloning_jobs,
    build_datasets,
    build_generalization_statements,
)
from equiflock.experiments.paper.interpretation import Interpretation
from equiflock.experiments.paper.leader_following import build_leader_jobs, build_leader_statements
from equiflock.experiments.paper.ledger import Statement
from equiflock.experiments.paper.obstacle_avoidance import SIDES, build_obstacle_jobs, build_obstacle_statements
from equiflock.experiments.paper.policies import TrainedPolicies, build_policy_training_jobs
from equiflock.experiments.paper.training import build_training_statements, merge_validation_tables, read_bundled_tables
from equiflock.experiments.runner.jobs import Job, is_done, read_results
from equiflock.learning.fast_forward import FastForward
from equiflock.learning.recipe import DAgger
from equiflock.runtime.checks import check_choice


@dataclass(frozen=True)
class Profile:
    """Size of a reproduction (training seeds, flocks, flock sizes, obstacles, data), and the interpretation."""

    name: str
    seeds: tuple[int, ...] = tuple(PAPER_SEEDS)
    flocks: int = 50
    sizes: tuple[int, ...] = (50, 100, 200, 400)
    sides: tuple[int, ...] = SIDES
    fast_forward: FastForward = field(default_factory=FastForward)
    cloning_seeds: tuple[int, ...] = (0, 1, 2)
    recipe: DAgger = field(default_factory=DAgger)
    """Training settings, except those set by the interpretation."""
    split: str | None = None
    """Set of initial conditions of all flights; None for those of the tests."""
    interpretation: Interpretation = field(default_factory=Interpretation)

    @property
    def uses_bundled_weights(self) -> bool:
        """Whether the bundled weights are those that the trainings of this profile would produce."""
        is_default = self.interpretation.restrict_to("training") == Interpretation() and self.recipe == DAgger()
        return is_default and set(self.seeds) <= set(PAPER_SEEDS)

    @property
    def settings(self) -> dict[str, Any]:
        """All fields, JSON-serializable; the recipe as in the run directory of a training."""
        return {**asdict(self), "recipe": self.recipe.settings}

    def has_networks(self, experiments: Container[str]) -> bool:
        """Return whether networks are available: bundled, or trained because "training" is among these experiments."""
        return self.uses_bundled_weights or "training" in experiments

    def build_policies(self, folder: Path) -> TrainedPolicies:
        """Return the source of trained networks; those not bundled are trained in `folder`/trainings when loaded."""
        interpretation = self.interpretation.restrict_to("training")
        return TrainedPolicies(
            interpretation, None if self.uses_bundled_weights else self.recipe, (folder / "trainings").resolve()
        )

    def build_datasets(self, folder: Path) -> dict[Path, FastForward]:
        """Return the settings of the datasets of behaviour cloning by subdirectory of `folder`; none is generated."""
        home = (folder / "fast-forward").resolve()
        return build_datasets(self.cloning_seeds, self.interpretation, self.fast_forward, home)


PROFILES = {
    "paper": Profile("paper"),
    "quick": Profile(
        "quick",
        seeds=(0,),
        flocks=10,
        sizes=(50, 100, 200),
        sides=(3, 12, 48, 96),
        fast_forward=FastForward(train_flocks=6, test_flocks=10),
        cloning_seeds=(0,),
    ),
}

JOB_BUILDERS: dict[str, Callable[[Profile, Path], Sequence[Job]]] = {
    "training": lambda p, folder: (
        [] if p.uses_bundled_weights else build_policy_training_jobs(p.build_policies(folder), p.seeds)
    ),
    "connectivity": lambda p, folder: build_connectivity_jobs(p.seeds, p.flocks, p.build_policies(folder), p.split),
    "flocking": lambda p, folder: build_flocking_jobs(
        p.sizes, p.seeds, p.flocks, p.interpretation, p.build_policies(folder), p.split
    ),
    "leaders": lambda p, folder: build_leader_jobs(
        p.seeds, p.flocks, p.interpretation, p.build_policies(folder), p.split
    ),
    "obstacles": lambda p, folder: build_obstacle_jobs(
        p.sides, p.seeds, p.flocks, p.interpretation, p.build_policies(folder), p.split
    ),
    "generalization": lambda p, folder: build_cloning_jobs(p.interpretation, p.build_datasets(folder)),
}
"""Function that builds the jobs of each experiment from the profile and the run directory."""
EXPERIMENTS = tuple(JOB_BUILDERS)

STATEMENT_BUILDERS: dict[str, Callable[[pd.DataFrame], list[Statement]]] = {
    "training": build_training_statements,
    "connectivity": build_connectivity_statements,
    "flocking": build_flocking_statements,
    "leaders": build_leader_statements,
    "obstacles": build_obstacle_statements,
    "generalization": build_generalization_statements,
}
"""Function that builds the statements of each experiment from its table."""


def build_jobs(experiment: str, profile: Profile, folder: Path = Path()) -> Sequence[Job]:
    """Return the jobs of an experiment; empty if its results are bundled. `folder` is the run directory."""
    return JOB_BUILDERS[check_choice("experiment", experiment, EXPERIMENTS)](profile, folder)


def are_jobs_done(
    experiment: str, profile: Profile, folder: Path, on_damage: Callable[[str], object] = lambda text: None
) -> bool:
    """Return whether the run directory has intact results of all jobs of an experiment; True if it has no jobs.

    `on_damage` is called with a line of text about damaged results, which count as missing, up to the first missing
    one.
    """
    return all(is_done(job, folder / "jobs", on_damage) for job in build_jobs(experiment, profile))


def read_experiment_table(experiment: str, profile: Profile, folder: Path) -> pd.DataFrame:
    """Return the table of an experiment whose jobs are done; for bundled trainings, the bundled table of the seeds."""
    if experiment == "training" and profile.uses_bundled_weights:
        return read_bundled_tables().query("seed in @profile.seeds or controller == 'tanner'")
    table = read_results(build_jobs(experiment, profile), folder / "jobs")
    return merge_validation_tables(table) if experiment == "training" else table


def judge_statements(profile: Profile, folder: Path, tables: Mapping[str, pd.DataFrame]) -> list[Statement]:
    """Return the ledger: all statements that these tables, by experiment, can judge, sorted in the paper's order.

    Statements on the architecture are included if networks are available, which loads them.
    """
    has_networks = profile.has_networks(tables)
    statements = build_architecture_statements(profile.build_policies(folder), profile.seeds) if has_networks else []
    for experiment, table in tables.items():
        statements += STATEMENT_BUILDERS[experiment](table)
    # Architecture, training, flocking, leaders, obstacles, generalization: the first letters of their statements.
    order = {name: number for number, name in enumerate("ATFLOG")}
    return sorted(statements, key=lambda s: (order[s.id[0]], s.id))
