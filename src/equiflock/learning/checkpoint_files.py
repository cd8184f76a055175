"""The checkpoint files of a run directory; the newest two are kept, in case one is damaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equiflock.learning.run_directories import CHECKPOINTS
from equiflock.learning.training_tables import Tables
from equiflock.runtime.checks import InputError
from equiflock.runtime.checksums import VersionMismatchError

if TYPE_CHECKING:  # torch takes seconds to import
    from equiflock.learning.dagger import Trainer

MAX_CHECKPOINTS = 2
"""Number of checkpoints to keep."""


class Checkpoints:
    """The checkpoints of one training.

    Args:
        folder: the run directory.
        run_key: the recipe and everything else that the result depends on, stored in every checkpoint.
    """

    def __init__(self, folder: Path, run_key: Mapping[str, Any]) -> None:
        self.folder = folder / CHECKPOINTS
        self.run_key = run_key
        self._damaged: list[Path] = []

    @property
    def paths(self) -> list[Path]:
        """Checkpoint files, newest first."""
        return sorted(self.folder.glob("epoch-*.safetensors"), reverse=True)

    def read_epochs_done(self) -> int:
        """Return the number of completed epochs in the newest checkpoint that can be read, or 0 if there is none.

        Damaged checkpoints are skipped, and `run_key` is not compared.
        """
        from equiflock.learning.checkpoint_format import read_epochs_done

        for path in self.paths:
            try:
                return read_epochs_done(path)
            except InputError:
                continue  # `restore` reports the damage
        return 0

    def restore(self, trainer: Trainer, tables: Tables, notice: Callable[[str], object]) -> list[Path]:
        """Restore the newest intact checkpoint into a new trainer and its tables; refill the replay if epochs remain.

        Damaged checkpoints are skipped with a notice. Return the table files on disk that do not match the checkpoint;
        empty, with nothing restored, if there is no checkpoint. Raise InputError if all checkpoints are damaged, or if
        the newest intact one is of another version or another training.
        """
        from equiflock.learning.checkpoint_format import RecipeMismatchError, read_checkpoint
        from equiflock.learning.replay_refill import refill

        paths = self.paths
        for path in paths:
            try:
                differ = tables.restore(read_checkpoint(path, trainer, self.run_key))
            # A checkpoint of another training is not damaged, and an older one would not match either.
            except RecipeMismatchError:
                raise
            except VersionMismatchError as error:
                raise InputError(f"{error}; remove {self.folder} to restart the training") from None
            except InputError as error:
                self._damaged.append(path)
                if path == paths[-1]:
                    raise InputError(
                        f"{error}; there is no other checkpoint: remove {self.folder} to restart the training"
                    ) from None
                notice(f"{error}; continuing from the previous checkpoint")
                continue
            if trainer.epoch < trainer.recipe.epochs:  # a finished training needs no replay
                refill(trainer, notice)
            return differ
        return []

    def write(self, trainer: Trainer, tables: Tables) -> None:
        """Write a checkpoint atomically, then remove damaged ones and all but the newest two.

        Do nothing at epoch 0 or if an intact checkpoint of this epoch exists.
        """
        from equiflock.learning.checkpoint_format import write_checkpoint

        path = self.folder / f"epoch-{trainer.epoch:06d}.safetensors"
        # Before the first epoch there is no progress to save, and a restored checkpoint is already on disk.
        if trainer.epoch == 0 or (path.exists() and path not in self._damaged):
            return
        write_checkpoint(trainer, path, self.run_key, tables.contents)
        # Remove old files only after writing the new one, so that a usable checkpoint always exists.
        for damaged in self._damaged:
            if damaged != path:
                damaged.unlink()
        self._damaged.clear()
        for old in self.paths[MAX_CHECKPOINTS:]:
            old.unlink()
