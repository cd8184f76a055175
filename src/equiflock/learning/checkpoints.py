"""Checkpoints of a training: everything that its next epoch needs, in files of which the newest two are kept.

A checkpoint holds the weights, their average if any, Adam's state, the number of completed epochs and the rows of the
tables. It needs no random generator state, because every epoch draws from streams named by the seed and the epoch. It
does not hold the replay but the network at the start of each rollout in it, from which `refill` repeats the rollouts.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import DamagedError, VersionMismatchError
from equiflock._runtime.provenance import list_differences
from equiflock.controllers.networks.weights import read_tensors, write_tensors
from equiflock.learning.dagger import Trainer, seed_torch
from equiflock.learning.learner import copy_state_dict
from equiflock.learning.replay import Rollout
from equiflock.learning.run_directory import CHECKPOINTS, Tables

FORMAT = "equiflock checkpoint 5"
ROLLOUT_FIELDS = "epoch", "tuples_before", "tuples", "checksum"
"""Integer fields of a rollout, in the order of the stored columns."""
MAX_CHECKPOINTS = 2
"""Number of checkpoints to keep, in case one is damaged."""
NOTICE_DELAY = 5.0
"""Seconds after which `refill` sends a progress notice, counted from the second rollout."""


class RecipeMismatchError(InputError):
    """A checkpoint is intact but belongs to another training."""


class Checkpoints:
    """The checkpoint files in the run directory of one training.

    `run_key` is the recipe and everything else that the result depends on; it is stored in every checkpoint.
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
        """Return the number of completed epochs in the newest checkpoint that can be read, or 0 if there is none."""
        for path in self.paths:
            try:
                return int(read_tensors(path, FORMAT)[1]["epoch"])
            except InputError:
                continue  # `restore` reports the damage
        return 0

    def restore(self, trainer: Trainer, tables: Tables, notice: Callable[[str], object]) -> list[Path]:
        """Restore the newest intact checkpoint into a new trainer and its tables; refill the replay if epochs remain.

        Damaged checkpoints are skipped with a notice. Return the table files on disk that do not match the checkpoint;
        empty, with nothing restored, if there is no checkpoint. Raise InputError if all checkpoints are damaged, or if
        the newest intact one is of another version or another training.
        """
        paths = self.paths
        for path in paths:
            try:
                contents = read_checkpoint(path, trainer, self.run_key)
                if path != self._get_path(trainer.epoch):
                    raise DamagedError(f"{path} is a copy of the checkpoint of epoch {trainer.epoch}")
                differ = tables.restore(contents)
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
        path = self._get_path(trainer.epoch)
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

    def _get_path(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch:06d}.safetensors"


def write_checkpoint(
    trainer: Trainer,
    path: str | os.PathLike[str],
    run_key: Mapping[str, Any] | None = None,
    contents: Mapping[str, str] | None = None,
) -> Path:
    """Write the state of a training between two epochs atomically, for `read_checkpoint`; return the path.

    `run_key` is the recipe and everything else that the result depends on, JSON-serializable; default: the recipe.
    `contents` is the text of each table by name.
    """
    tensors = {
        **_add_prefix("network.", trainer.network.state_dict()),
        **_add_prefix("learner.", trainer.learner.state_dict()),
        **_add_prefix("average.", {} if trainer.average is None else trainer.average.tensors),
        **_add_prefix("flights.", _pack_rollouts(list(trainer.rollouts))),
    }
    # Tables are stored as tensors, because they may outgrow the size limit of safetensors metadata.
    for name, text in (contents or {}).items():
        tensors[f"table.{name}"] = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    run_key = run_key or {"recipe": trainer.recipe.settings}
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
    return write_tensors(arrays, path, FORMAT, {"made_by": run_key, "epoch": trainer.epoch})


def read_checkpoint(
    path: str | os.PathLike[str], trainer: Trainer, run_key: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Restore a checkpoint into a new trainer of the same recipe; return the text of each table by name.

    The replay stays empty until `refill` is called. The number of epochs may differ if the recipe is extendable.
    Raise RecipeMismatchError if the checkpoint is of another training or has more epochs than the recipe, and
    InputError if it is damaged.
    """
    arrays, metadata = read_tensors(path, FORMAT)
    try:
        # For an extendable recipe, use the trainer's number of epochs, so that it does not count as a difference.
        stored_key = dict(metadata["made_by"])
        epoch = int(metadata["epoch"])
        recipe = {**stored_key["recipe"], **({"epochs": trainer.recipe.epochs} if trainer.recipe.is_extendable else {})}
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the metadata of {path} is damaged: {error!r}") from None
    run_key = run_key or {"recipe": trainer.recipe.settings}
    differences = list(list_differences({**stored_key, "recipe": recipe}, run_key))
    # A training cannot go back to an earlier epoch.
    if epoch > trainer.recipe.epochs:
        differences.append(f"{epoch} epochs, not {trainer.recipe.epochs}")
    if differences:
        raise RecipeMismatchError(f"{path} was written by another training: {', '.join(differences)}")
    try:
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        _restore_trainer(trainer, tensors)
        contents = {name: text.numpy().tobytes().decode() for name, text in _select_prefix("table.", tensors).items()}
    except (KeyError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(f"{path} does not fit {trainer.recipe.controller}: {reason}") from None
    trainer.epoch = epoch
    return contents


def _restore_trainer(trainer: Trainer, tensors: dict[str, Tensor]) -> None:
    """Copy weights, the average, if the recipe has one, and Adam's state into a trainer, and replace its rollouts."""
    trainer.network.load_state_dict(_select_prefix("network.", tensors))
    trainer.learner.load_state_dict(_select_prefix("learner.", tensors))
    if trainer.average is not None:
        trainer.average.load_state_dict(_select_prefix("average.", tensors))
    trainer.rollouts.clear()  # a previous, mismatching checkpoint may have filled it
    trainer.rollouts.extend(_unpack_rollouts(_select_prefix("flights.", tensors), trainer.network.state_dict()))


def _pack_rollouts(rollouts: list[Rollout]) -> dict[str, Tensor]:
    """Return the integer fields of R rollouts, (R, fields), and their network weights, stacked along a first axis R."""
    numbers = [[getattr(rollout, name) for name in ROLLOUT_FIELDS] for rollout in rollouts]
    names = rollouts[0].network if rollouts else {}
    return {
        "numbers": torch.tensor(numbers, dtype=torch.int64).reshape(-1, len(ROLLOUT_FIELDS)),
        **{f"network.{name}": torch.stack([rollout.network[name] for rollout in rollouts]) for name in names},
    }


def _unpack_rollouts(tensors: dict[str, Tensor], expected: Mapping[str, Tensor]) -> Iterator[Rollout]:
    """Yield the rollouts that `_pack_rollouts` packed; raise ValueError if their weights do not match `expected`."""
    numbers, networks = tensors["numbers"].tolist(), _select_prefix("network.", tensors)
    shapes = {name: (len(numbers), *tensor.shape) for name, tensor in expected.items()}
    if numbers and {name: tuple(tensor.shape) for name, tensor in networks.items()} != shapes:
        raise ValueError("the networks of its rollouts have other weights")
    for index, row in enumerate(numbers):
        network = {name: values[index] for name, values in networks.items()}
        yield Rollout(**dict(zip(ROLLOUT_FIELDS, row, strict=True)), network=network)


def _add_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with a prefix added to their names; `_select_prefix` is the inverse."""
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def _select_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names start with a prefix, by name without the prefix."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def refill(trainer: Trainer, notice: Callable[[str], object]) -> None:
    """Repeat the rollouts in `trainer.rollouts`, restored from a checkpoint, and fill the replay with them.

    On another machine or with other versions they may differ in rounding, and even in length. The training then
    continues with the new rollouts, with a notice. Raise InputError if a rollout cannot be repeated.
    """
    rollouts = list(trainer.rollouts)
    if not rollouts:
        return
    # Each rollout uses its own network and epoch; restore those of the checkpoint afterwards.
    epoch, network = trainer.epoch, copy_state_dict(trainer.network)
    try:
        _repeat_rollouts(trainer, rollouts, rollouts[0].tuples_before, notice)
        # If rollouts are now shorter, parts of the ring stay empty: repeat them from the start of the ring.
        if trainer.replay.total_added - rollouts[0].tuples_before < len(trainer.replay):
            _repeat_rollouts(trainer, rollouts, 0, notice)
    finally:
        trainer.network.load_state_dict(network)
        trainer.epoch = epoch
    if list(trainer.rollouts) != rollouts:
        notice(
            "its last rollouts, repeated, differ from the original ones: the result will differ from that of an "
            "uninterrupted training"
        )


def _repeat_rollouts(
    trainer: Trainer, rollouts: Sequence[Rollout], first: int, notice: Callable[[str], object]
) -> None:
    """Replace `trainer.rollouts` by repetitions of these, whose first tuple gets the number `first` in the replay.

    Network weights and epoch of the trainer are those of the last rollout afterwards.
    """
    trainer.rollouts.clear()
    trainer.replay.total_added = first
    deadline = math.inf
    for number, rollout in enumerate(rollouts):
        # The first rollout may compile kernels, so its time does not count.
        if number == 1:
            deadline = time.monotonic() + NOTICE_DELAY
        if time.monotonic() > deadline:
            notice(f"repeating the last {len(rollouts)} rollouts, {number} done so far")
            deadline = math.inf
        trainer.network.load_state_dict(rollout.network)
        trainer.epoch = rollout.epoch
        try:
            with seed_torch(trainer.recipe.seed, trainer.epoch):
                trainer.run_rollout()
        except InputError as error:
            raise InputError(f"the rollout of epoch {rollout.epoch + 1} cannot be repeated: {error}") from None
