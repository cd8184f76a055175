"""A training in a run directory, which can be resumed after any interruption.

    config.json           the recipe, the command that repeats it, and versions
    from.safetensors      a copy of the initial weights, if they were loaded from a file
    metrics.csv           epoch, loss, expert_share
    validation.csv        epoch, controller, flock, ivv, iman; the expert's rows come first, as epoch 0
    events.out.tfevents*  the same for TensorBoard
    checkpoints/          the newest two
    weights.safetensors   the network, after the last epoch

A resumed training gives the same bits as an uninterrupted one. All files except the events have a checksum (the
checksums of the tables are in the weights); a damaged file raises an error, or is rewritten with a notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from equiflock._runtime.checks import InputError, check_count
from equiflock._runtime.checksums import DamagedError, compute_checksum, compute_file_checksum
from equiflock._runtime.files import atomic_write, lock_dir
from equiflock._runtime.provenance import collect_versions, list_differences
from equiflock._runtime.threads import use_one_thread
from equiflock.controllers.loading import load_module
from equiflock.controllers.networks.weights import FORMAT, read_tensors, read_weights, write_weights
from equiflock.learning.recipe import DAgger
from equiflock.learning.run_directory import (
    CHECKPOINTS,
    COLUMNS,
    INITIAL_WEIGHTS,
    METRICS,
    VALIDATION,
    WEIGHTS,
    InitialWeights,
    RunConfig,
    Tables,
    adapt_recipe,
    clear_run_dir,
)
from equiflock.learning.validation import EpochReport, Validation

if TYPE_CHECKING:
    from torch import nn

    from equiflock.learning.checkpoints import Checkpoints
    from equiflock.learning.dagger import Trainer


class TrainingRun:
    """A training in a run directory: `create` makes the directory, and `train` starts or resumes the training."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.weights = folder / WEIGHTS
        self.validation = folder / VALIDATION
        self.metrics = folder / METRICS
        self.config = RunConfig.read(folder)

    @classmethod
    def create(cls, folder: Path, recipe: DAgger, weights: Path | None = None, force: bool = False) -> TrainingRun:
        """Create the run directory of a new training atomically, with its config and a copy of the initial weights.

        Raise InputError if `folder` holds anything else, or if the recipe is not of the network in the weights file.

        Args:
            folder: the run directory; it must not exist, or hold a training without results.
            recipe: the settings of the training.
            weights: weights file of the recipe's network to start from, which is copied; default: new weights.
            force: replace the training in the directory, even if it has results.
        """
        if weights is not None:
            # Raises InputError if the recipe contradicts the file.
            adapt_recipe(weights, recipe, ("controller", "hops", "dimensions"))
        # Read the file once, so that the checksum is that of the copy even if the original changes.
        content = None if weights is None else weights.read_bytes()
        initial_weights = None if content is None else InitialWeights(str(weights), compute_checksum(content))
        clear_run_dir(folder, force)
        with atomic_write(folder) as scratch:
            scratch.mkdir()
            RunConfig(recipe, collect_versions("torch"), initial_weights).write(scratch)
            if content is not None:
                (scratch / INITIAL_WEIGHTS).write_bytes(content)
        return cls(folder)

    @property
    def recipe(self) -> DAgger:
        """Settings of the training."""
        return self.config.recipe

    @property
    def is_finished(self) -> bool:
        """Whether all epochs are completed and all results are intact."""
        return self._epochs_trained == self.recipe.epochs and not self._find_damaged_tables()

    @property
    def checkpoints(self) -> list[Path]:
        """Checkpoint files, newest first."""
        return self._checkpoints.paths

    def check_epochs(self, epochs: int) -> None:
        """Raise InputError if the training cannot have this number of epochs.

        It must be at least the number of completed epochs, and unchanged if the schedule decays.
        """
        check_count("epochs", epochs)
        if epochs != self.recipe.epochs and not self.recipe.is_extendable:
            raise InputError(
                f"the {self.recipe.schedule} schedule of {self.folder} has {self.recipe.epochs} epochs and cannot be "
                "extended: start a new training from its weights with --from"
            )
        done = max(self._epochs_trained, self._checkpoints.read_epochs_done())
        if epochs < done:
            raise InputError(f"epochs must be at least {done}, the epochs completed in {self.folder}; got {epochs}")

    def extend_epochs(self, epochs: int) -> None:
        """Change the number of epochs in config.json, see `check_epochs`; `train` then trains the remaining ones."""
        if epochs == self.recipe.epochs:
            return
        # Hold the lock, so that no process trains with the old number meanwhile.
        with self._lock_run_dir(wait=False):
            self.check_epochs(epochs)
            config = replace(self.config, recipe=replace(self.recipe, epochs=epochs))
            config.write(self.folder)
        self.config = config

    def train(
        self,
        on_epoch: Callable[[EpochReport], object] | None = None,
        on_notice: Callable[[str], object] = lambda text: None,
        wait: bool = False,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Path:
        """Train to the end, from the newest checkpoint if any, on one thread; return the path of the weights.

        A finished and intact training is left unchanged. Raise KeyboardInterrupt, after a checkpoint is written, once
        `should_stop` returns True.

        Args:
            on_epoch: called with the report of every epoch.
            on_notice: called with a line of text for the user, e.g. about a damaged checkpoint.
            wait: wait while another process trains in the directory, instead of raising an error.
            should_stop: called before every epoch.
        """
        from equiflock.learning.training import make_trainer

        with self._lock_run_dir(wait), use_one_thread(), _report_memory_errors():
            if not self._needs_training(on_notice):
                return self.weights
            # Other versions may change the result, so notify the user.
            differences = ", ".join(list_differences(self.config.initial_versions, collect_versions("torch")))
            if differences:
                on_notice(f"started with {differences}: bits may differ")
            # Restore the newest checkpoint into a new trainer.
            trainer = make_trainer(self.recipe, self._load_initial_network())
            tables, checkpoints = Tables(self.folder, self.recipe), self._checkpoints
            # The tables are always rewritten from the checkpoint; a notice names those that were changed.
            changed = set(checkpoints.restore(trainer, tables, on_notice))
            if self._epochs_trained == self.recipe.epochs:
                changed.update(self._find_damaged_tables())
            for table in sorted(changed):
                on_notice(f"{table} was changed or is damaged: it is rewritten from the checkpoint")
            with self._open_logs(trainer, tables) as log:
                while trainer.epoch < self.recipe.epochs:
                    # Stop between two epochs, where the state is consistent and a checkpoint can be written.
                    if should_stop():
                        checkpoints.write(trainer, tables)
                        raise KeyboardInterrupt
                    report = self._run_epoch(trainer)
                    log(report)
                    if trainer.epoch % self.recipe.checkpoint_every == 0 or trainer.epoch == self.recipe.epochs:
                        checkpoints.write(trainer, tables)
                    if on_epoch is not None:
                        on_epoch(report)
            self._write_results(trainer, tables)
            return self.weights

    @property
    def _checkpoints(self) -> Checkpoints:
        from equiflock.learning.checkpoints import Checkpoints

        # Other versions, or another plugin, may give other bits, so the checkpoints belong to those of the start.
        return Checkpoints(self.folder, {**self.config.run_key, "versions": dict(self.config.initial_versions)})

    @property
    def _epochs_trained(self) -> int:
        """Number of epochs that the weights were trained for; 0 if they are missing or damaged."""
        try:
            return self._read_epochs_trained()
        except InputError:
            return 0

    @contextmanager
    def _lock_run_dir(self, wait: bool) -> Iterator[None]:
        """Hold the lock of the run directory inside the block, and first remove temporary files of killed processes.

        Raise InputError if the directory was removed, has another config now, or, unless `wait`, is locked by another
        process.
        """
        if not self.folder.is_dir():
            raise InputError(f"{self.folder} was removed")
        with lock_dir(self.folder, wait):
            if RunConfig.read(self.folder) != self.config:
                raise InputError(f"another process started another training in {self.folder}")
            for pattern in (".config.*", ".metrics.*", ".validation.*", ".weights.*", f"{CHECKPOINTS}/.*"):
                for temporary in self.folder.glob(pattern):
                    temporary.unlink()
            yield

    def _needs_training(self, notice: Callable[[str], object]) -> bool:
        """Return whether epochs or results are missing; damaged results count as missing, with a notice.

        If only tables are damaged and there is no checkpoint to restore them, send a notice and return False.
        """
        if not self.weights.exists():
            return True
        restart = "" if self.checkpoints else "; there is no checkpoint, so the training restarts"
        try:
            if self._read_epochs_trained() != self.recipe.epochs:  # it was extended
                if restart:
                    notice(restart.removeprefix("; "))
                return True
        except InputError as error:
            notice(f"{error}; it counts as missing and is rewritten{restart}")
            return True
        # A checkpoint restores the tables. Without one, only a new training could, which the user must request.
        damaged = self._find_damaged_tables()
        if damaged and restart:
            for path in damaged:
                notice(f"{path} was changed or is damaged: remove {self.weights} to train again")
            return False
        return bool(damaged)

    def _load_initial_network(self) -> nn.Module | None:
        """Return the network with the initial weights, or None if the training starts with new ones.

        Raise DamagedError if the copy of the weights is missing or damaged.
        """
        initial_weights, path = self.config.initial_weights, self.folder / INITIAL_WEIGHTS
        if initial_weights is None:
            return None
        if not path.is_file() or compute_file_checksum(path) != initial_weights.checksum:
            raise DamagedError(
                f"{path} is missing or damaged: replace it by a copy of the initial weights, {initial_weights.name}"
            )
        return load_module(path)

    def _run_epoch(self, trainer: Trainer) -> EpochReport:
        """Train for one epoch; if it diverges, name the last checkpoint in the error."""
        from equiflock.learning.dagger import DivergedError

        try:
            return trainer.run_epoch()
        except DivergedError as error:
            hint = f"; the last good checkpoint is {paths[0]}" if (paths := self.checkpoints) else ""
            raise DivergedError(f"{error}{hint}") from None

    @contextmanager
    def _open_logs(self, trainer: Trainer, tables: Tables) -> Iterator[Callable[[EpochReport], None]]:
        """Write and open the tables, open the TensorBoard events, and yield a function that logs a report to both.

        Validate the expert first if the training is new. Events of epochs that will be repeated are purged.
        """
        from torch.utils.tensorboard import SummaryWriter

        if trainer.epoch == 0:
            tables.add_validation(0, trainer.validator(trainer.expert, ideal_radio=True))
        expert = _compute_medians("expert", tables.expert)
        with tables.open_files(), SummaryWriter(str(self.folder), purge_step=trainer.epoch + 1) as events:

            def log(report: EpochReport) -> None:
                tables.add(report)
                scalars = {
                    "loss": report.loss,
                    "expert share": report.expert_share,
                    "learning rate": self.recipe.compute_learning_rate(report.epoch - 1),
                }
                if report.validation is not None:
                    scalars |= _compute_medians("student", report.validation) | expert
                for name, value in scalars.items():
                    events.add_scalar(name, value, report.epoch)

            yield log

    def _write_results(self, trainer: Trainer, tables: Tables) -> None:
        """Write the tables and then the weights, which mark the training as finished.

        The metadata of the weights holds run key, versions and the checksums of the tables.
        """
        if not tables.has_validation(trainer.epoch):  # the number of epochs was reduced
            tables.add_validation(trainer.epoch, trainer.run_validation())
        tables.write()
        extra = {"command": self.config.command, **self.config.run_key, "versions": collect_versions("torch")}
        # Store the versions at the end, and those at the start if they differ, as the result may depend on both.
        if self.config.initial_versions != collect_versions("torch"):
            extra["begun_with"] = dict(self.config.initial_versions)
        with trainer.use_averaged_weights():
            write_weights(trainer.network, self.weights, {**extra, "tables": tables.checksums})

    def _read_epochs_trained(self) -> int:
        """Read the number of epochs that the weights were trained for, or 0 if there are none.

        Raise InputError if they are damaged or belong to another training.
        """
        if not self.weights.exists():
            return 0
        metadata, run_key = self._read_metadata(), self.config.run_key
        try:
            epochs = int(metadata["recipe"]["epochs"])
            # The number of epochs may differ, because a training can be extended.
            stored_key = {"recipe": {**metadata["recipe"], "epochs": run_key["recipe"]["epochs"]}}
            initial_versions = metadata.get("begun_with", metadata["versions"])
        except (KeyError, TypeError, ValueError):
            raise InputError(f"the metadata of {self.weights} has no recipe or no versions") from None
        if "from" in metadata:
            stored_key["from"] = metadata["from"]
        differences = ", ".join(list_differences(stored_key, run_key))
        if differences:
            raise InputError(f"{self.weights} was trained with another recipe: {differences}")
        differences = ", ".join(list_differences(initial_versions, self.config.initial_versions))
        if differences:
            raise InputError(f"{self.weights} is of another training, started with {differences}")
        return epochs

    def _find_damaged_tables(self) -> list[Path]:
        """Return the tables that are missing or changed since the weights, which must exist, were written."""
        checksums = dict(self._read_metadata().get("tables", {}))
        return [
            path
            for path in (self.folder / name for name in COLUMNS)
            if not path.is_file() or compute_file_checksum(path) != checksums.get(path.name)
        ]

    def _read_metadata(self) -> dict[str, Any]:
        """Return the metadata of the weights file; raise InputError if the file is missing or damaged."""
        read_weights(self.weights)  # only to check that the weights are valid
        return read_tensors(self.weights, FORMAT)[1]


@contextmanager
def _report_memory_errors() -> Iterator[None]:
    """Inside the block, convert MemoryError, and RuntimeError of torch's allocator, to InputError."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):
            raise
        raise InputError("not enough memory: lower capacity, batch, agents or flocks") from None


def _compute_medians(prefix: str, validation: Validation) -> dict[str, float]:
    """Return the medians over flocks of IVV and IMAN (see `Validation`) by their TensorBoard names."""
    return {f"{prefix}/IVV": float(np.median(validation.ivv)), f"{prefix}/IMAN": float(np.median(validation.iman))}
