"""A training that is kept in a folder and can be continued after any interruption.

    config.json           the recipe, the command that repeats it, and versions
    from.safetensors      a copy of the weights that it began from, if it began from any
    metrics.csv           epoch, loss, expert_share
    validation.csv        epoch, controller, flock, ivv, iman; the expert's rows come first, as epoch 0
    events.out.tfevents*  the same for TensorBoard
    checkpoints/          the newest two
    weights.safetensors   the network, when the training is finished

A continued run ends with the same bits as one that was never interrupted. All files but the events have a checksum
(that of the tables is in the weights); a damaged one is refused, or written again with a notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from equiflock.controllers.loading import load_module
from equiflock.learning.checkpoint_files import Checkpoints
from equiflock.learning.recipe import DAgger
from equiflock.learning.run_config import InitialWeights, RunConfig, adapt_recipe
from equiflock.learning.run_directories import CHECKPOINTS, INITIAL_WEIGHTS, WEIGHTS, clear_run_dir
from equiflock.learning.training_results import Results
from equiflock.learning.training_tables import METRICS, VALIDATION, Tables
from equiflock.runtime.checks import InputError, check_count
from equiflock.runtime.checksums import DamagedError, compute_checksum, compute_file_checksum
from equiflock.runtime.files import atomic_write, lock_dir
from equiflock.runtime.provenance import collect_versions, list_differences

if TYPE_CHECKING:  # torch takes seconds to import
    from torch import nn

    from equiflock.learning.dagger import EpochReport, Trainer
    from equiflock.learning.validation import Validation

Notice = Callable[[str], object]


class TrainingRun:
    """A training in a folder: `create` begins it, and `train` runs it, or continues it after an interruption."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.weights = folder / WEIGHTS
        self.validation = folder / VALIDATION
        self.metrics = folder / METRICS
        self.config = RunConfig.read(folder)

    @classmethod
    def create(cls, folder: Path, recipe: DAgger, weights: Path | None = None, force: bool = False) -> TrainingRun:
        """Begin a training in a new folder.

        Args:
            folder: must not exist, or hold a training without any result.
            recipe: the settings of the training.
            weights: a file of the recipe's network to begin from, rather than with fresh weights; it is copied.
            force: replace the training in the folder, even if it has results.
        """
        if weights is not None:
            adapt_recipe(
                weights, recipe, ("controller", "hops", "dimensions")
            )  # a clear error unless they are the same
        # The file is read once, so that the checksum is that of the copy, whatever happens to the original.
        content = None if weights is None else weights.read_bytes()
        initial_weights = None if content is None else InitialWeights(str(weights), compute_checksum(content))
        clear_run_dir(folder, force)
        # The folder appears with its config, or not at all.
        with atomic_write(folder) as scratch:
            scratch.mkdir()
            RunConfig(recipe, collect_versions("torch"), initial_weights).write(scratch)
            if content is not None:
                (scratch / INITIAL_WEIGHTS).write_bytes(content)
        return cls(folder)

    @property
    def recipe(self) -> DAgger:
        """The settings of the training."""
        return self.config.recipe

    @property
    def is_finished(self) -> bool:
        """Whether all epochs are done and all results are intact."""
        return self._epochs_trained == self.recipe.epochs and not self._results.find_damaged_tables()

    @property
    def checkpoints(self) -> list[Path]:
        """The files of the checkpoints, the newest first."""
        return self._checkpoints.paths

    def check_epochs(self, epochs: int) -> None:
        """A clear error if the training cannot end after so many epochs: more are done, or its schedule has others."""
        check_count("epochs", epochs)
        if epochs != self.recipe.epochs and not self.recipe.is_extendable:
            raise InputError(
                f"the {self.recipe.schedule} schedule of {self.folder} ends with its {self.recipe.epochs} epochs: "
                "go on from its weights with --from"
            )
        done = max(self._epochs_trained, self._checkpoints.read_epochs_done())
        if epochs < done:
            raise InputError(f"{done} epochs are done already in {self.folder}: epochs must be at least that")

    def extend_epochs(self, epochs: int) -> None:
        """Change the number of epochs, to no fewer than are done; `train` then trains the missing ones."""
        if epochs == self.recipe.epochs:
            return
        # Under the lock, so that no process trains by the old number meanwhile.
        with self._lock_run_dir(wait=False):
            self.check_epochs(epochs)
            config = replace(self.config, recipe=replace(self.recipe, epochs=epochs))
            config.write(self.folder)
        self.config = config

    def train(
        self,
        on_epoch: Callable[[EpochReport], object] | None = None,
        on_notice: Notice | None = None,
        wait: bool = False,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Path:
        """Train to the end, from the newest checkpoint if there is one; returns the path of the weights.

        Args:
            on_epoch: called with the report of every epoch.
            on_notice: called with a line of text that a user should read, such as about a damaged checkpoint.
            wait: wait while another process trains in the folder, rather than raise an error.
            should_stop: called before every epoch; once it returns True, a checkpoint is written.

        Raises:
            KeyboardInterrupt: if `should_stop` returned True, after the checkpoint is written.
        """
        from equiflock.learning.dagger import Trainer
        from equiflock.runtime.threads import use_one_thread

        notice = on_notice or (lambda text: None)
        with self._lock_run_dir(wait), use_one_thread(), _report_memory_errors():
            # A finished training is left as it is.
            if not self._needs_training(notice):
                return self.weights
            # Other versions may give other bits, which is allowed, but not silently.
            if self.config.initial_versions != collect_versions("torch"):
                other = ", ".join(list_differences(self.config.initial_versions, collect_versions("torch")))
                notice(f"begun with {other}: bits may differ")
            # A fresh trainer, brought to the state of the newest checkpoint.
            trainer = Trainer(self.recipe, self._load_initial_network())
            tables = Tables(self.folder, self.recipe)
            checkpoints = self._checkpoints
            # Tables are written again from the checkpoint in any case; the user learns which files had been changed.
            differ = set(checkpoints.restore(trainer, tables, notice))
            if self._epochs_trained == self.recipe.epochs:
                differ.update(self._results.find_damaged_tables())
            for table in sorted(differ):
                notice(f"{table} is not as it was written: it is written again from the checkpoint")
            with self._open_logs(trainer, tables) as log:
                while trainer.epoch < self.recipe.epochs:
                    # Between two epochs the state is whole: `train` continues from this checkpoint later.
                    if should_stop():
                        checkpoints.write(trainer, tables)
                        raise KeyboardInterrupt
                    report = self._run_epoch(trainer)
                    log(report)
                    if trainer.epoch % self.recipe.checkpoint_every == 0 or trainer.epoch == self.recipe.epochs:
                        checkpoints.write(trainer, tables)
                    if on_epoch is not None:
                        on_epoch(report)
            return self._finish(trainer, tables)

    @property
    def _results(self) -> Results:
        return Results(self.folder, self.config)

    @property
    def _checkpoints(self) -> Checkpoints:
        return Checkpoints(self.folder, self.config.run_key)

    @property
    def _epochs_trained(self) -> int:
        """How many epochs the weights were trained for; 0 if there are none, or damaged ones."""
        try:
            return self._results.epochs()
        except InputError:
            return 0

    @contextmanager
    def _lock_run_dir(self, wait: bool) -> Iterator[None]:
        """Hold the folder's lock; an error if the folder is gone, or holds another training by now."""
        if not self.folder.is_dir():
            raise InputError(f"{self.folder} is gone")
        with lock_dir(self.folder, wait):
            if RunConfig.read(self.folder) != self.config:
                raise InputError(f"another process began another training in {self.folder}")
            # Remove what a killed process left half-written.
            for names in (".config.*", ".metrics.*", ".validation.*", ".weights.*", f"{CHECKPOINTS}/.*"):
                for half_written in self.folder.glob(names):
                    half_written.unlink()
            yield

    def _needs_training(self, notice: Notice) -> bool:
        """Whether anything is left to do; damaged results are reported, and count as missing."""
        if not self.weights.exists():
            return True
        again = "" if self.checkpoints else "; there is no checkpoint, so the training begins again"
        try:
            if self._results.epochs() != self.recipe.epochs:  # it was prolonged
                if again:
                    notice(again.removeprefix("; "))
                return True
        except InputError as error:
            notice(f"{error}; it counts as missing and is written again{again}")
            return True
        # Tables are mended from a checkpoint; without one only a whole new training could, which the user must ask for.
        damaged = self._results.find_damaged_tables()
        if damaged and again:
            for path in damaged:
                notice(f"{path} is not as it was written: remove {self.weights} to train again")
            return False
        return bool(damaged)

    def _load_initial_network(self) -> nn.Module | None:
        """The network of the weights that the training begins from; None if it begins with fresh ones."""
        initial_weights, path = self.config.initial_weights, self.folder / INITIAL_WEIGHTS
        if initial_weights is None:
            return None
        if not path.is_file() or compute_file_checksum(path) != initial_weights.checksum:
            raise DamagedError(
                f"{path} is missing or damaged: copy the file there that it began from, {initial_weights.name}"
            )
        return load_module(path)

    def _run_epoch(self, trainer: Trainer) -> EpochReport:
        """Train an epoch; should it diverge, the error names the last checkpoint."""
        from equiflock.learning.dagger import DivergedError

        try:
            return trainer.run_epoch()
        except DivergedError as error:
            last = f"; the last good checkpoint is {found[0]}" if (found := self.checkpoints) else ""
            raise DivergedError(f"{error}{last}") from None

    @contextmanager
    def _open_logs(self, trainer: Trainer, tables: Tables) -> Iterator[Callable[[EpochReport], None]]:
        """Open the tables and the events; rows of epochs that will be trained again are dropped."""
        from torch.utils.tensorboard import SummaryWriter

        # The expert is validated once: a training that continues has its rows already.
        if trainer.epoch == 0:
            tables.add_expert_validation(trainer.validator(trainer.expert, ideal_radio=True))
        expert = _compute_medians("expert", tables.expert)
        with tables.open_files(), SummaryWriter(str(self.folder), purge_step=trainer.epoch + 1) as events:

            def log(report: EpochReport) -> None:
                tables.add(report)
                compute_learning_rate = self.recipe.compute_learning_rate(report.epoch - 1)
                scalars = {
                    "loss": report.loss,
                    "expert share": report.expert_share,
                    "learning rate": compute_learning_rate,
                }
                if report.validation is not None:
                    scalars |= _compute_medians("student", report.validation) | expert
                for name, value in scalars.items():
                    events.add_scalar(name, value, report.epoch)

            yield log

    def _finish(self, trainer: Trainer, tables: Tables) -> Path:
        """Write tables and weights, the weights last: they mark the training as finished."""
        if not tables.has_validation(trainer.epoch):  # the number of epochs was lowered
            tables.add_validation(trainer.epoch, trainer.run_validation())
        tables.write()
        with trainer.use_averaged_weights():
            return self._results.write(trainer.network, tables)


@contextmanager
def _report_memory_errors() -> Iterator[None]:
    """Report a lack of memory in one line; torch raises a plain RuntimeError for it."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):
            raise
        raise InputError("not enough memory: lower capacity or batch, or take fewer agents or flocks") from None


def _compute_medians(who: str, validation: Validation) -> dict[str, float]:
    return {f"{who}/IVV": float(np.median(validation.ivv)), f"{who}/IMAN": float(np.median(validation.iman))}
