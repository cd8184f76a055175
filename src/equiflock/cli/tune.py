"""`equiflock tune`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from equiflock.cli.console import out
from equiflock.cli.plugins import collect_plugin_sources, import_plugin
from equiflock.cli.stop_request import StopRequest
from equiflock.cli.terminal import PREPARING_TEXT, SECOND_CTRL_C_HINT, print_orbit, print_table, progress
from equiflock.controllers import load
from equiflock.controllers.loading import find_weights_file
from equiflock.controllers.registry import parse_controller_name, split_unit_options
from equiflock.experiments.tuning.recipe import Tuning
from equiflock.runtime.checks import InputError, check_count

if TYPE_CHECKING:
    from rich.progress import Progress

    from equiflock.experiments.tuning.journal import GenerationReport
    from equiflock.experiments.tuning.tuning_run import BestCandidate, TuningRun


@dataclass(frozen=True)
class Tune:
    """Improve a trained network directly on what its flights are measured by, with CMA-ES over its weights.

    What is best on held-out flocks is kept. All of it is in a folder, and the same command goes on with a tuning that
    was interrupted, even by a kill, and ends with the same bits.
    """

    controller: Annotated[str, tyro.conf.Positional]
    """The weights to begin from: a file (.safetensors), or the name of those in the package, such as etdagnn:3."""
    recipe: Annotated[Tuning, tyro.conf.arg(name="")] = field(default_factory=Tuning)
    out: Path | None = None
    """The folder to write; runs/tuning/CONTROLLER-SEED if left out."""
    workers: int = os.cpu_count() or 1
    """How many processes fly candidates."""
    scheduler: str | None = None
    """The address of a Dask scheduler whose workers fly them instead, such as tcp://10.0.0.1:8786."""
    plugin: str | None = None
    """A Python module or file to import first, such as one that registers your own network or scenario."""
    force: bool = False
    """Remove what is in the folder, if it is a tuning, and begin anew."""

    def run(self) -> None:
        """Tune, with a line for every validation, and say what became of each measure and where the weights are."""
        check_count("workers", self.workers)
        import_plugin(self.plugin)
        weights = self._find_weights()
        from equiflock.experiments.tuning.tuning_run import TuningRun

        tuning = TuningRun(self._choose_run_dir(weights), self.recipe, weights, self.controller)
        tuning.check()
        self._print_results(tuning, self._tune(tuning))

    def _find_weights(self) -> Path:
        """The file of the weights to begin from; a clear error if there is none."""
        load(self.controller)  # says what is wrong with the name, the options or the file
        if units := split_unit_options(parse_controller_name(self.controller, {})[1])[0]:
            raise InputError(f"weights are tuned in their own units: leave out {' and '.join(units)}")
        path = find_weights_file(self.controller)
        if path is None:
            raise InputError(f"{self.controller} has no weights to tune: choose a trained network or a file of weights")
        return path

    def _choose_run_dir(self, weights: Path) -> Path:
        if self.out is not None:
            return self.out
        name = weights.absolute().parent.name if weights.stem == "weights" else weights.stem
        return Path("runs/tuning") / f"{name}-{self.recipe.seed}"

    def _tune(self, tuning: TuningRun) -> BestCandidate:
        from equiflock.experiments.runner.persistent_workers import PersistentWorkers

        prepare = partial(import_plugin, self.plugin, collect_plugin_sources(self.plugin)) if self.plugin else None
        with progress("cost") as bar:
            shown = _TuningProgress(bar, tuning)
            with (
                PersistentWorkers(self.workers, self.scheduler, prepare) as workers,
                StopRequest(shown.confirm_stop) as stopping,
            ):
                kept = tuning.tune(
                    workers, shown.generation, shown.print_notice, shown.show_flights, stopping, self.force
                )
        if shown.is_replayed:
            out.print(f"{tuning.folder}: all {self.recipe.generations} generations were done", soft_wrap=True)
        return kept

    def _print_results(self, tuning: TuningRun, kept: BestCandidate) -> None:
        """Print every measure of the beginning and of what was kept, on held-out flocks."""
        rows = []
        for task, before, after in zip(tuning.tasks, kept.initial_measurements, kept.measurements, strict=True):
            rows += [[f"{task.scenario} {name}", f"{before[name]:.3g}", f"{after[name]:.3g}"] for name in after]
        title = f"{self.recipe.validation_flocks} held-out flocks of each task; cost {kept.cost:.4g}"
        print_table(title, (("", "at first", f"generation {kept.generation}"), rows))
        if (orbit := tuning.genome.decode(kept.vector).orbit) is not None:
            print_orbit(orbit)
        out.print(f"weights: {tuning.weights}", highlight=False, soft_wrap=True)


class _TuningProgress:
    """The bar of a tuning, and a line for each of its validations."""

    def __init__(self, bar: Progress, tuning: TuningRun) -> None:
        self.bar, self.tuning = bar, tuning
        self.task = bar.add_task(PREPARING_TEXT, total=tuning.recipe.generations)
        self.done = 0
        self.is_replayed = True
        """Whether all generations so far had been flown before."""

    def generation(self, report: GenerationReport) -> None:
        """Show what came of a generation."""
        self.done, self.is_replayed = report.generation, self.is_replayed and report.is_replayed
        self.bar.update(self.task, completed=self.done, cost=f"{report.median:.3g}")
        if report.validation is not None and not report.is_replayed:
            which = ", the best so far" if report.is_best else ""
            self.print_notice(f"generation {self.done}: cost {report.validation:.4g} on held-out flocks{which}")

    def show_flights(self, done: int, total: int) -> None:
        """Show how many flights of a generation, or of a validation, are done."""
        self.bar.update(self.task, description=f"tuning {self.tuning.genome.size} numbers, flights {done}/{total}")

    def confirm_stop(self) -> None:
        """Confirm Ctrl-C."""
        self.print_notice(f"finishing generation {self.done + 1}; {SECOND_CTRL_C_HINT}")

    def print_notice(self, text: str) -> None:
        """Show a line of text, above the bar on a terminal."""
        console = self.bar.console if self.bar.console.is_terminal else out
        console.print(text, highlight=False, markup=False, soft_wrap=True)
