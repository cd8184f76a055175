"""The reproduction: all experiments of the paper are run, and its statements judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
    """The results: a table for every experiment, and the ledger."""

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
    """Run the jobs whose results are not in `folder/jobs`, or are damaged, and judge the paper's statements.

    The flights that the report shows are kept in `folder/flights`.

    Experiments that were not asked for are included if all their jobs are in the folder already. The data of behaviour
    cloning is made in `folder/fast-forward`, and is not needed once all of its jobs are done.

    Args:
        profile: the size of the reproduction.
        folder: the folder of jobs, data and flights.
        workers: the number of processes.
        experiments: those to run.
        on_done: called with an experiment and a job of it that is done, or was before.
        on_data: called with every time index of the data that is made, or was before.
        scheduler: the address of a Dask scheduler whose workers run the jobs, in place of processes here.
        on_notice: called with a line of text about whatever is damaged.
        force: remove what is in the folder and begin anew.
        films: whether the flights of the films are flown, too.
        on_flight: called with the name of each flight that is flown for the report.
    """
    # A wrong name is an error before the first of the others is run.
    for experiment in experiments:
        check_choice("experiment", experiment, EXPERIMENTS)
    tables: dict[str, pd.DataFrame] = {}
    with lock_run_dir(folder, KIND, settings(profile), OUTPUT_PATTERNS, force):
        for experiment in EXPERIMENTS:
            # The name is bound as a default, as the loop goes on before the function is called.
            def leave_out(text: str, name: str = experiment) -> None:
                on_notice(f"{text}; {name} takes no part until it is run again")

            if experiment not in experiments and not are_jobs_done(experiment, profile, folder, leave_out):
                continue
            # Processes here share one copy of the data; workers elsewhere make their own.
            if experiment == "generalization" and scheduler is None and not are_jobs_done(experiment, profile, folder):
                for home, data in profile.data(folder).items():
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
        save_report_flights(folder, tables, profile.policies(folder), profile.interpretation, films, on_flight)
        statements = judge_statements(profile, folder, tables)
    # Remarks were written about the paper profile, and would be wrong about another one.
    if profile == PROFILES["paper"]:
        statements = [replace(s, remark=REMARKS.get(s.id, "")) if s.verdict != "holds" else s for s in statements]
    return Reproduction(profile, tables, statements)


def settings(profile: Profile) -> dict[str, Any]:
    """Everything that the results depend on; a folder with other settings is not continued."""
    # Weights of the package may change from version to version; others follow from the settings of their trainings.
    uses_bundled_weights = (
        [(name, seed) for name in PAPER_NETWORKS for seed in profile.seeds] if profile.uses_bundled_weights else []
    )
    weights = {
        f"{name}:{seed}": compute_file_checksum(bundled_weights_path(name, seed)) for name, seed in uses_bundled_weights
    }
    tables = {
        f"{name}:{seed}": compute_file_checksum(bundled_validation_path(name, seed))
        for name, seed in uses_bundled_weights
    }
    # The repr of a job has all its settings, so a change of any default is noticed.
    jobs = {name: compute_checksum(repr(build_jobs(name, profile)).encode()) for name in EXPERIMENTS}
    return {
        "profile": profile.settings,
        "jobs": jobs,
        "weights": weights,
        "tables": tables,
        "versions": read_package_versions("torch"),
    }
