"""`equiflock sweep`."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from equiflock.cli.console import out
from equiflock.cli.plugins import import_plugin, plugin_checksum, plugin_sources
from equiflock.cli.terminal import fly_a_little, notice, numbers, print_table, progress, whole_numbers
from equiflock.cli.world import ManyWorlds, WorldAxes
from equiflock.learning.recipe import EXPERT, DAgger
from equiflock.runtime.checks import InputError, check_count
from equiflock.scenarios import RandomDisk

if TYPE_CHECKING:
    import pandas as pd

    from equiflock.experiments.sweep import SweepJob

OURS = ("jobs", "*.csv", "*.png", "grid.json")
"""Patterns of the files that a sweep writes beside its config."""
HEADINGS = {"ivv": "IVV", "iman": "IMAN", "last_variance": "variance\nat end", "disconnected": "flocks\nin pieces"}


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
    world: ManyWorlds = field(default_factory=WorldAxes)
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
    metric: Literal["ivv", "iman", "last_variance", "disconnected"] = "ivv"
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
        from equiflock.experiments.sweep import sweep_jobs
        from equiflock.runtime.provenance import claimed, versions

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
            self._check(name)
        # So are bodies, each once.
        for body in {repr(world.body): world.body for _, world in worlds}.values():
            fly_a_little(RandomDisk(1, 10).draw(), EXPERT, body=body)
        hops = [None] if self.epochs == 0 else whole_numbers("hops", self.hops or str(DAgger.hops))
        jobs = sweep_jobs(
            controllers,
            whole_numbers("seeds", self.seeds),
            whole_numbers("agents", self.agents),
            numbers("comm_radius", self.comm_radius),
            hops,
            worlds=worlds,
            epochs=self.epochs,
            flocks=self.flocks,
            duration=self.duration,
            time_step=self.time_step,
            plugin=plugin_checksum(self.plugin),
        )
        # Jobs name their results by what they are, so a sweep may grow in its folder.
        with claimed(self.out, "sweep", {"versions": versions(*(("torch",) if self.epochs else ()))}, OURS, self.force):
            self._run(jobs)

    def _run(self, jobs: list[SweepJob]) -> None:
        """Run the points that are not done yet, and write and print the results of all points."""
        from equiflock.experiments.runner.jobs import collect
        from equiflock.experiments.runner.running import run_jobs
        from equiflock.experiments.sweep import axes_of, summary
        from equiflock.report.sweep import draw_sweep
        from equiflock.runtime.files import atomic_write

        with progress() as bar:
            task = bar.add_task(f"sweep over {len(jobs)} points", total=len(jobs))
            prepare = partial(import_plugin, self.plugin, plugin_sources(self.plugin)) if self.plugin else None
            run_jobs(
                jobs,
                self.out / "jobs",
                self.workers,
                lambda job: bar.advance(task),
                prepare,
                self.scheduler,
                partial(notice, bar),
            )
        # Jobs are ordered for speed; rows are sorted for the reader.
        table = collect(jobs, self.out / "jobs")
        table = table.sort_values(["controller", "seed", *axes_of(table), "flock"])
        found = summary(table)
        for name, content in (("sweep", table), ("summary", found)):
            with atomic_write(self.out / f"{name}.csv") as scratch:
                content.to_csv(scratch, index=False)
        with atomic_write(self.out / "grid.json") as scratch:
            scratch.write_text(json.dumps([job.settings for job in jobs], indent=2) + "\n")
        # Points for which no initial conditions were found have a remark in place of numbers.
        empty = table[table.remark.notna()]
        if len(empty) == len(table):
            raise InputError(f"there are no such flocks at any point: {table.remark.iloc[0]}")
        drawn = draw_sweep(table, self.metric, self.out / f"{self.metric}.png")
        self._print(found)
        for row in empty.drop_duplicates(["agents", "comm_radius"]).itertuples():
            out.print(f"  agents {row.agents}, comm_radius {row.comm_radius:g}: {row.remark}", highlight=False)
        for path in (self.out / "sweep.csv", self.out / "summary.csv", drawn):
            out.print(f"  {path}", highlight=False)

    def _print(self, found: pd.DataFrame) -> None:
        """Print the medians; columns without any value, such as hops of untrained controllers, are left out."""
        from equiflock.experiments.sweep import axes_of

        found = found.dropna(axis="columns", how="all")
        # Four figures where there is room for them, else three; and axes of a single value only if there is room.
        varied = [name for name in found if name not in axes_of(found) or found[name].nunique(dropna=False) > 1]
        forms = [_form(found, 4), _form(found, 3), _form(found[varied], 3)]
        print_table("medians over flocks and seeds; of flocks in pieces the share", *forms)

    def _check(self, controller: str) -> None:
        """A clear error, before anything is kept, if there is no such controller, or it cannot fly."""
        if self.epochs == 0:
            fly_a_little(RandomDisk(1, 10).draw(), controller)
            return
        from equiflock.learning.preparing import prepare

        # A network is built and called once, so that a wrong shape is found before the first training.
        prepare(DAgger(controller=controller))


def _form(found: pd.DataFrame, figures: int) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the printed table, with numbers of so many figures."""
    header = ["controller", *(HEADINGS.get(column, column.replace("_", "\n")) for column in found.columns[1:])]
    return header, [[_text(value, figures) for value in row] for row in found.itertuples(index=False)]


def _text(value: object, figures: int) -> str:
    if value is None or value != value:
        return "-"
    return f"{value:.{figures}g}" if isinstance(value, float) else str(value)
