"""`equiflock train`."""

from __future__ import annotations

import shlex
import tempfile
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from equiflock.cli.console import err, out
from equiflock.cli.plugins import collect_plugin_sources, import_plugin
from equiflock.cli.stop_request import StopRequest
from equiflock.cli.terminal import SECOND_CTRL_C_HINT, TrainingProgress, parse_integers, progress
from equiflock.controllers.loading import load_module
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.learning.parallel_training import train_several
from equiflock.learning.recipe import DAgger
from equiflock.learning.run_config import adapt_recipe
from equiflock.learning.run_directories import clear_run_dir, find_trainings, remove_empty_trainings
from equiflock.learning.training_run import TrainingRun
from equiflock.runtime.checks import InputError, check_count
from equiflock.runtime.extras import require_torch
from equiflock.runtime.files import atomic_write


class _DefaultName(str):
    """The type of a default name, by which it can be distinguished from the same name given by the user."""


class _DefaultNumber(int):
    """The type of a default number, by which it can be distinguished from the same number given by the user."""


def _default_recipe() -> DAgger:
    """The default recipe, with marked values where a file of weights or a folder may decide instead."""
    marked: Any = {name: _DefaultNumber(getattr(DAgger, name)) for name in ("epochs", "hops", "dimensions")}
    return DAgger(controller=_DefaultName(DAgger.controller), **marked)


@dataclass(frozen=True)
class Train:
    """Train a network by DAgger; the defaults are the paper's recipe.

    All of it is kept in a folder: recipe, losses, validation, TensorBoard events, checkpoints, weights. A training that
    was interrupted, even by a kill, goes on with --resume and ends with the same bits.
    """

    recipe: Annotated[DAgger, tyro.conf.arg(name="")] = field(default_factory=_default_recipe)
    out: Path | None = None
    """The folder to write; if left out, runs/CONTROLLER-SEED, or runs/CONTROLLER for several."""
    resume: Path | None = None
    """Go on with the training in this folder, or with all those in it; of the recipe only --epochs goes with it, to
    prolong them."""
    force: bool = False
    """Replace the training that is in the folder."""
    from_: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Begin from the weights in this file, rather than with fresh ones; they say which network it is."""
    seeds: str | None = None
    """Several trainings: seeds such as 0-4 or 0,3,7. With `--controller all`, of each of the paper's four networks."""
    workers: int = 1
    """How many trainings run at the same time, each in a process of its own."""
    scheduler: str | None = None
    """The address of a Dask scheduler whose workers train instead; they must see the folder under the same path."""
    plugin: str | None = None
    """A Python module or file to import first, such as one that registers your own network."""

    def run(self) -> None:
        """Train, with a line for every validation, and say where the weights are."""
        require_torch("train")
        check_count("workers", self.workers)
        import_plugin(self.plugin)
        # Trainings that are finished are reported, and left as they are.
        runs = self._load_resumed_runs() if self.resume is not None else self._create_runs()
        unfinished = [run for run in runs if not run.is_finished]
        for run in runs:
            if run not in unfinished:
                out.print(f"{run.folder}: all {run.recipe.epochs} epochs are done", highlight=False, soft_wrap=True)
        if not unfinished:
            return
        err.print(f"stop it whenever you like; go on with: {self._resume_command}", highlight=False, soft_wrap=True)
        try:
            self._train(unfinished)
        except KeyboardInterrupt:
            err.print(f"go on with: {self._resume_command}", highlight=False, soft_wrap=True)
            raise
        except Exception:
            if self.resume is None and self.scheduler is None:  # workers elsewhere may still be at it
                remove_empty_trainings(self._run_dir)
            raise
        for run in unfinished:
            out.print(f"weights: {run.weights}", highlight=False, soft_wrap=True)

    def _train(self, runs: list[TrainingRun]) -> None:
        if self.scheduler is not None:
            self._train_on_cluster(runs, self.scheduler)
        else:
            self._train_locally(runs)

    def _train_locally(self, runs: list[TrainingRun]) -> None:
        with progress("loss", "IVV", "IMAN") as bar:
            shown = {run.folder: TrainingProgress(bar, run.recipe, visible=len(runs) == 1) for run in runs}
            # A single training needs no process of its own.
            if len(runs) == 1 and self.workers == 1:
                (one,) = shown.values()
                with StopRequest(lambda: one.print_notice(one.stop_message)) as stopping:
                    runs[0].train(one.epoch, one.print_notice, should_stop=stopping)
                return
            with StopRequest(
                lambda: bar.console.print(f"finishing the epochs under way; {SECOND_CTRL_C_HINT}")
            ) as stopping:
                train_several(
                    list(shown),
                    self.workers,
                    on_epoch=lambda folder, report: shown[folder].epoch(report),
                    on_notice=lambda folder, text: shown[folder].print_notice(text),
                    prepare=partial(import_plugin, self.plugin, collect_plugin_sources(self.plugin)),
                    should_stop=stopping,
                )

    def _train_on_cluster(self, runs: list[TrainingRun], scheduler: str) -> None:
        from equiflock.experiments.runner.run_jobs import run_jobs
        from equiflock.experiments.runner.training_job import TrainingJob

        prepare = partial(import_plugin, self.plugin, collect_plugin_sources(self.plugin)) if self.plugin else None
        jobs = [TrainingJob(run.folder.resolve()) for run in runs]
        # Results of these jobs are only marks, and temporary: the training's own folder says whether it is done.
        with progress() as bar, tempfile.TemporaryDirectory() as marks:
            task = bar.add_task(f"training at {scheduler}", total=len(runs))
            run_jobs(jobs, Path(marks), 1, lambda job: bar.advance(task), prepare, scheduler)

    @property
    def _resume_command(self) -> str:
        """The command that goes on with what this one began."""
        words = ["equiflock", "train", "--resume", str(self.resume or self._run_dir)]
        words += ["--workers", str(self.workers)] if self.workers > 1 else []
        words += ["--scheduler", self.scheduler] if self.scheduler else []
        words += ["--plugin", self.plugin] if self.plugin else []
        return shlex.join(words)

    @property
    def _run_dir(self) -> Path:
        if self.out is not None:
            return self.out
        name = _make_dir_name(self._recipe)
        return Path("runs") / (name.rpartition("-")[0] if self.seeds else name)

    @cached_property
    def _recipe(self) -> DAgger:
        """The recipe that was asked for, in plain numbers, with the network of the weights to begin from if any."""
        plain: Any = {name: int(getattr(self.recipe, name)) for name in ("epochs", "hops", "dimensions")}
        recipe = replace(self.recipe, controller=str(self.recipe.controller), **plain)
        return recipe if self.from_ is None else adapt_recipe(self.from_, recipe, self._explicit_options)

    @property
    def _explicit_options(self) -> set[str]:
        """Which of the options that a file or folder may decide were given by the user."""
        names = "controller", "epochs", "hops", "dimensions"
        return {name for name in names if not isinstance(getattr(self.recipe, name), (_DefaultName, _DefaultNumber))}

    def _load_resumed_runs(self) -> list[TrainingRun]:
        """The trainings of --resume, with the number of epochs that was given, if one was."""
        assert self.resume is not None
        # Everything but epochs must be at its default, as the folder decides on it.
        rest = replace(self.recipe, epochs=DAgger.epochs), self.out, self.seeds, self.from_, self.force
        if rest != (DAgger(), None, None, None, False) or self._explicit_options - {"epochs"}:
            raise InputError("--resume goes on with the recipe of its folder: only --epochs may go with it")
        runs = [TrainingRun(path) for path in find_trainings(self.resume)]
        if "epochs" in self._explicit_options:
            # All are checked before any is changed.
            for run in runs:
                run.check_epochs(self.recipe.epochs)
            for run in runs:
                run.extend_epochs(self.recipe.epochs)
        return runs

    def _create_runs(self) -> list[TrainingRun]:
        """New trainings, made after checking that they can begin."""
        recipes = self._build_recipes()
        self._check_trainable(recipes[0])
        if self.seeds is None and len(recipes) == 1:
            return [TrainingRun.create(self._run_dir, recipes[0], self.from_, self.force)]
        # The folder of several trainings appears with all of them, or not at all.
        clear_run_dir(self._run_dir, self.force)
        with atomic_write(self._run_dir) as scratch:
            for recipe in recipes:
                TrainingRun.create(scratch / _make_dir_name(recipe), recipe, self.from_)
        return [TrainingRun(path) for path in find_trainings(self._run_dir)]

    def _build_recipes(self) -> list[DAgger]:
        """A recipe for every network and seed that was asked for."""
        recipe = self._recipe
        if self.seeds is not None and recipe.seed != DAgger.seed:
            raise InputError("--seed and --seeds do not go together")
        names = PAPER_NETWORKS if recipe.controller == "all" else (recipe.controller,)
        seeds = parse_integers("seeds", self.seeds) if self.seeds is not None else [recipe.seed]
        return [replace(recipe, controller=name, seed=seed) for name in names for seed in seeds]

    def _check_trainable(self, recipe: DAgger) -> None:
        """A clear error, before any folder is made, if there is no such network."""
        from equiflock.learning.network_checks import prepare_network

        prepare_network(recipe, None if self.from_ is None else load_module(self.from_))


def _make_dir_name(recipe: DAgger) -> str:
    """CONTROLLER-SEED, where signs of the controller's options that a folder's name cannot have are replaced."""
    return f"{recipe.controller.replace(':', '-').replace('/', '_')}-{recipe.seed}"
