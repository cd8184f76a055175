"""The format of a checkpoint: everything that the next epoch of a training needs.

A checkpoint holds weights, Adam's state, the replay, the number of epochs done and the rows of the tables. No state of
a random generator is needed, because every epoch draws from streams named by the seed and its number.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from equiflock.controllers.networks.weights import read_tensors, write_tensors
from equiflock.learning.dagger import Trainer
from equiflock.runtime.checks import InputError
from equiflock.runtime.provenance import differences

FORMAT = "equiflock checkpoint 3"


class OtherRecipeError(InputError):
    """A checkpoint is intact, but of another training."""


def write_checkpoint(
    trainer: Trainer,
    path: str | os.PathLike[str],
    made_by: Mapping[str, Any] | None = None,
    texts: Mapping[str, str] | None = None,
) -> Path:
    """Write the state of a training to a file, from which `read_checkpoint` restores it.

    Args:
        trainer: the training, between two epochs.
        path: the file to write.
        made_by: the recipe and whatever else the bits depend on, fit for JSON; the recipe alone if left out.
        texts: the content of each table, by its name.
    """
    # Only the filled part of the replay.
    kept = len(trainer.replay)
    tensors = {f"network.{name}": tensor for name, tensor in trainer.network.state_dict().items()}
    tensors |= {f"learner.{name}": tensor for name, tensor in trainer.learner.state().items()}
    for name, array in zip(("replay.observations", "replay.targets"), trainer.replay.tuples, strict=True):
        tensors[name] = torch.from_numpy(array[:kept])
    # As tensors, since tables may grow beyond what safetensors allows as metadata.
    for name, text in (texts or {}).items():
        tensors[f"table.{name}"] = torch.tensor(bytearray(text.encode()), dtype=torch.uint8)
    made_by = made_by or {"recipe": asdict(trainer.recipe)}
    return write_tensors(
        tensors, path, FORMAT, {"made_by": made_by, "epoch": trainer.epoch, "added": trainer.replay.added}
    )


def read_checkpoint(
    path: str | os.PathLike[str], trainer: Trainer, made_by: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Restore the state of a checkpoint in a fresh trainer of the same recipe; returns the tables.

    The number of epochs may differ, as no epoch depends on it.
    """
    tensors, metadata = read_tensors(path, FORMAT)
    try:
        # The number of epochs is taken from the trainer, so that it does not count as a difference.
        before = dict(metadata["made_by"])
        epoch, added = int(metadata["epoch"]), int(metadata["added"])
        recipe = {**before["recipe"], "epochs": trainer.recipe.epochs}
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the metadata of {path} is damaged: {error!r}") from None
    made_by = made_by or {"recipe": asdict(trainer.recipe)}
    other = list(differences({**before, "recipe": recipe}, made_by))
    # Training backwards is impossible.
    if epoch > trainer.recipe.epochs:
        other.append(f"{epoch} epochs, not {trainer.recipe.epochs}")
    if other:
        raise OtherRecipeError(f"{path} was written by another training: {', '.join(other)}")
    try:
        _fill(trainer, tensors, added)
        texts = {name: text.numpy().tobytes().decode() for name, text in _under("table.", tensors).items()}
    except (KeyError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(f"{path} does not fit {trainer.recipe.controller}: {reason}") from None
    trainer.epoch = epoch
    return texts


def epochs_done(path: str | os.PathLike[str]) -> int:
    """How many epochs were done when a checkpoint was written."""
    _, metadata = read_tensors(path, FORMAT)
    return int(metadata["epoch"])


def _fill(trainer: Trainer, tensors: dict[str, Tensor], added: int) -> None:
    """Copy weights, Adam's state and the replay into a trainer."""
    trainer.network.load_state_dict(_under("network.", tensors))
    trainer.learner.restore(_under("learner.", tensors))
    # The filled part of the replay, and where its next tuple goes.
    for name, array in zip(("replay.observations", "replay.targets"), trainer.replay.tuples, strict=True):
        array[: len(tensors[name])] = tensors[name].numpy()
    trainer.replay.added = added


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
