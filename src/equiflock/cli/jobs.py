"""Runs the jobs of a command with a progress bar, after a trial of their controllers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equiflock.cli.plugins import collect_plugin_sources, import_plugin
from equiflock.cli.terminal import print_notice, progress
from equiflock.controllers import load
from equiflock.flock import Flock
from equiflock.simulation.flight_builder import flight

if TYPE_CHECKING:
    import pandas as pd

    from equiflock._runtime.jobs import Job

TRIAL_STEPS = 3


def try_controller(start: Flock, controller: str, **flight_options: Any) -> None:
    """Simulate TRIAL_STEPS steps, so that a broken controller raises its error before jobs are run or files written."""
    list(islice(flight(start, load(controller), **flight_options), TRIAL_STEPS))


def run_and_read_jobs(
    title: str, jobs: Sequence[Job], results_dir: Path, *, workers: int, scheduler: str | None, plugin: str | None
) -> pd.DataFrame:
    """Run the jobs that have no results in `results_dir` yet, and return the table of all jobs.

    They run in worker processes or, if it is given, on the workers of a Dask scheduler; these import the plugin, too.
    """
    from equiflock._runtime.executors import run_jobs
    from equiflock._runtime.jobs import read_results

    with progress() as bar:
        task = bar.add_task(title, total=len(jobs))
        prepare = partial(import_plugin, plugin, collect_plugin_sources(plugin)) if plugin else None
        on_notice = partial(print_notice, bar)
        run_jobs(jobs, results_dir, workers, lambda job: bar.advance(task), prepare, scheduler, on_notice)
    return read_results(jobs, results_dir)
