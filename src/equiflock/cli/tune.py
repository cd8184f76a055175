"""`equiflock tune`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from equiflock._runtime.checks import InputError, check_count
from equiflock.cli.interrupts import StopRequest
from equiflock.cli.plugins import collect_plugin_sources, import_plugin
from equiflock.cli.shared_options import report_duration
from equiflock.cli.terminal import PREPARING_TEXT, SECOND_CTRL_C_HINT, out, print_orbit, print_table, progress
from equiflock.controllers import load
from equiflock.controllers.loading import find_weights_file
from equiflock.controllers.registry import parse_controller_name, split_unit_options
from equiflock.tuning.tuning_recipe import Tuning

if TYPE_CHECKING:
    from rich.progress import Progress

    from equiflock.tuning.candidates import GenerationReport
    from equiflock.tuning.tuning_run import BestCandidate, TuningRun


@dataclass(frozen=True)
class Tune:
    """Improve a trained network on the metrics of its flights, with CMA-ES.

    The search is over the network's weights and keeps the candidate that is best on held-out flocks. The same command
    resumes a tuning that was interrupted or killed; its result is bit-identical to that of an uninterrupted one.
    """

    controller: Annotated[str, tyro.conf.Positional]
    """Initial weights: a file (.safetensors), or a trained network of the package, such as etdagnn:3."""
    recipe: Annotated[Tuning, tyro.conf.arg(name="")] = field(default_factory=Tuning)
    out: Path | None = None
    """Run directory; by default runs/tuning/CONTROLLER-SEED."""
    workers: int = os.cpu_count() or 1
    """Number of worker processes."""
    scheduler: str | None = None
    """Address of a Dask scheduler to run the flights on instead, such as tcp://10.0.0.1:8786."""
    plugin: str | None = None
    """Python module or file to import first, which may register your own networks and scenarios."""
    force: bool = False
    """Delete an earlier tuning in the run directory and start again."""

    def run(self) -> None:
        """Tune, print a line for every validation, and print the change of each measure and the path of the weights."""
        check_count("workers", self.workers)
        import_plugin(self.plugin)
        weights = self._find_weights()
        from equiflock.tuning.tuning_run import TuningRun

        tuning = TuningRun(self._choose_run_dir(weights), self.recipe, weights, self.controller)
        tuning.check()
        for task in tuning.tasks:
            report_duration(task.duration, task.time_step)
        self._print_results(tuning, self._tune(tuning))

    def _find_weights(self) -> Path:
        """Return the file of the initial weights; raise InputError if there is none, or its units are scaled."""
        load(self.controller)  # raises InputError for a wrong name, option or file
        if units := split_unit_options(parse_controller_name(self.controller).options)[0]:
            raise InputError(f"weights are tuned in the units of their training: leave out {' and '.join(units)}")
        path = find_weights_file(self.controller)
        if path is None:
            raise InputError(f"{self.controller} has no weights to tune: choose a trained network or a weights file")
        return path

    def _choose_run_dir(self, weights: Path) -> Path:
        """Return --out, or a directory named after the weights file (its directory for weights.*) and the seed."""
        if self.out is not None:
            return self.out
        name = weights.absolute().parent.name if weights.stem == "weights" else weights.stem
        return Path("runs/tuning") / f"{name}-{self.recipe.seed}"

    def _tune(self, tuning: TuningRun) -> BestCandidate:
        """Tune in worker processes, with a progress bar, and return the best candidate.

        Ctrl-C stops after the current generation, a second one immediately.
        """
        from equiflock._runtime.executors import Executor

        prepare = partial(import_plugin, self.plugin, collect_plugin_sources(self.plugin)) if self.plugin else None
        with progress("cost") as bar:
            display = _TuningProgress(bar, tuning)
            with (
                Executor(self.workers, self.scheduler, prepare, here=True) as executor,
                StopRequest(display.confirm_stop) as stop_request,
            ):
                callbacks = display.show_generation, display.print_notice, display.show_flights
                best = tuning.tune(executor, *callbacks, stop_request, self.force)
        if display.all_replayed and self.recipe.generations:
            out.print(f"{tuning.folder}: all {self.recipe.generations} generations are done", soft_wrap=True)
        return best

    def _print_results(self, tuning: TuningRun, best: BestCandidate) -> None:
        """Print every measure of the initial weights and of the best candidate, on held-out flocks."""
        rows = []
        for task, before, after in zip(tuning.tasks, best.initial_measurements, best.measurements, strict=True):
            rows += [[f"{task.name} {name}", f"{before[name]:.3g}", f"{after[name]:.3g}"] for name in after]
        title = f"{self.recipe.validation_flocks} held-out flocks of each task; cost {best.cost:.4g}"
        print_table(title, (("", "initial", f"generation {best.generation}"), rows))
        if (orbit := tuning.genome.decode(best.vector).orbit) is not None:
            print_orbit(orbit)
        out.print(f"weights: {tuning.weights}", highlight=False, soft_wrap=True)


class _TuningProgress:
    """Progress bar of a tuning, with a printed line for each validation."""

    def __init__(self, bar: Progress, tuning: TuningRun) -> None:
        self.bar, self.tuning = bar, tuning
        self.task = bar.add_task(PREPARING_TEXT, total=tuning.recipe.generations)
        self.done = 0
        self.all_replayed = True
        """Whether all generations so far were read from earlier results."""

    def show_generation(self, report: GenerationReport) -> None:
        """Show the median cost of a generation, and print its validation if it has a new one."""
        self.done, self.all_replayed = report.generation, self.all_replayed and report.is_replayed
        self.bar.update(self.task, completed=self.done, cost=f"{report.median:.3g}")
        if report.validation is not None and not report.is_replayed:
            suffix = ", the best so far" if report.is_best else ""
            self.print_notice(f"generation {self.done}: cost {report.validation:.4g} on held-out flocks{suffix}")

    def show_flights(self, done: int, total: int) -> None:
        """Show the number of finished flights of a generation or a validation."""
        self.bar.update(self.task, description=f"tuning {self.tuning.genome.size} parameters, flights {done}/{total}")

    def confirm_stop(self) -> None:
        """Print a confirmation of Ctrl-C."""
        self.print_notice(f"finishing generation {self.done + 1}; {SECOND_CTRL_C_HINT}")

    def print_notice(self, text: str) -> None:
        """Print a line, above the bar on a terminal, else on standard output."""
        console = self.bar.console if self.bar.console.is_terminal else out
        console.print(text, highlight=False, markup=False, soft_wrap=True)
