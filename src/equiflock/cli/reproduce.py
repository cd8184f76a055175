"""`equiflock reproduce`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from equiflock.cli.console import out
from equiflock.cli.terminal import print_notice, print_text_table, progress
from equiflock.runtime.checks import InputError, check_count
from equiflock.runtime.extras import require_torch

if TYPE_CHECKING:
    from rich.progress import Progress

    from equiflock.experiments.paper.interpretation import Interpretation
    from equiflock.experiments.paper.profiles import Profile
    from equiflock.experiments.paper.reproduction import Reproduction


@dataclass(frozen=True)
class Reproduce:
    """Run the paper's experiments and judge its statements.

    Flights are those of the weights in the package; for the generalization analysis controllers are trained anew.
    Writes report.html (ledger, figures, films), ledger.json, a CSV and PNG for every experiment, and the training
    tables as Markdown. What is in the folder already is not run again, so an interrupted run goes on where it was.

    The paper's text leaves choices open. --reading makes some of them otherwise, and trains what that needs. --readings
    searches all, one by one and together, with a seed and flocks that take part in no report (some two hours on two
    cores), writes readings.csv and readings.md, and reproduces the reading that lets most statements hold.
    """

    profile: Literal["quick", "paper"] = "quick"
    """quick: one training seed, few flocks, two or three minutes. paper: all seeds and flocks."""
    out: Path | None = None
    """The folder to write to; runs/PROFILE, with the reading if there is one, or runs/readings if left out."""
    interpretation: str = ""
    """Choices other than the usual ones, such as velocities=disc:clamp=150; docs/readings.md lists them."""
    search_interpretations: bool = False
    """Search all readings first, and reproduce the one that lets most statements hold."""
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
        from equiflock.experiments.paper.interpretation import Interpretation
        from equiflock.experiments.paper.profiles import PROFILES
        from equiflock.report.interpretations import write_ledger_comparison

        require_torch("reproduce")
        check_count("workers", self.workers)
        if self.search_interpretations and (self.interpretation or self.only):
            raise InputError("--readings searches all readings and experiments: leave out --reading and --only")
        interpretation = Interpretation.from_text(self.interpretation)
        if self.search_interpretations:
            folder = self.out or Path("runs") / "interpretations"
            interpretation, folder = self._search_best_interpretation(folder), folder / f"joint-{self.profile}"
            out.print(f"The reading that lets most statements hold: {interpretation}", highlight=False)
        else:
            folder = self.out or Path("runs") / "-".join(
                [self.profile, *([str(interpretation)] if interpretation.changes else [])]
            )
        self._write_report(replace(PROFILES[self.profile], interpretation=interpretation), folder)
        usual = Path("runs") / self.profile / "ledger.json"
        if self.search_interpretations and usual.is_file():
            out.print(f"  {write_ledger_comparison(usual, folder, interpretation)}", highlight=False)

    def _search_best_interpretation(self, folder: Path) -> Interpretation:
        """Search all readings, with a bar; the tables are written whenever some are judged."""
        from equiflock.experiments.paper.interpretation_search import SEARCH_PROFILE, Search
        from equiflock.report.interpretations import write_interpretations

        with progress() as bar:
            task = bar.add_task("interpretations", total=None)
            data = bar.add_task("generalization data", total=None, visible=False)

            def tell(stage: str, jobs: int) -> None:
                bar.update(task, description=f"readings, {stage}", total=jobs or None, completed=0)
                bar.update(data, completed=0, visible=False)
                if search.flight_results:
                    write_interpretations(search, folder)

            search = Search(
                folder,
                self.workers,
                scheduler=self.scheduler,
                on_stage=tell,
                on_done=lambda job: bar.advance(task),
                on_data=lambda step: bar.update(
                    data, advance=1, total=SEARCH_PROFILE.fast_forward.index_count, visible=True
                ),
                on_notice=partial(print_notice, bar),
            )
            best = search.run(self.force)
        for path in write_interpretations(search, folder):
            out.print(f"  {path}", highlight=False)
        return best

    def _write_report(self, profile: Profile, folder: Path) -> None:
        """Run the experiments, write the report, and print the verdicts."""
        from equiflock.experiments.paper.profiles import EXPERIMENTS
        from equiflock.experiments.paper.training import build_training_statements
        from equiflock.report.reproduction_report import write_reproduction
        from equiflock.report.training_report import write_training_tables

        start = time.perf_counter()
        with progress() as bar:
            found = self._run_experiments(bar, profile, folder, self.only or EXPERIMENTS)
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
            files.append(write_training_tables(table, build_training_statements(table), folder / "training-tables.md"))
        self._print_results(found)
        for path in files:
            out.print(f"  {path}", highlight=False)

    def _run_experiments(
        self, bar: Progress, profile: Profile, folder: Path, experiments: Sequence[str]
    ) -> Reproduction:
        """Run the experiments, with a bar for each."""
        from equiflock.experiments.paper.profiles import EXPERIMENTS, build_jobs
        from equiflock.experiments.paper.reproduction import reproduce

        # The bars of data and flights appear when these begin, as both may be done already.
        counts = {name: len(build_jobs(name, profile)) for name in EXPERIMENTS}
        tasks = {
            name: bar.add_task(name, total=count, visible=name in experiments and count > 0)
            for name, count in counts.items()
        }
        parts = profile.fast_forward.index_count * len(profile.cloning_seeds)
        data = bar.add_task("generalization data", total=parts, visible=False)
        flying = bar.add_task("flying", total=None, visible=False)
        found = reproduce(
            profile,
            folder,
            self.workers,
            experiments,
            on_done=lambda experiment, job: bar.advance(tasks[experiment]),
            on_data=lambda step: bar.update(data, advance=1, visible=True),
            scheduler=self.scheduler,
            on_notice=partial(print_notice, bar),
            force=self.force,
            films=self.films,
            on_flight=lambda name: bar.update(flying, description=f"flying {name}", visible=True),
        )
        bar.remove_task(flying)
        return found

    def _print_results(self, reproduction: Reproduction) -> None:
        """Print the verdicts; with --checks also every comparison, marked by + or -."""
        rows = []
        for statement in reproduction.statements:
            lines = [f"{'+' if check.holds else '-'} {check.words}: {check.measured}" for check in statement.checks]
            remark = [statement.remark] if statement.remark else []
            measured = "\n".join([statement.count, *remark, *(lines if self.checks else [])])
            rows.append([statement.id, statement.words, statement.verdict, measured])
        header = "", "the paper's statement", "verdict", "measured"
        title = f"profile: {reproduction.profile.name}; reading: {reproduction.profile.interpretation}"
        print_text_table(title, header, rows, lines=self.checks)
