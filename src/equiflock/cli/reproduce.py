"""`equiflock reproduce`."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from equiflock._runtime.checks import InputError, check_count
from equiflock._runtime.imports import require_torch
from equiflock.cli.jobs import WorkerOptions
from equiflock.cli.terminal import out, print_notice, print_paths, print_text_table, progress

if TYPE_CHECKING:
    from rich.progress import Progress

    from equiflock.paper.interpretation import Interpretation
    from equiflock.paper.profile import Profile
    from equiflock.paper.reproduction import Reproduction


@dataclass(frozen=True)
class Reproduce(WorkerOptions):
    """Run the paper's experiments and check its statements.

    Flights use the package's weights; the generalization experiment trains new controllers. Writes report.html (ledger,
    figures, films), ledger.json, a CSV and a PNG file for every experiment, and the training tables as Markdown.
    Existing results in the run directory are kept, so the same command resumes an interrupted run.

    The paper's text is open to interpretation. --interpretation changes some choices, and trains new networks if they
    are needed. --search-interpretations tries all choices, alone and combined, with a seed and flocks of no report,
    which takes about two hours on two cores. It writes interpretations.csv and interpretations.md, and then reproduces
    the paper under the interpretation with which most statements hold.
    """

    profile: Literal["quick", "paper"] = "quick"
    """quick: one training seed and few flocks, two to three minutes; paper: all seeds and flocks."""
    out: Path | None = None
    """Run directory; by default runs/PROFILE or runs/PROFILE-INTERPRETATION, for a search runs/interpretations."""
    interpretation: str = ""
    """Choices that differ from the defaults, such as velocities=disc:clamp=150; docs/readings.md lists all."""
    search_interpretations: bool = False
    """Search all interpretations first, and reproduce the one with which most statements hold."""
    only: tuple[str, ...] = ()
    """Experiments to run: training, connectivity, flocking, leaders, obstacles, generalization; by default all."""
    films: bool = True
    """Whether to render films, and to play their flights in the report."""
    checks: bool = False
    """Whether to print every check of every statement."""
    force: bool = False
    """Delete an earlier reproduction in the run directory and start again."""

    def run(self) -> None:
        """Search interpretations if requested, run the experiments, write the report, and print verdicts and paths."""
        from equiflock.paper.interpretation import Interpretation
        from equiflock.paper.interpretation_search import write_ledger_comparison
        from equiflock.paper.profile import PROFILES

        require_torch("reproduce")
        check_count("workers", self.workers)
        if self.search_interpretations and (self.interpretation or self.only):
            raise InputError(
                "--search-interpretations covers all choices and experiments: leave out --interpretation and --only"
            )
        interpretation = Interpretation.from_text(self.interpretation)
        if self.search_interpretations:
            search_dir = self.out or Path("runs") / "interpretations"
            interpretation, run_dir = self._search_best_interpretation(search_dir), search_dir / f"joint-{self.profile}"
            out.print(f"interpretation with which most statements hold: {interpretation}", highlight=False)
        else:
            run_dir = self.out or Path("runs") / "-".join(
                [self.profile, *([str(interpretation)] if interpretation.changes else [])]
            )
        self._write_report(replace(PROFILES[self.profile], interpretation=interpretation), run_dir)
        default_ledger = Path("runs") / self.profile / "ledger.json"
        if self.search_interpretations and default_ledger.is_file():
            print_paths([write_ledger_comparison(default_ledger, run_dir, interpretation)])

    def _search_best_interpretation(self, search_dir: Path) -> Interpretation:
        """Search with a progress bar and return the interpretation with which most statements hold.

        Tables are written after each stage.
        """
        from equiflock.paper.interpretation_search import SEARCH_PROFILE, Search, write_interpretations

        with progress() as bar:
            task = bar.add_task("interpretations", total=None)
            data = bar.add_task("generalization data", total=None, visible=False)

            def show_stage(stage: str, jobs: int) -> None:
                bar.update(task, description=f"interpretations, {stage}", total=jobs or None, completed=0)
                bar.update(data, completed=0, visible=False)
                if search.flight_results:
                    write_interpretations(search, search_dir)

            search = Search(
                search_dir,
                self.workers,
                scheduler=self.scheduler,
                on_stage=show_stage,
                on_done=lambda job: bar.advance(task),
                on_data=lambda step: bar.update(
                    data, advance=1, total=SEARCH_PROFILE.fast_forward.index_count, visible=True
                ),
                on_notice=partial(print_notice, bar),
            )
            best = search.run(self.force)
        print_paths(write_interpretations(search, search_dir))
        return best

    def _write_report(self, profile: Profile, run_dir: Path) -> None:
        """Run the experiments, write the report, and print the verdicts."""
        from equiflock.paper.reproduction_report import write_reproduction
        from equiflock.paper.training_experiment import write_training_tables

        start = time.perf_counter()
        with progress() as bar:
            reproduction = self._run_experiments(bar, profile, run_dir)
            drawing = bar.add_task("drawing", total=None)
            files = write_reproduction(
                reproduction,
                run_dir,
                time.perf_counter() - start,
                self.films,
                lambda name: bar.update(drawing, description=f"drawing {name}"),
            )
        # The documentation includes the training tables, so they are Markdown.
        if "training" in reproduction.tables:
            files.append(write_training_tables(reproduction.tables["training"], run_dir / "training-tables.md"))
        self._print_results(reproduction)
        print_paths(files)

    def _run_experiments(self, bar: Progress, profile: Profile, run_dir: Path) -> Reproduction:
        """Run the experiments that have no results yet, each with a progress bar, and return the results of all."""
        from equiflock.paper.reproduction import EXPERIMENTS, build_jobs, reproduce

        experiments = self.only or EXPERIMENTS
        tasks = {}
        for name in EXPERIMENTS:
            count = len(build_jobs(name, profile))
            tasks[name] = bar.add_task(name, total=count, visible=name in experiments and count > 0)
        # The bars of data and flights appear when these start, as both may be finished already.
        data_steps = profile.fast_forward.index_count * len(profile.cloning_seeds)
        data = bar.add_task("generalization data", total=data_steps, visible=False)
        flying = bar.add_task("flying", total=None, visible=False)
        reproduction = reproduce(
            profile,
            run_dir,
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
        return reproduction

    def _print_results(self, reproduction: Reproduction) -> None:
        """Print the verdicts; with --checks also every check, marked + if it holds and - if not, with its interval."""
        rows = []
        for statement in reproduction.statements:
            lines = [f"{'+' if check.holds else '-'} {check}" for check in statement.checks] if self.checks else []
            rows.append(
                [statement.id, statement.text, statement.marked_verdict, "\n".join([statement.details, *lines])]
            )
        header = "", "the paper's statement", "verdict", "measured"
        title = f"profile: {reproduction.profile.name}; interpretation: {reproduction.profile.interpretation}"
        print_text_table(title, header, rows, lines=self.checks)
