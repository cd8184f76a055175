"""`equiflock train`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from equiflock._runtime.checks import InputError, check_count
from equiflock._runtime.files import atomic_write
from equiflock._runtime.imports import require_torch
from equiflock.cli.interrupts import StopRequest
from equiflock.cli.plugins import collect_plugin_sources, import_plugin
from equiflock.cli.shared_options import report_duration
from equiflock.cli.terminal import SECOND_CTRL_C_HINT, TrainingProgress, err, out, parse_integers, progress
from equiflock.controllers.loading import load_module
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.learning.parallel_training import train_several
from equiflock.learning.recipe import DAgger
from equiflock.learning.run_directory import adapt_recipe, clear_run_dir, find_trainings, remove_empty_trainings
from equiflock.learning.training_run import TrainingRun


class _DefaultName(str):
    """Default name, distinguishable by its type from the same name given by the user."""


class _DefaultNumber(int):
    """Default number, distinguishable by its type from the same number given by the user."""


ADAPTABLE_FIELDS: dict[str, Any] = {
    "controller": _DefaultName,
    "epochs": _DefaultNumber,
    "hops": _DefaultNumber,
    "dimensions": _DefaultNumber,
}
"""Fields of the recipe that --from or --resume may set, with the types of their defaults."""


def _default_recipe() -> DAgger:
    """Return the default recipe; defaults that --from or --resume may change have marker types, unlike values given."""
    marked: Any = {name: kind(getattr(DAgger, name)) for name, kind in ADAPTABLE_FIELDS.items()}
    return DAgger(**marked)


@dataclass(frozen=True)
class Train:
    """Train a network by imitation learning (DAgger); the defaults are the paper's recipe.

    The run directory holds recipe, losses, validation, TensorBoard events, checkpoints and weights. --resume continues
    a training that was interrupted or killed; its weights are bit-identical to those of an uninterrupted training.
    """

    recipe: Annotated[DAgger, tyro.conf.arg(name="")] = field(default_factory=_default_recipe)
    out: Path | None = None
    """Run directory; by default runs/CONTROLLER-SEED, or runs/CONTROLLER with --seeds."""
    resume: Path | None = None
    """Run directory, or directory of several, to resume; of the recipe only --epochs may be changed."""
    force: bool = False
    """Delete an earlier training in the run directory and start again."""
    from_: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Weights file to start from instead of random weights; it determines the network."""
    seeds: str | None = None
    """Seeds of several trainings, such as 0-4 or 0,3,7. `--controller all` trains each of the paper's four networks."""
    workers: int = 1
    """Number of trainings that run in parallel, each in a process."""
    scheduler: str | None = None
    """Address of a Dask scheduler to train on instead; its workers must share the run directory, at the same path."""
    plugin: str | None = None
    """Python module or file to import first, which may register your own networks."""

    def run(self) -> None:
        """Create or resume trainings, train, print a line for every validation, and print the paths of the weights.

        If a new training fails before it has results, its directory is removed.
        """
        require_torch("train")
        check_count("workers", self.workers)
        import_plugin(self.plugin)
        runs = self._load_resumed_runs() if self.resume is not None else self._create_runs()
        unfinished = [run for run in runs if not run.is_finished]
        for run in runs:
            if run not in unfinished:
                out.print(f"{run.folder}: all {run.recipe.epochs} epochs are done", highlight=False, soft_wrap=True)
        if not unfinished:
            return
        err.print(f"Ctrl-C stops the training; resume with: {self._resume_command}", highlight=False, soft_wrap=True)
        try:
            self._train(unfinished)
        except KeyboardInterrupt:
            err.print(f"resume with: {self._resume_command}", highlight=False, soft_wrap=True)
            raise
        except Exception:
            if self.resume is None and self.scheduler is None:  # workers of a cluster may still be training
                remove_empty_trainings(self._run_dir)
            raise
        for run in unfinished:
            out.print(f"weights: {run.weights}", highlight=False, soft_wrap=True)

    def _train(self, runs: list[TrainingRun]) -> None:
        """Train the runs on this machine, a single one with one worker in this process, or on the scheduler's workers.

        On this machine, Ctrl-C stops them after the current epoch, and a second one immediately.
        """
        prepare = partial(import_plugin, self.plugin, collect_plugin_sources(self.plugin)) if self.plugin else None
        with progress(*([] if self.scheduler else ["loss", "IVV", "IMAN"])) as bar:
            # A training on a cluster reports nothing until it is finished, so one bar shows all of them.
            total = bar.add_task(f"training at {self.scheduler}", total=len(runs), visible=self.scheduler is not None)
            is_single = len(runs) == 1 and self.scheduler is None
            displays = {run.folder: TrainingProgress(bar, run.recipe, visible=is_single) for run in runs}

            def confirm_stop() -> None:
                if is_single:
                    display = displays[runs[0].folder]
                    display.print_notice(display.stop_message)
                else:
                    bar.console.print(f"finishing the current epochs; {SECOND_CTRL_C_HINT}")

            with StopRequest(confirm_stop) as stop_request:
                train_several(
                    [run.folder for run in runs],
                    self.workers,
                    on_epoch=lambda folder, report: displays[folder].show_epoch(report),
                    on_notice=lambda folder, text: displays[folder].print_notice(text),
                    prepare=prepare,
                    should_stop=stop_request,
                    scheduler=self.scheduler,
                    on_done=lambda: bar.advance(total),
                )

    @property
    def _resume_command(self) -> str:
        """Command line that resumes the training."""
        words = ["equiflock", "train", "--resume", str(self.resume or self._run_dir)]
        words += ["--workers", str(self.workers)] if self.workers > 1 else []
        words += ["--scheduler", self.scheduler] if self.scheduler else []
        words += ["--plugin", self.plugin] if self.plugin else []
        return shlex.join(words)

    @property
    def _run_dir(self) -> Path:
        """Run directory of a new training, or of several: --out, or a name made from the recipe."""
        if self.out is not None:
            return self.out
        name = _make_dir_name(self._recipe)
        return Path("runs") / (name.rpartition("-")[0] if self.seeds else name)

    @cached_property
    def _recipe(self) -> DAgger:
        """Requested recipe, without marked defaults; with --from, the network is that of the weights file."""
        plain: Any = {name: kind.__base__(getattr(self.recipe, name)) for name, kind in ADAPTABLE_FIELDS.items()}
        recipe = replace(self.recipe, **plain)
        return recipe if self.from_ is None else adapt_recipe(self.from_, recipe, self._explicit_options)

    @property
    def _explicit_options(self) -> set[str]:
        """Options that the user gave, of those that --from or --resume may set."""
        return {name for name, kind in ADAPTABLE_FIELDS.items() if not isinstance(getattr(self.recipe, name), kind)}

    def _load_resumed_runs(self) -> list[TrainingRun]:
        """Return the trainings of --resume, extended to --epochs if it was given; no other option may be given."""
        assert self.resume is not None
        # All options but epochs must have their defaults, as the run directory determines them.
        other_options = replace(self.recipe, epochs=DAgger.epochs), self.out, self.seeds, self.from_, self.force
        if other_options != (DAgger(), None, None, None, False) or self._explicit_options - {"epochs"}:
            raise InputError(
                "--resume continues the recipe of the run directory: the only option that it allows is --epochs"
            )
        runs = [TrainingRun(path) for path in find_trainings(self.resume)]
        if "epochs" in self._explicit_options:
            # Check all before changing any.
            for run in runs:
                run.check_epochs(self.recipe.epochs)
            for run in runs:
                run.extend_epochs(self.recipe.epochs)
        return runs

    def _create_runs(self) -> list[TrainingRun]:
        """Check the first recipe and create the run directories of new trainings, see `clear_run_dir`."""
        from equiflock.learning.dagger import prepare_network

        recipes = self._build_recipes()
        if not isinstance(recipes[0].time_step, str):
            report_duration(recipes[0].duration, recipes[0].time_step)
        prepare_network(recipes[0], None if self.from_ is None else load_module(self.from_))
        if self.seeds is None and len(recipes) == 1:
            return [TrainingRun.create(self._run_dir, recipes[0], self.from_, self.force)]
        # Create the directory of several trainings atomically.
        clear_run_dir(self._run_dir, self.force)
        with atomic_write(self._run_dir) as scratch:
            for recipe in recipes:
                TrainingRun.create(scratch / _make_dir_name(recipe), recipe, self.from_)
        return [TrainingRun(path) for path in find_trainings(self._run_dir)]

    def _build_recipes(self) -> list[DAgger]:
        """Return a recipe for every network and seed."""
        recipe = self._recipe
        if self.seeds is not None and recipe.seed != DAgger.seed:
            raise InputError("--seed and --seeds exclude each other: give one of them")
        names = PAPER_NETWORKS if recipe.controller == "all" else (recipe.controller,)
        seeds = parse_integers("seeds", self.seeds) if self.seeds is not None else [recipe.seed]
        return [replace(recipe, controller=name, seed=seed) for name in names for seed in seeds]


def _make_dir_name(recipe: DAgger) -> str:
    """Return CONTROLLER-SEED, with : replaced by - and / by _."""
    return f"{recipe.controller.replace(':', '-').replace('/', '_')}-{recipe.seed}"
