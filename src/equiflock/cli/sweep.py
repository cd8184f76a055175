"""`equiflock sweep`."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from equiflock.cli.console import out
from equiflock.cli.environment_options import EnvironmentAxes, EnvironmentAxesArgument
from equiflock.cli.plugins import collect_plugin_sources, compute_plugin_checksum, import_plugin
from equiflock.cli.terminal import parse_floats, parse_integers, print_notice, print_table, progress, try_controller
from equiflock.learning.recipe import EXPERT, DAgger
from equiflock.runtime.checks import InputError, check_count
from equiflock.scenarios import RandomDisk

if TYPE_CHECKING:
    import pandas as pd

    from equiflock.experiments.sweep import SweepJob

OUTPUT_PATTERNS = ("jobs", "*.csv", "*.png", "grid.json")
"""Patterns of the files that a sweep writes beside its config."""
HEADINGS = {
    "ivv": "IVV",
    "iman": "IMAN",
    "final_velocity_variance": "variance\nat end",
    "disconnected": "flocks\nin pieces",
}


@dataclass(frozen=True)
class Sweep:
    """Evaluate controllers over a grid of flock sizes, radii, hops and worlds, or train one for each point of it first.

    Each option of radio, body and failures may have several values, such as --loss 0,0.1,0.2 or --delay 0-2. Writes
    sweep.csv, a row for every flock, summary.csv, and a heat map of the medians. What is in the folder already is not
    run again, so an interrupted sweep goes on where it was.
    """

    controller: str = "etdagnn"
    """Controllers, such as etdagnn,tdagnn,tanner: names, files of weights, or your own (see --plugin)."""
    agents: str = "25,50,100,200,400"
    """Flock sizes."""
    comm_radius: str = "1"
    """Communication radii, such as 0.8,1,1.5."""
    hops: str | None = None
    """K, such as 1-4; goes with --epochs only, as trained weights have theirs."""
    world: EnvironmentAxesArgument = field(default_factory=EnvironmentAxes)
    epochs: int = 0
    """Train each network for so many epochs first, with the agents, radius and hops of its point; its radio and
    body are perfect, and its weights are not kept."""
    seeds: str = "0"
    """Seeds of the weights, such as 0-4."""
    flocks: int = 20
    """How many test flocks for each point."""
    duration: float = 2.0
    """Seconds per flight."""
    time_step: float = 0.01
    """Seconds per step."""
    metric: Literal["ivv", "iman", "final_velocity_variance", "disconnected"] = "ivv"
    """What the heat map shows."""
    out: Path = Path("runs/sweep")
    """The folder to write to."""
    workers: int = os.cpu_count() or 1
    """How many processes."""
    scheduler: str | None = None
    """The address of a Dask scheduler whose workers run the jobs instead, such as tcp://10.0.0.1:8786."""
    plugin: str | None = None
    """A Python module or file to import first, such as one that registers your own controller."""
    force: bool = False
    """Remove what is in the folder, if it is a sweep, and begin anew."""

    def run(self) -> None:
        """Run the grid and print the medians."""
        from equiflock.experiments.sweep import build_sweep_jobs
        from equiflock.runtime.provenance import lock_run_dir, read_package_versions

        check_count("workers", self.workers)
        import_plugin(self.plugin)
        # All controllers are tried first, so that a slip in the last name does not cost the time of the others.
        controllers = [name.strip() for name in self.controller.split(",")]
        if len(set(controllers)) < len(controllers):
            raise InputError(f"controller must name each one once; got {self.controller!r}")
        if self.hops is not None and self.epochs == 0:
            raise InputError("--hops goes with --epochs: trained weights have their own")
        worlds = self.world.worlds
        for name in controllers:
            self._check_controller(name)
        # So are bodies, each once.
        for body in {repr(world.body): world.body for _, world in worlds}.values():
            try_controller(RandomDisk(1, 10).draw(), EXPERT, body=body)
        hops = [None] if self.epochs == 0 else parse_integers("hops", self.hops or str(DAgger.hops))
        jobs = build_sweep_jobs(
            controllers,
            parse_integers("seeds", self.seeds),
            parse_integers("agents", self.agents),
            parse_floats("comm_radius", self.comm_radius),
            hops,
            worlds=worlds,
            epochs=self.epochs,
            flocks=self.flocks,
            duration=self.duration,
            time_step=self.time_step,
            plugin=compute_plugin_checksum(self.plugin),
        )
        # Jobs name their results by what they are, so a sweep may grow in its folder.
        with lock_run_dir(
            self.out,
            "sweep",
            {"versions": read_package_versions(*(("torch",) if self.epochs else ()))},
            OUTPUT_PATTERNS,
            self.force,
        ):
            self._run_jobs(jobs)

    def _run_jobs(self, jobs: list[SweepJob]) -> None:
        """Run the points that are not done yet, and write and print the results of all points."""
        from equiflock.experiments.runner.jobs import read_results
        from equiflock.experiments.runner.run_jobs import run_jobs
        from equiflock.experiments.sweep import list_axes, summarize_sweep
        from equiflock.report.sweep_heatmaps import draw_sweep
        from equiflock.runtime.files import atomic_write

        with progress() as bar:
            task = bar.add_task(f"sweep over {len(jobs)} points", total=len(jobs))
            prepare = partial(import_plugin, self.plugin, collect_plugin_sources(self.plugin)) if self.plugin else None
            run_jobs(
                jobs,
                self.out / "jobs",
                self.workers,
                lambda job: bar.advance(task),
                prepare,
                self.scheduler,
                partial(print_notice, bar),
            )
        # Jobs are ordered for speed; rows are sorted for the reader.
        table = read_results(jobs, self.out / "jobs")
        table = table.sort_values(["controller", "seed", *list_axes(table), "flock"])
        medians = summarize_sweep(table)
        for name, content in (("sweep", table), ("summary", medians)):
            with atomic_write(self.out / f"{name}.csv") as scratch:
                content.to_csv(scratch, index=False)
        with atomic_write(self.out / "grid.json") as scratch:
            scratch.write_text(json.dumps([job.settings for job in jobs], indent=2) + "\n")
        # Points for which no initial conditions were found have a remark in place of numbers.
        empty = table[table.remark.notna()]
        if len(empty) == len(table):
            raise InputError(f"there are no such flocks at any point: {table.remark.iloc[0]}")
        drawn = draw_sweep(table, self.metric, self.out / f"{self.metric}.png")
        self._print_results(medians)
        for row in empty.drop_duplicates(["agents", "comm_radius"]).itertuples():
            out.print(f"  agents {row.agents}, comm_radius {row.comm_radius:g}: {row.remark}", highlight=False)
        for path in (self.out / "sweep.csv", self.out / "summary.csv", drawn):
            out.print(f"  {path}", highlight=False)

    def _print_results(self, medians: pd.DataFrame) -> None:
        """Print the medians; columns without any value, such as hops of untrained controllers, are left out."""
        from equiflock.experiments.sweep import list_axes

        medians = medians.dropna(axis="columns", how="all")
        # Four figures where there is room for them, else three; and axes of a single value only if there is room.
        varied = [name for name in medians if name not in list_axes(medians) or medians[name].nunique(dropna=False) > 1]
        forms = [_format_table(medians, 4), _format_table(medians, 3), _format_table(medians[varied], 3)]
        print_table("medians over flocks and seeds; of flocks in pieces the share", *forms)

    def _check_controller(self, controller: str) -> None:
        """A clear error, before anything is kept, if there is no such controller, or it cannot fly."""
        if self.epochs == 0:
            try_controller(RandomDisk(1, 10).draw(), controller)
            return
        from equiflock.learning.network_checks import prepare_network

        # A network is built and called once, so that a wrong shape is found before the first training.
        prepare_network(DAgger(controller=controller))


def _format_table(medians: pd.DataFrame, digits: int) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the printed table, with numbers of so many figures."""
    header = ["controller", *(HEADINGS.get(column, column.replace("_", "\n")) for column in medians.columns[1:])]
    return header, [[_format_cell(value, digits) for value in row] for row in medians.itertuples(index=False)]


def _format_cell(value: object, digits: int) -> str:
    if value is None or value != value:
        return "-"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)
