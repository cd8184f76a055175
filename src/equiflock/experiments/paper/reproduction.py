"""The paper's experiments, all of them: what is run, at which size, and what is stated about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from equiflock.controllers.trained import SEEDS, TRAINED, trained_validation, trained_weights
from equiflock.experiments.paper.architecture import architecture_statements
from equiflock.experiments.paper.connectivity import connectivity_jobs, connectivity_statements
from equiflock.experiments.paper.flocking import flocking_jobs, flocking_statements
from equiflock.experiments.paper.generalization import cloning_jobs, generalization_statements
from equiflock.experiments.paper.leader_following import leader_jobs, leader_statements
from equiflock.experiments.paper.ledger import Statement
from equiflock.experiments.paper.obstacle_avoidance import SIDES, obstacle_jobs, obstacle_statements
from equiflock.experiments.paper.remarks import REMARKS
from equiflock.experiments.paper.shown import fly_shown
from equiflock.experiments.paper.training import trained_tables, training_statements
from equiflock.experiments.runner.jobs import Job, collect, is_done
from equiflock.experiments.runner.running import run_jobs
from equiflock.learning.fast_forward import FastForward
from equiflock.runtime.checks import check_choice
from equiflock.runtime.checksums import checksum, file_checksum
from equiflock.runtime.provenance import claimed, versions

KIND = "reproduction"
OURS = ("jobs", "cells", "flights", "fast-forward", "*.csv", "*.png", "*.mp4", "*.html", "*.json", "*.md")
"""What a reproduction writes beside its config; version 0.1 wrote cells in place of jobs."""


@dataclass(frozen=True)
class Profile:
    """How much of the paper's experiments is run."""

    name: str
    seeds: tuple[int, ...] = tuple(SEEDS)
    flocks: int = 50
    sizes: tuple[int, ...] = (50, 100, 200, 400)
    sides: tuple[int, ...] = SIDES
    fast_forward: FastForward = field(default_factory=FastForward)
    cloning_seeds: tuple[int, ...] = (0, 1, 2)
    cloning_epochs: int = 50


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

STATEMENTS: dict[str, Callable[[pd.DataFrame], list[Statement]]] = {
    "training": training_statements,
    "connectivity": connectivity_statements,
    "flocking": flocking_statements,
    "leaders": leader_statements,
    "obstacles": obstacle_statements,
    "generalization": generalization_statements,
}


JOBS: dict[str, Callable[[Profile, Path], Sequence[Job]]] = {
    "connectivity": lambda profile, data: connectivity_jobs(profile.seeds, profile.flocks),
    "flocking": lambda profile, data: flocking_jobs(profile.sizes, profile.seeds, profile.flocks),
    "leaders": lambda profile, data: leader_jobs(profile.seeds, profile.flocks),
    "obstacles": lambda profile, data: obstacle_jobs(profile.sides, profile.seeds, profile.flocks),
    "generalization": lambda profile, data: cloning_jobs(
        profile.cloning_seeds, profile.cloning_epochs, profile.fast_forward, data
    ),
}
"""The jobs of each experiment that has any, from the profile and the folder of its data."""
RUN_IN_JOBS = tuple(JOBS)
EXPERIMENTS = ("training", *RUN_IN_JOBS)


def jobs_of(experiment: str, profile: Profile, data: Path = Path()) -> Sequence[Job]:
    """The jobs of an experiment; `data` is the folder of its data, if it has any."""
    return JOBS[check_choice("experiment", experiment, RUN_IN_JOBS)](profile, data)


@dataclass(frozen=True)
class Reproduction:
    """What was found: a table for every experiment, and the ledger."""

    profile: Profile
    tables: dict[str, pd.DataFrame]
    statements: list[Statement]


def reproduce(
    profile: Profile,
    folder: Path,
    workers: int,
    experiments: Sequence[str] = EXPERIMENTS,
    on_done: Callable[[str, Job], object] = lambda experiment, job: None,
    on_data: Callable[[int], object] = lambda step: None,
    scheduler: str | None = None,
    on_notice: Callable[[str], object] = lambda text: None,
    force: bool = False,
    films: bool = True,
    on_flight: Callable[[str], object] = lambda name: None,
) -> Reproduction:
    """Run what is not in `folder/jobs` yet, or is damaged, and judge the paper's statements.

    What the report shows besides tables is kept as flights in `folder/flights`.

    Experiments that were not asked for take part if all their jobs are in the folder already. The data that
    controllers clone from is made in `folder/fast-forward`, and not needed once all those jobs are done.

    Args:
        profile: how much of the paper.
        folder: of jobs and data.
        workers: how many processes.
        experiments: those to run.
        on_done: called with an experiment and a job of it that is done, or was before.
        on_data: called with every time index of the data that is made, or was before.
        scheduler: the address of a Dask scheduler whose workers run the jobs, in place of processes here.
        on_notice: called with a line of text about whatever is damaged.
        force: remove what is in the folder and begin anew.
        films: whether the flights of the films are flown, too.
        on_flight: called with the name of each flight that is flown for the report.
    """
    for experiment in experiments:
        check_choice("experiment", experiment, EXPERIMENTS)
    tables: dict[str, pd.DataFrame] = {}
    with claimed(folder, KIND, settings(profile), OURS, force):
        for experiment in EXPERIMENTS:

            def leave_out(text: str, name: str = experiment) -> None:
                on_notice(f"{text}; {name} takes no part until it is run again")

            if experiment not in experiments and not _is_done(experiment, profile, folder, leave_out):
                continue
            if experiment == "training":
                tables[experiment] = trained_tables().query("seed in @profile.seeds or controller == 'tanner'")
                continue
            jobs = jobs_of(experiment, profile, (folder / "fast-forward").resolve())
            if experiment == "generalization" and scheduler is None and not _is_done(experiment, profile, folder):
                profile.fast_forward.make(folder / "fast-forward", workers, on_data, on_notice)
            run_jobs(
                jobs, folder / "jobs", workers, partial(on_done, experiment), scheduler=scheduler, on_notice=on_notice
            )
            tables[experiment] = collect(jobs, folder / "jobs")
        fly_shown(folder, tables, films, on_flight)
    return Reproduction(profile, tables, _judged(profile, tables))


def _judged(profile: Profile, tables: Mapping[str, pd.DataFrame]) -> list[Statement]:
    """The ledger: all statements that these tables can judge, in the paper's order."""
    statements = architecture_statements(profile.seeds)
    for experiment, table in tables.items():
        statements += STATEMENTS[experiment](table)
    if profile == PROFILES["paper"]:
        statements = [replace(s, remark=REMARKS.get(s.id, "")) if s.verdict != "holds" else s for s in statements]
    order = {name: number for number, name in enumerate("ATFLOG")}
    return sorted(statements, key=lambda s: (order[s.id[0]], s.id))


def settings(profile: Profile) -> dict[str, Any]:
    """Everything that has a say in the results."""
    weights = {
        f"{name}:{seed}": file_checksum(trained_weights(name, seed)) for name in TRAINED for seed in profile.seeds
    }
    tables = {
        f"{name}:{seed}": file_checksum(trained_validation(name, seed)) for name in TRAINED for seed in profile.seeds
    }
    jobs = {name: checksum(repr(jobs_of(name, profile)).encode()) for name in RUN_IN_JOBS}
    return {"profile": asdict(profile), "jobs": jobs, "weights": weights, "tables": tables, "versions": versions()}


def _is_done(
    experiment: str, profile: Profile, folder: Path, on_damage: Callable[[str], object] = lambda text: None
) -> bool:
    if experiment == "training":
        return True
    return all(is_done(job, folder / "jobs", on_damage) for job in jobs_of(experiment, profile))
