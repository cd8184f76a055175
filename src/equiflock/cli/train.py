"""`equiflock train`."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from equiflock.cli.terminal import Training, err, import_plugin, out, progress, whole_numbers
from equiflock.controllers.trained import TRAINED
from equiflock.files import check_new, written_whole
from equiflock.imitation.recipe import DAgger
from equiflock.imitation.run import TrainingRun
from equiflock.imitation.several import train_several
from equiflock.types import InputError, check_count


@dataclass(frozen=True)
class Train:
    """Train a network by DAgger; the defaults are the paper's recipe.

    All of it is kept in a folder: recipe, losses, validation, TensorBoard events, checkpoints, weights. A training that
    was interrupted, however rudely, goes on with --resume and ends with the same bits.
    """

    recipe: Annotated[DAgger, tyro.conf.arg(name="")] = field(default_factory=DAgger)
    out: Path | None = None
    """The folder to write, which must not exist; if left out, runs/CONTROLLER-SEED, or runs/CONTROLLER for several."""
    resume: Path | None = None
    """Go on with the training in this folder, or with all those in it; no other option of the recipe goes with it."""
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
        check_count("workers", self.workers)
        import_plugin(self.plugin)
        runs = self._runs()
        for run in runs:
            if run.finished:
                out.print(f"{run.folder}: all {run.recipe.epochs} epochs are done", highlight=False)
        unfinished = [run for run in runs if not run.finished]
        if not unfinished:
            return
        again = f"equiflock train --resume {self.resume or self._folder()}"
        again += f" --workers {self.workers}" if self.workers > 1 else ""
        again += f" --scheduler {self.scheduler}" if self.scheduler else ""
        again += f" --plugin {self.plugin}" if self.plugin else ""
        err.print(f"stop it whenever you like; go on with: {again}", highlight=False, soft_wrap=True)
        if self.scheduler is not None:
            self._train_elsewhere(unfinished, self.scheduler)
        else:
            self._train_here(unfinished)
        for run in unfinished:
            out.print(f"weights: {run.weights}", highlight=False)

    def _train_here(self, runs: list[TrainingRun]) -> None:
        with progress("loss", "IVV", "IMAN") as bar:
            shown = {run.folder: Training(bar, run.recipe, visible=len(runs) == 1) for run in runs}
            if len(runs) == 1 and self.workers == 1:
                runs[0].train(shown[runs[0].folder].epoch, shown[runs[0].folder].notice)
                return
            train_several(
                list(shown),
                self.workers,
                on_epoch=lambda folder, report: shown[folder].epoch(report),
                on_notice=lambda folder, text: shown[folder].notice(text),
                prepare=partial(import_plugin, self.plugin),
            )

    def _train_elsewhere(self, runs: list[TrainingRun], scheduler: str) -> None:
        from equiflock.experiments.executor import run_cells
        from equiflock.experiments.trainings import TrainingCell

        prepare = partial(import_plugin, self.plugin) if self.plugin else None
        cells = [TrainingCell(run.folder.resolve()) for run in runs]
        # Whether a training is done its own folder says.
        with progress() as bar, tempfile.TemporaryDirectory() as marks:
            task = bar.add_task(f"training at {scheduler}", total=len(runs))
            run_cells(cells, Path(marks), 1, lambda cell: bar.advance(task), prepare, scheduler)

    def _folder(self) -> Path:
        if self.out is not None:
            return self.out
        return Path("runs") / (self.recipe.controller if self.seeds else f"{self.recipe.controller}-{self.recipe.seed}")

    def _runs(self) -> list[TrainingRun]:
        """The trainings to do: those begun in a folder, or new ones."""
        if self.resume is not None:
            if (self.recipe, self.out, self.seeds) != (DAgger(), None, None):
                raise InputError("--resume goes on with the recipe of its folder: leave out the options of a new one")
            return _begun(self.resume)
        names = TRAINED if self.recipe.controller == "all" else (self.recipe.controller,)
        if len(names) == 1 and self.seeds is None:
            self._check_trainable(self.recipe)
            return [TrainingRun.create(self._folder(), self.recipe)]
        if self.seeds is not None and self.recipe.seed != DAgger.seed:
            raise InputError("--seed and --seeds do not go together")
        seeds = whole_numbers("seeds", self.seeds) if self.seeds is not None else [self.recipe.seed]
        recipes = [replace(self.recipe, controller=name, seed=seed) for name in names for seed in seeds]
        self._check_trainable(recipes[0])
        folder = self._folder()
        check_new(folder)
        with written_whole(folder) as scratch:
            for recipe in recipes:
                TrainingRun.create(scratch / f"{recipe.controller}-{recipe.seed}", recipe)
        return _begun(folder)

    @staticmethod
    def _check_trainable(recipe: DAgger) -> None:
        """A clear error, before any folder is made, if there is no such network."""
        from equiflock.imitation.dagger import prepare

        prepare(recipe)


def _begun(folder: Path) -> list[TrainingRun]:
    """The training in a folder, or all those in the folders in it."""
    inside = sorted(path.parent for path in folder.glob("[!.]*/config.json"))
    if inside and not (folder / "config.json").exists():
        return [TrainingRun(path) for path in inside]
    return [TrainingRun(folder)]
