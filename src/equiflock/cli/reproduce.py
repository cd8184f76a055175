"""`equiflock reproduce`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from equiflock.cli.terminal import notice, out, print_words, progress
from equiflock.runtime.checks import check_count

if TYPE_CHECKING:
    from rich.progress import Progress

    from equiflock.experiments.paper.reproduction import Profile, Reproduction


@dataclass(frozen=True)
class Reproduce:
    """Run the paper's experiments and judge its statements.

    Flights are those of the weights in the package; for the generalization analysis controllers are trained anew.
    Writes report.html (ledger, figures, films), ledger.json, a CSV and PNG for every experiment, and the training
    tables as Markdown. What is in the folder already is not run again, so an interrupted run goes on where it was.
    """

    profile: Literal["quick", "paper"] = "quick"
    """quick: one training seed, few flocks, two or three minutes. paper: all seeds and flocks."""
    out: Path | None = None
    """The folder to write to; runs/PROFILE if left out."""
    only: tuple[str, ...] = ()
    """Some of the experiments: training, connectivity, flocking, leaders, obstacles, generalization."""
    workers: int = os.cpu_count() or 1
    """How many processes."""
    scheduler: str | None = None
    """The address of a Dask scheduler whose workers run the jobs instead, such as tcp://10.0.0.1:8786."""
    films: bool = True
    """Whether to draw films too."""
    checks: bool = False
    """Print every check of every statement."""
    force: bool = False
    """Remove what is in the folder, if it is a reproduction, and begin anew."""

    def run(self) -> None:
        """Print the verdicts and say where the report is."""
        from equiflock.experiments.paper.reproduction import EXPERIMENTS, PROFILES
        from equiflock.experiments.paper.training import training_statements
        from equiflock.report.reproduction import write_reproduction
        from equiflock.report.training import write_tables

        check_count("workers", self.workers)
        start = time.perf_counter()
        profile = PROFILES[self.profile]
        folder = self.out or Path("runs") / profile.name
        with progress() as bar:
            found = self._reproduce(bar, profile, folder, self.only or EXPERIMENTS)
            drawing = bar.add_task("drawing", total=None)
            files = write_reproduction(
                found,
                folder,
                time.perf_counter() - start,
                self.films,
                lambda part: bar.update(drawing, description=f"drawing {part}"),
            )
        # The training tables are Markdown, for documentation.
        if "training" in found.tables:
            table = found.tables["training"]
            files.append(write_tables(table, training_statements(table), folder / "training-tables.md"))
        self._print(found)
        for path in files:
            out.print(f"  {path}", highlight=False)

    def _reproduce(self, bar: Progress, profile: Profile, folder: Path, chosen: Sequence[str]) -> Reproduction:
        """Run the experiments, with a bar for each."""
        from equiflock.experiments.paper.reproduction import RUN_IN_JOBS, jobs_of, reproduce

        # The bars of data and flights appear when these begin, as both may be done already.
        tasks = {
            name: bar.add_task(name, total=len(jobs_of(name, profile)), visible=name in chosen) for name in RUN_IN_JOBS
        }
        data = bar.add_task("generalization data", total=profile.fast_forward.indices, visible=False)
        flying = bar.add_task("flying", total=None, visible=False)
        found = reproduce(
            profile,
            folder,
            self.workers,
            chosen,
            on_done=lambda experiment, job: bar.advance(tasks[experiment]),
            on_data=lambda step: bar.update(data, advance=1, visible=True),
            scheduler=self.scheduler,
            on_notice=partial(notice, bar),
            force=self.force,
            films=self.films,
            on_flight=lambda name: bar.update(flying, description=f"flying {name}", visible=True),
        )
        bar.remove_task(flying)
        return found

    def _print(self, found: Reproduction) -> None:
        """Print the verdicts; with --checks also every comparison, marked by + or -."""
        rows = []
        for statement in found.statements:
            lines = [f"{'+' if check.holds else '-'} {check.words}: {check.measured}" for check in statement.checks]
            remark = [statement.remark] if statement.remark else []
            measured = "\n".join([statement.count, *remark, *(lines if self.checks else [])])
            rows.append([statement.id, statement.words, statement.verdict, measured])
        header = "", "the paper's statement", "verdict", "measured"
        print_words(f"profile: {found.profile.name}", header, rows, lines=self.checks)
