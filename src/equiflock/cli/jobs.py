"""Commands that run jobs: their options, a progress bar, and a trial of controllers before any job."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equiflock.cli.plugins import collect_plugin_sources, import_plugin
from equiflock.cli.terminal import print_notice, progress
from equiflock.controllers import load
from equiflock.flock import Flock
from equiflock.simulation.flight_builder import flight
from equiflock.simulation.last_step import LastStepRecorder
from equiflock.simulation.metrics import list_user_metrics

if TYPE_CHECKING:
    import pandas as pd

    from equiflock._runtime.jobs import Job

TRIAL_STEPS = 3


def try_controller(start: Flock, controller: str, **flight_options: Any) -> None:
    """Simulate TRIAL_STEPS steps and compute users' metrics.

    Raise the error of a broken controller or metric before jobs run or files are written.
    """
    last_steps = LastStepRecorder()
    for moment in islice(flight(start, load(controller), **flight_options), TRIAL_STEPS):
        measured = last_steps.attach(moment)
        for metric in list_user_metrics():
            metric(measured)


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """Options of a command that runs jobs in several processes. Commands inherit them, and may redeclare one."""

    workers: int = os.cpu_count() or 1
    """Number of worker processes."""
    scheduler: str | None = None
    """Address of a Dask scheduler to run the jobs on instead, such as tcp://10.0.0.1:8786."""

    @property
    def prepare_worker(self) -> Callable[[], object] | None:
        """Function that imports the plugin, if the command has one, in a worker; None without a plugin."""
        plugin = getattr(self, "plugin", None)
        return partial(import_plugin, plugin, collect_plugin_sources(plugin)) if plugin else None

    def run_jobs(self, jobs: Sequence[Job], results_dir: Path, title: str) -> pd.DataFrame:
        """Run the jobs that have no results in `results_dir` yet, with a progress bar; return the table of all jobs."""
        from equiflock._runtime.executors import run_jobs
        from equiflock._runtime.jobs import read_results

        with progress() as bar:
            task = bar.add_task(title, total=len(jobs))
            advance, on_notice = lambda job: bar.advance(task), partial(print_notice, bar)
            run_jobs(jobs, results_dir, self.workers, advance, self.prepare_worker, self.scheduler, on_notice)
        return read_results(jobs, results_dir)
