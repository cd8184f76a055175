"""The checkpoints in the folder of a training; the newest two are kept, in case one is damaged."""

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
"""How many checkpoints are kept."""


class Checkpoints:
    """The checkpoints of one training.

    Args:
        folder: the folder of the training.
        run_key: the recipe and whatever else its bits depend on, which is written with every checkpoint.
    """

    def __init__(self, folder: Path, run_key: Mapping[str, Any]) -> None:
        self.folder = folder / CHECKPOINTS
        self.run_key = run_key
        self._damaged: list[Path] = []

    @property
    def paths(self) -> list[Path]:
        """The files, the newest first."""
        return sorted(self.folder.glob("epoch-*.safetensors"), reverse=True)

    def read_epochs_done(self) -> int:
        """How many epochs the newest intact checkpoint has; 0 if there is none."""
        from equiflock.learning.checkpoint_format import read_epochs_done

        for path in self.paths:
            try:
                return read_epochs_done(path)
            except InputError:
                continue  # `restore` reports the damage
        return 0

    def restore(self, trainer: Trainer, tables: Tables, notice: Callable[[str], object]) -> list[Path]:
        """Restore the newest intact checkpoint in a fresh trainer and its tables; returns the tables that differ."""
        from equiflock.learning.checkpoint_format import RecipeMismatchError, read_checkpoint
        from equiflock.learning.replay_refill import refill

        paths = self.paths
        for path in paths:
            try:
                differ = tables.restore(read_checkpoint(path, trainer, self.run_key))
            # A checkpoint of another training is no damage: an older one would not help.
            except RecipeMismatchError:
                raise
            except VersionMismatchError as error:
                raise InputError(f"{error}; remove {self.folder} to train again from the start") from None
            except InputError as error:
                self._damaged.append(path)
                if path == paths[-1]:
                    raise InputError(
                        f"{error}; there is no other checkpoint: remove {self.folder} to train again from the start"
                    ) from None
                notice(f"{error}; going on from the one before")
                continue
            if trainer.epoch < trainer.recipe.epochs:  # else nothing is left to learn from the replay
                refill(trainer, notice)
            return differ
        return []

    def write(self, trainer: Trainer, tables: Tables) -> None:
        """Write a checkpoint, unless it is there, and remove damaged and old ones."""
        from equiflock.learning.checkpoint_format import write_checkpoint

        path = self.folder / f"epoch-{trainer.epoch:06d}.safetensors"
        # Before the first epoch there is nothing to keep, and a restored checkpoint is on disk already.
        if trainer.epoch == 0 or (path.exists() and path not in self._damaged):
            return
        write_checkpoint(trainer, path, self.run_key, tables.contents)
        # Damaged and old ones go only after the new one is written, so that there is always one to continue from.
        for other in self._damaged:
            if other != path:
                other.unlink()
        self._damaged.clear()
        for old in self.paths[MAX_CHECKPOINTS:]:
            old.unlink()
