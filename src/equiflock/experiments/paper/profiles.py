"""How large a reproduction is and by which reading; the jobs, tables and statements of its experiments."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from equiflock.controllers.trained import SEEDS
from equiflock.experiments.paper.architecture import architecture_statements
from equiflock.experiments.paper.connectivity import connectivity_jobs, connectivity_statements
from equiflock.experiments.paper.flocking import flocking_jobs, flocking_statements
from equiflock.experiments.paper.generalization import cloning_jobs, data_sets, generalization_statements
from equiflock.experiments.paper.leader_following import leader_jobs, leader_statements
from equiflock.experiments.paper.ledger import Statement
from equiflock.experiments.paper.obstacle_avoidance import SIDES, obstacle_jobs, obstacle_statements
from equiflock.experiments.paper.pupils import Pupils, pupil_jobs
from equiflock.experiments.paper.reading import Reading
from equiflock.experiments.paper.training import trained_tables, training_statements, training_table
from equiflock.experiments.runner.jobs import Job, collect, is_done
from equiflock.learning.fast_forward import FastForward
from equiflock.learning.recipe import DAgger
from equiflock.runtime.checks import check_choice


@dataclass(frozen=True)
class Profile:
    """The size of a reproduction: training seeds, flocks, flock sizes, obstacles and data; and the reading."""

    name: str
    seeds: tuple[int, ...] = tuple(SEEDS)
    flocks: int = 50
    sizes: tuple[int, ...] = (50, 100, 200, 400)
    sides: tuple[int, ...] = SIDES
    fast_forward: FastForward = field(default_factory=FastForward)
    cloning_seeds: tuple[int, ...] = (0, 1, 2)
    recipe: DAgger = field(default_factory=DAgger)
    """The settings of trainings, but for what the reading sets."""
    split: str | None = None
    """The set of initial conditions of all flights; None for those of the tests."""
    reading: Reading = field(default_factory=Reading)

    @property
    def bundled(self) -> bool:
        """Whether the package's own weights are what the trainings of this profile would give."""
        usual = self.reading.of("training") == Reading() and self.recipe == DAgger()
        return usual and set(self.seeds) <= set(SEEDS)

    @property
    def settings(self) -> dict[str, Any]:
        """All fields, fit for JSON, with the recipe's as a training's own folder has them."""
        return {**asdict(self), "recipe": self.recipe.settings}

    def has_networks(self, experiments: Container[str]) -> bool:
        """Whether networks are there once these experiments are run: none is trained just to be shown or counted."""
        return self.bundled or "training" in experiments

    def pupils(self, folder: Path) -> Pupils:
        """The trained networks; those that do not come with the package are trained in a folder inside this one."""
        reading = self.reading.of("training")
        return Pupils(reading, None if self.bundled else self.recipe, (folder / "trainings").resolve())

    def data(self, folder: Path) -> dict[Path, FastForward]:
        """The data sets of behaviour cloning, by their folders, which are inside this one."""
        home = (folder / "fast-forward").resolve()
        return data_sets(self.cloning_seeds, self.reading, self.fast_forward, home)


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

JOBS: dict[str, Callable[[Profile, Path], Sequence[Job]]] = {
    "training": lambda p, folder: [] if p.bundled else pupil_jobs(p.pupils(folder), p.seeds),
    "connectivity": lambda p, folder: connectivity_jobs(p.seeds, p.flocks, p.pupils(folder), p.split),
    "flocking": lambda p, folder: flocking_jobs(p.sizes, p.seeds, p.flocks, p.reading, p.pupils(folder), p.split),
    "leaders": lambda p, folder: leader_jobs(p.seeds, p.flocks, p.reading, p.pupils(folder), p.split),
    "obstacles": lambda p, folder: obstacle_jobs(p.sides, p.seeds, p.flocks, p.reading, p.pupils(folder), p.split),
    "generalization": lambda p, folder: cloning_jobs(p.reading, p.data(folder)),
}
"""The jobs of each experiment, from the profile and the folder of the reproduction."""
EXPERIMENTS = tuple(JOBS)

STATEMENTS: dict[str, Callable[[pd.DataFrame], list[Statement]]] = {
    "training": training_statements,
    "connectivity": connectivity_statements,
    "flocking": flocking_statements,
    "leaders": leader_statements,
    "obstacles": obstacle_statements,
    "generalization": generalization_statements,
}
"""The statements that the table of each experiment judges."""


def jobs_of(experiment: str, profile: Profile, folder: Path = Path()) -> Sequence[Job]:
    """The jobs of an experiment, none if its results come with the package; `folder` is that of the reproduction."""
    return JOBS[check_choice("experiment", experiment, EXPERIMENTS)](profile, folder)


def jobs_done(
    experiment: str, profile: Profile, folder: Path, on_damage: Callable[[str], object] = lambda text: None
) -> bool:
    """Whether all results of an experiment are in the folder."""
    return all(is_done(job, folder / "jobs", on_damage) for job in jobs_of(experiment, profile))


def table_of(experiment: str, profile: Profile, folder: Path) -> pd.DataFrame:
    """The table of an experiment whose jobs are done."""
    jobs = jobs_of(experiment, profile)
    if experiment == "training":
        bundled = profile.bundled
        table = trained_tables() if bundled else training_table(collect(jobs, folder / "jobs"))
        return table.query("seed in @profile.seeds or controller == 'tanner'") if bundled else table
    return collect(jobs, folder / "jobs")


def judged(profile: Profile, folder: Path, tables: Mapping[str, pd.DataFrame]) -> list[Statement]:
    """The ledger: all statements that these tables can judge, in the paper's order."""
    there = profile.has_networks(tables)
    statements = architecture_statements(profile.pupils(folder), profile.seeds) if there else []
    for experiment, table in tables.items():
        statements += STATEMENTS[experiment](table)
    # Architecture, training, flocking, leaders, obstacles, generalization: the first letters of their statements.
    order = {name: number for number, name in enumerate("ATFLOG")}
    return sorted(statements, key=lambda s: (order[s.id[0]], s.id))
