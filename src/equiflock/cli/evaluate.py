"""`equiflock evaluate`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from equiflock.cli.plugins import import_plugin, plugin_checksum, plugin_sources
from equiflock.cli.terminal import fly_a_little, notice, out, print_table, progress
from equiflock.controllers import load
from equiflock.runtime.checks import check_count, check_positive

if TYPE_CHECKING:
    import pandas as pd

    from equiflock.experiments.evaluation import Evaluated

OURS = ("jobs", "*.csv", "*.png")
"""What an evaluation writes beside its config."""


@dataclass(frozen=True)
class Evaluate:
    """Test a controller beside those of the package: the metrics and figures of the paper's experiments."""

    controller: Annotated[str, tyro.conf.Positional]
    """A file of weights (.safetensors), a name, or one of your own (see --plugin)."""
    scenario: Literal["flocking", "leaders", "obstacles"] = "flocking"
    """Flocking for 2 s, leader following for 3 s, or past an obstacle with the orbit technique."""
    agents: int = 100
    """How many agents in each flock."""
    flocks: int = 50
    """How many flocks."""
    sides: int = 24
    """Of the obstacle."""
    time_step: float | None = None
    """Seconds per step; if left out 0.001, and 0.01 past an obstacle."""
    out: Path | None = None
    """The folder to write to; runs/evaluation/CONTROLLER-SCENARIO if left out, with the checksum of a file of weights.
    Results of the same settings in it are not computed again."""
    workers: int = os.cpu_count() or 1
    """How many processes."""
    scheduler: str | None = None
    """The address of a Dask scheduler whose workers run the jobs instead, such as tcp://10.0.0.1:8786."""
    plugin: str | None = None
    """A Python module or file to import first, such as one that registers your own controller."""
    force: bool = False
    """Remove what is in the folder, if it is an evaluation, and begin anew."""

    def run(self) -> None:
        """Print the comparison and say where table and figure are."""
        from equiflock.experiments.evaluation import evaluation_jobs, evaluation_rows, folder_name
        from equiflock.experiments.runner.jobs import collect
        from equiflock.runtime.files import atomic_write
        from equiflock.runtime.provenance import claimed, versions

        for name in ("agents", "flocks", "sides", "workers"):
            check_count(name, getattr(self, name))
        import_plugin(self.plugin)
        load(self.controller)  # a clear error before anything is flown
        settings = self._settings()
        jobs = evaluation_jobs(**settings, plugin=plugin_checksum(self.plugin))
        fly_a_little(jobs[0].job.start(), self.controller)
        folder = self.out or Path("runs/evaluation") / folder_name(self.controller, self.scenario)
        weights = {job.name: job.checksum for job in jobs if job.checksum}
        config = {"settings": settings, "weights": weights, "versions": versions()}
        with claimed(folder, "evaluation", config, OURS, self.force):
            self._fly(jobs, folder / "jobs")
            table = collect(jobs, folder / "jobs")
            with atomic_write(folder / f"{self.scenario}.csv") as scratch:
                table.to_csv(scratch, index=False)
            drawn = self._draw(table, folder / f"{self.scenario}.png")
        title = f"{self.scenario}: {self.flocks} flocks of {self.agents} agents"
        print_table(title, *(evaluation_rows(table, self.scenario, quartiles) for quartiles in (True, False)))
        for path in (folder / f"{self.scenario}.csv", drawn):
            out.print(f"  {path}", highlight=False, soft_wrap=True)

    def _settings(self) -> dict[str, Any]:
        """What `evaluation_jobs` is called with, and the folder's config keeps."""
        usual = 0.01 if self.scenario == "obstacles" else 0.001
        time_step = usual if self.time_step is None else check_positive("time_step", self.time_step)
        names = "controller", "scenario", "agents", "flocks", "sides"
        return {**{name: getattr(self, name) for name in names}, "time_step": time_step}

    def _fly(self, jobs: Sequence[Evaluated], kept: Path) -> None:
        """Run the jobs whose results are not kept yet."""
        from equiflock.experiments.runner.jobs import run_jobs

        with progress() as bar:
            task = bar.add_task(f"{self.scenario}, {self.flocks} x {self.agents} agents", total=len(jobs))
            prepare = partial(import_plugin, self.plugin, plugin_sources(self.plugin)) if self.plugin else None
            advance, say = lambda job: bar.advance(task), partial(notice, bar)
            run_jobs(jobs, kept, self.workers, advance, prepare, self.scheduler, say)

    def _draw(self, table: pd.DataFrame, path: Path) -> Path:
        from equiflock.experiments.paper.flocking import VARIANCE
        from equiflock.report.endings import draw_endings
        from equiflock.report.reproduction import draw_flocking, draw_leaders

        if self.scenario == "flocking":
            return draw_flocking(table, VARIANCE, path)
        return draw_leaders(table, path) if self.scenario == "leaders" else draw_endings(table, path)
