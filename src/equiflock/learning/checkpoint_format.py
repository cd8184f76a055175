"""The checkpoint format: everything that the next epoch of a training needs.

A checkpoint holds the weights, their average if any, Adam's state, the number of completed epochs and the rows of the
tables. It needs no random generator state, because every epoch draws from streams named by the seed and the epoch. It
does not hold the replay: `replay_refill` repeats the rollouts, for which the checkpoint stores the network at the start
of each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from equiflock.controllers.networks.weights import read_tensors, write_tensors
from equiflock.learning.dagger import Trainer
from equiflock.learning.rollouts import Rollout
from equiflock.runtime.checks import InputError
from equiflock.runtime.provenance import list_differences

FORMAT = "equiflock checkpoint 4"
ROLLOUT_FIELDS = "epoch", "tuples_before", "tuples", "checksum"
"""Integer fields of a rollout, in the order of the stored columns."""


class RecipeMismatchError(InputError):
    """A checkpoint is intact but belongs to another training."""


def write_checkpoint(
    trainer: Trainer,
    path: str | os.PathLike[str],
    run_key: Mapping[str, Any] | None = None,
    contents: Mapping[str, str] | None = None,
) -> Path:
    """Write the state of a training atomically to a file that `read_checkpoint` can restore; return the path.

    Args:
        trainer: the trainer, between two epochs.
        path: the file to write.
        run_key: the recipe and everything else that the result depends on, JSON-serializable; default: the recipe.
        contents: the text of each table by name.
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
    `run_key` is that of `write_checkpoint`.

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


def read_epochs_done(path: str | os.PathLike[str]) -> int:
    """Return the number of epochs completed when the checkpoint was written; raise InputError if it cannot be read."""
    _, metadata = read_tensors(path, FORMAT)
    return int(metadata["epoch"])


def _restore_trainer(trainer: Trainer, tensors: dict[str, Tensor]) -> None:
    """Copy weights, the average, if the recipe has one, and Adam's state into a trainer, and replace its rollouts."""
    trainer.network.load_state_dict(_select_prefix("network.", tensors))
    trainer.learner.load_state_dict(_select_prefix("learner.", tensors))
    if trainer.average is not None:
        trainer.average.load_state_dict(_select_prefix("average.", tensors))
    trainer.rollouts.clear()  # a previous, mismatching checkpoint may have filled it
    for rollout in _unpack_rollouts(_select_prefix("flights.", tensors), trainer.network.state_dict()):
        trainer.rollouts.add(rollout)


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
