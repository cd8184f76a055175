"""Reproduction of the paper: runs all of its experiments and judges its statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from equiflock.controllers.trained import PAPER_NETWORKS, bundled_validation_path, bundled_weights_path
from equiflock.experiments.paper.ledger import Statement
from equiflock.experiments.paper.profiles import (
    EXPERIMENTS,
    PROFILES,
    Profile,
    are_jobs_done,
    build_jobs,
    judge_statements,
    read_experiment_table,
)
from equiflock.experiments.paper.remarks import REMARKS
from equiflock.experiments.paper.report_flights import save_report_flights
from equiflock.experiments.runner.jobs import Job
from equiflock.experiments.runner.run_jobs import run_jobs
from equiflock.runtime.checks import check_choice
from equiflock.runtime.checksums import compute_checksum, compute_file_checksum
from equiflock.runtime.provenance import lock_run_dir, read_package_versions

KIND = "reproduction"
OUTPUT_PATTERNS = (
    "jobs",
    "flights",
    "fast-forward",
    "trainings",
    "*.csv",
    "*.png",
    "*.mp4",
    "*.html",
    "*.json",
    "*.md",
)
"""Patterns of the files that a reproduction writes beside its config."""


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

    The flights of the report are saved in `folder/flights`.

    Experiments that were not requested are included if the run directory already has all their results. The data of
    behaviour cloning is generated in `folder/fast-forward`; it is not needed once all cloning jobs are done.

    Args:
        profile: size and interpretation of the reproduction.
        folder: run directory, with jobs, data and flights.
        workers: number of processes.
        experiments: experiments to run.
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
            # A default argument binds the current name.
            def leave_out(text: str, name: str = experiment) -> None:
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
        films = films and profile.has_networks(tables)
        save_report_flights(folder, tables, profile.build_policies(folder), profile.interpretation, films, on_flight)
        statements = judge_statements(profile, folder, tables)
    # The remarks describe the results of the paper profile only.
    if profile == PROFILES["paper"]:
        statements = [replace(s, remark=REMARKS.get(s.id, "")) if s.verdict != "holds" else s for s in statements]
    return Reproduction(profile, tables, statements)


def build_config(profile: Profile) -> dict[str, Any]:
    """Return everything that the results depend on; a run directory with another config is not continued."""
    # Bundled weights may change between versions; other weights follow from their training settings.
    bundled = list(product(PAPER_NETWORKS, profile.seeds)) if profile.uses_bundled_weights else []
    weights = {f"{name}:{seed}": compute_file_checksum(bundled_weights_path(name, seed)) for name, seed in bundled}
    tables = {f"{name}:{seed}": compute_file_checksum(bundled_validation_path(name, seed)) for name, seed in bundled}
    # The repr of a job contains all its settings, so that a changed default is noticed.
    jobs = {name: compute_checksum(repr(build_jobs(name, profile)).encode()) for name in EXPERIMENTS}
    return {
        "profile": profile.settings,
        "jobs": jobs,
        "weights": weights,
        "tables": tables,
        "versions": read_package_versions("torch"),
    }
