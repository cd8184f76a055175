"""A training that is kept in a folder and can be continued after any interruption.

    config.json           the recipe, the command that repeats it, and versions
    metrics.csv           epoch, loss, expert_share
    validation.csv        epoch, controller, flock, ivv, iman; the expert's rows come first, as epoch 0
    events.out.tfevents*  the same for TensorBoard
    checkpoints/          the newest two
    weights.safetensors   the trained network, once it is

A continued run ends with the same bits as one that was never interrupted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from equiflock.files import check_new, held_alone, written_whole
from equiflock.imitation.recipe import EXPERT, DAgger
from equiflock.provenance import versions
from equiflock.types import InputError

if TYPE_CHECKING:  # torch takes seconds to import
    from equiflock.imitation.dagger import EpochReport, Trainer
    from equiflock.imitation.validation import Validation

CHECKPOINTS_KEPT = 2
METRICS_COLUMNS = "epoch", "loss", "expert_share"
VALIDATION_COLUMNS = "epoch", "controller", "flock", "ivv", "iman"


class TrainingRun:
    """A training in a folder, begun by `create` and continued by `train`, as often as it takes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.weights = folder / "weights.safetensors"
        self.validation = folder / "validation.csv"
        self.metrics = folder / "metrics.csv"
        self.recipe, self.begun_with = _read_config(folder / "config.json")

    @classmethod
    def create(cls, folder: Path, recipe: DAgger) -> TrainingRun:
        """Begin a training in a new folder; an error if there is one of that name."""
        check_new(folder)
        with written_whole(folder) as scratch:
            scratch.mkdir()
            config = {"recipe": asdict(recipe), "command": recipe.command, "versions": versions()}
            (scratch / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        return cls(folder)

    @property
    def finished(self) -> bool:
        """Whether all epochs are done."""
        return self.weights.exists()

    @property
    def checkpoints(self) -> list[Path]:
        """Those that are kept, the newest first."""
        return sorted((self.folder / "checkpoints").glob("epoch-*.safetensors"), reverse=True)

    def train(
        self,
        on_epoch: Callable[[EpochReport], object] | None = None,
        on_notice: Callable[[str], object] | None = None,
        wait: bool = False,
    ) -> Path:
        """Train to the end, from the newest checkpoint if there is one; returns the path of the weights.

        Args:
            on_epoch: called with what came of every epoch.
            on_notice: called with a line of text about what a user should know, such as a damaged checkpoint.
            wait: for another process that trains in the folder, rather than refuse.
        """
        from equiflock.imitation.dagger import DivergedError, Trainer, one_thread

        with self._alone(wait), one_thread():
            if self.finished:
                return self.weights
            notice = on_notice or (lambda text: None)
            if self.begun_with != versions():
                notice(f"begun with {_told(self.begun_with)}, goes on with {_told(versions())}: bits may differ")
            trainer = Trainer(self.recipe)
            self._restore(trainer, notice)
            with self._log(trainer, notice) as log:
                while trainer.epoch < self.recipe.epochs:
                    try:
                        report = trainer.run_epoch()
                    except DivergedError as error:
                        raise DivergedError(f"{error}; {self._last_good()}") from None
                    log(report)
                    if trainer.epoch % self.recipe.checkpoint_every == 0 or trainer.epoch == self.recipe.epochs:
                        self._keep(trainer)
                    if on_epoch is not None:
                        on_epoch(report)
            return self._finish(trainer)

    @contextmanager
    def _alone(self, wait: bool) -> Iterator[None]:
        with held_alone(self.folder, wait):
            for half_written in (self.folder / "checkpoints").glob(".*"):
                half_written.unlink()
            yield

    def _restore(self, trainer: Trainer, notice: Callable[[str], object]) -> None:
        from equiflock.imitation.checkpoint import OtherRecipeError, read_checkpoint

        found = self.checkpoints
        for number, path in enumerate(found, start=1):
            try:
                read_checkpoint(path, trainer)
                return
            except OtherRecipeError:
                raise
            except InputError as error:
                if number == len(found):
                    raise InputError(f"{error}; there is no other checkpoint: begin anew in another folder") from None
                notice(f"{error}; going on from the one before")

    def _keep(self, trainer: Trainer) -> None:
        from equiflock.imitation.checkpoint import write_checkpoint

        write_checkpoint(trainer, self.folder / "checkpoints" / f"epoch-{trainer.epoch:06d}.safetensors")
        for old in self.checkpoints[CHECKPOINTS_KEPT:]:
            old.unlink()

    def _last_good(self) -> str:
        found = self.checkpoints
        return f"the last good checkpoint is {found[0]}" if found else "there was no checkpoint yet"

    @contextmanager
    def _log(self, trainer: Trainer, notice: Callable[[str], object]) -> Iterator[Callable[[EpochReport], None]]:
        """Open the tables and the events; rows of epochs that will be done again are dropped."""
        from torch.utils.tensorboard import SummaryWriter

        expert = trainer.validate(trainer.expert)
        done = range(1, trainer.epoch + 1)
        if _rewrite(self.metrics, [METRICS_COLUMNS], done) < trainer.epoch:
            notice(f"{self.metrics} was changed: rows of epochs that are done already are missing from now on")
        _rewrite(self.validation, [VALIDATION_COLUMNS, *_rows(0, EXPERT, expert)], done)
        with (
            self.metrics.open("a") as metrics,
            self.validation.open("a") as validation,
            SummaryWriter(str(self.folder), purge_step=trainer.epoch + 1) as events,
        ):

            def log(report: EpochReport) -> None:
                metrics.write(_line((report.epoch, report.loss, report.expert_share)))
                metrics.flush()
                scalars = {"loss": report.loss, "expert share": report.expert_share}
                if report.validation is not None:
                    rows = _rows(report.epoch, self.recipe.controller, report.validation)
                    validation.writelines(map(_line, rows))
                    validation.flush()
                    scalars |= _medians("pupil", report.validation) | _medians("expert", expert)
                for name, value in scalars.items():
                    events.add_scalar(name, value, report.epoch)

            yield log

    def _finish(self, trainer: Trainer) -> Path:
        from equiflock.controllers.weights import write_weights

        extra = {"command": self.recipe.command, "recipe": asdict(self.recipe), "versions": versions()}
        if self.begun_with != versions():
            extra["begun_with"] = self.begun_with
        return write_weights(trainer.network, self.weights, extra)


def _told(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _read_config(path: Path) -> tuple[DAgger, dict[str, str]]:
    """The recipe, and the versions with which the training began."""
    if not path.is_file():
        why = f"there is no {path.name} in it" if path.parent.exists() else "there is no such folder"
        raise InputError(f"{path.parent} is not the folder of a training: {why}")
    try:
        config = json.loads(path.read_text())
        settings, begun_with = dict(config["recipe"]), dict(config["versions"])
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path} is damaged: expected JSON with a recipe and versions") from None
    return DAgger.from_settings(settings, path), begun_with


def _rewrite(path: Path, top: Iterable[tuple[Any, ...]], epochs: range) -> int:
    """A table anew: the rows on top, and what it has of these epochs; returns how many rows that is."""
    before = path.read_text().splitlines(keepends=True) if path.exists() else []
    # A last line that was being written has no end, and may begin like any other.
    kept = [line for line in before if line.endswith("\n") and line.split(",")[0] in map(str, epochs)]
    with written_whole(path) as scratch:
        scratch.write_text("".join([*map(_line, top), *kept]))
    return len(kept)


def _line(row: tuple[Any, ...]) -> str:
    return ",".join(map(str, row)) + "\n"


def _rows(epoch: int, controller: str, validation: Validation) -> list[tuple[Any, ...]]:
    pairs = zip(validation.ivv.tolist(), validation.iman.tolist(), strict=True)
    return [(epoch, controller, flock, ivv, iman) for flock, (ivv, iman) in enumerate(pairs)]


def _medians(who: str, validation: Validation) -> dict[str, float]:
    return {f"{who}/IVV": float(np.median(validation.ivv)), f"{who}/IMAN": float(np.median(validation.iman))}
