"""Reproduction of the paper: runs its experiments in a run directory and judges its statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from equiflock._runtime.checks import check_choice
from equiflock._runtime.checksums import compute_checksum, compute_file_checksum
from equiflock._runtime.executors import run_jobs
from equiflock._runtime.jobs import Job, is_done, read_results
from equiflock._runtime.provenance import lock_run_dir, read_package_versions
from equiflock.controllers.trained import bundled_validation_path, bundled_weights_path
from equiflock.paper.connectivity_experiment import build_connectivity_jobs, build_connectivity_statements
from equiflock.paper.flocking_experiment import build_flocking_jobs, build_flocking_statements
from equiflock.paper.generalization_experiment import build_cloning_jobs, build_generalization_statements
from equiflock.paper.leader_experiment import build_leader_jobs, build_leader_statements
from equiflock.paper.ledger import REMARKS, Statement
from equiflock.paper.network_statements import build_architecture_statements
from equiflock.paper.obstacle_experiment import build_obstacle_jobs, build_obstacle_statements
from equiflock.paper.profile import PROFILES, Profile
from equiflock.paper.report_flights import save_report_flights
from equiflock.paper.training_experiment import (
    build_training_jobs,
    build_training_statements,
    merge_validation_tables,
    read_bundled_tables,
)
from equiflock.statistics import RESAMPLES

JOB_BUILDERS: dict[str, Callable[[Profile, Path], Sequence[Job]]] = {
    "training": build_training_jobs,
    "connectivity": build_connectivity_jobs,
    "flocking": build_flocking_jobs,
    "leaders": build_leader_jobs,
    "obstacles": build_obstacle_jobs,
    "generalization": build_cloning_jobs,
}
"""Function that builds the jobs of each experiment from the profile and the run directory."""
STATEMENT_BUILDERS: dict[str, Callable[[pd.DataFrame, int], list[Statement]]] = {
    "training": build_training_statements,
    "connectivity": build_connectivity_statements,
    "flocking": build_flocking_statements,
    "leaders": build_leader_statements,
    "obstacles": build_obstacle_statements,
    "generalization": build_generalization_statements,
}
"""Function that builds the statements of each experiment from its table and the number of bootstrap samples."""
EXPERIMENTS = tuple(JOB_BUILDERS)
KIND = "reproduction"
OUTPUT_PATTERNS = (
    *("jobs", "flights", "fast-forward", "trainings"),
    *("*.csv", "*.png", "*.mp4", "*.html", "*.json", "*.md"),
)
"""Patterns of the files that a reproduction writes beside its config."""


def build_jobs(experiment: str, profile: Profile, folder: Path = Path()) -> Sequence[Job]:
    """Return the jobs of an experiment; empty if its results are bundled. `folder` is the run directory."""
    return JOB_BUILDERS[check_choice("experiment", experiment, EXPERIMENTS)](profile, folder)


def are_jobs_done(
    experiment: str, profile: Profile, folder: Path, on_damage: Callable[[str], object] = lambda text: None
) -> bool:
    """Return whether the run directory has intact results of all jobs of an experiment; True if it has no jobs.

    `on_damage` is called with a line of text about a damaged result, which counts as missing.
    """
    return all(is_done(job, folder / "jobs", on_damage) for job in build_jobs(experiment, profile))


def read_experiment_table(experiment: str, profile: Profile, folder: Path) -> pd.DataFrame:
    """Return the table of an experiment whose jobs are done; for bundled trainings, the bundled table of the seeds."""
    if experiment == "training" and profile.uses_bundled_weights:
        return read_bundled_tables().query("seed in @profile.seeds or controller == 'tanner'")
    table = read_results(build_jobs(experiment, profile), folder / "jobs")
    return merge_validation_tables(table) if experiment == "training" else table


def judge_statements(
    profile: Profile, folder: Path, tables: Mapping[str, pd.DataFrame], resamples: int = RESAMPLES
) -> list[Statement]:
    """Return the ledger: all statements that these tables, by experiment, can judge, sorted in the paper's order.

    Statements on the architecture are included if networks are available, which loads them. `resamples` = 0 leaves out
    the intervals, and changes no verdict.
    """
    has_networks = profile.has_networks(tables)
    statements = build_architecture_statements(profile.build_policies(folder), profile.seeds) if has_networks else []
    for experiment, table in tables.items():
        statements += STATEMENT_BUILDERS[experiment](table, resamples)
    # Architecture, training, flocking, leaders, obstacles, generalization: the first letters of their statements.
    return sorted(statements, key=lambda s: ("ATFLOG".index(s.id[0]), s.id))


@dataclass(frozen=True)
class Reproduction:
    """Results: a table per experiment, and the ledger."""

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
    """Run the jobs whose results in `folder/jobs` are missing or damaged, and judge the paper's statements.

    Experiments that were not requested are included if the run directory already has all their results. The flights of
    the report are saved in `folder/flights`. The data of behaviour cloning is generated in `folder/fast-forward`; it is
    not needed once all cloning jobs are done.

    Args:
        profile: size and interpretation of the reproduction.
        folder: run directory.
        workers: number of processes.
        experiments: names of the experiments to run.
        on_done: called with an experiment and each of its finished jobs, including those of earlier runs.
        on_data: called with every time index of the data, including those generated earlier.
        scheduler: address of a Dask scheduler whose workers run the jobs instead of local processes.
        on_notice: called with a line of text about every damaged file.
        force: clear the run directory and start again.
        films: whether to simulate the flights of the films.
        on_flight: called with the name of each flight that is simulated for the report.
    """
    # Check all names before running the first experiment.
    for experiment in experiments:
        check_choice("experiment", experiment, EXPERIMENTS)
    tables: dict[str, pd.DataFrame] = {}
    with lock_run_dir(folder, KIND, build_config(profile), OUTPUT_PATTERNS, force):
        for experiment in EXPERIMENTS:

            def leave_out(text: str, name: str = experiment) -> None:  # the default binds the current name
                on_notice(f"{text}; {name} is left out until it is run again")

            if experiment not in experiments and not are_jobs_done(experiment, profile, folder, leave_out):
                continue
            # Local processes share one copy of the data; workers on other machines generate their own.
            if experiment == "generalization" and scheduler is None and not are_jobs_done(experiment, profile, folder):
                for home, data in profile.build_datasets(folder).items():
                    data.make(home, workers, on_data, on_notice)
            run_jobs(
                build_jobs(experiment, profile, folder),
                folder / "jobs",
                workers,
                partial(on_done, experiment),
                scheduler=scheduler,
                on_notice=on_notice,
            )
            tables[experiment] = read_experiment_table(experiment, profile, folder)
        save_report_flights(profile, folder, tables, films and profile.has_networks(tables), on_flight, on_notice)
        statements = judge_statements(profile, folder, tables)
    # The remarks describe the results of the paper profile only.
    if profile == PROFILES["paper"]:
        statements = [replace(s, remark=REMARKS.get(s.id, "")) if s.verdict != "holds" else s for s in statements]
    return Reproduction(profile, tables, statements)


def build_config(profile: Profile) -> dict[str, Any]:
    """Return everything that the results depend on; a run directory with another config is not continued."""
    # Bundled weights may change between versions; other weights follow from their training settings.
    bundled = profile.networks if profile.uses_bundled_weights else []
    return {
        "profile": profile.settings,
        "jobs": {name: compute_jobs_checksum(name, profile) for name in EXPERIMENTS},
        "weights": {f"{name}:{n}": compute_file_checksum(bundled_weights_path(name, n)) for name, n in bundled},
        "tables": {f"{name}:{n}": compute_file_checksum(bundled_validation_path(name, n)) for name, n in bundled},
        "versions": read_package_versions("torch"),
    }


def compute_jobs_checksum(experiment: str, profile: Profile) -> str:
    """Return a checksum of all settings of an experiment's jobs, which also changes with a default."""
    return compute_checksum(repr(build_jobs(experiment, profile)).encode())
