"""The format of a checkpoint: everything that the next epoch of a training needs.

A checkpoint holds weights, their average if there is one, Adam's state, the number of epochs done and the rows of the
tables. No state of a random
generator is needed, because every epoch draws from streams named by the seed and its number. The replay is not written:
its flights are flown again, for which the checkpoint holds the network at the beginning of each.
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
"""The numbers of a flight, in their order."""


class RecipeMismatchError(InputError):
    """A checkpoint is intact, but of another training."""


def write_checkpoint(
    trainer: Trainer,
    path: str | os.PathLike[str],
    run_key: Mapping[str, Any] | None = None,
    contents: Mapping[str, str] | None = None,
) -> Path:
    """Write the state of a training to a file, from which `read_checkpoint` restores it.

    Args:
        trainer: the training, between two epochs.
        path: the file to write.
        run_key: the recipe and whatever else the bits depend on, fit for JSON; the recipe alone if left out.
        contents: the content of each table, by its name.
    """
    tensors = {
        **_add_prefix("network.", trainer.network.state_dict()),
        **_add_prefix("learner.", trainer.learner.state_dict()),
        **_add_prefix("average.", {} if trainer.average is None else trainer.average.tensors),
        **_add_prefix("flights.", _pack_rollouts(list(trainer.rollouts))),
    }
    # As tensors, since tables may grow beyond what safetensors allows as metadata.
    for name, text in (contents or {}).items():
        tensors[f"table.{name}"] = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    run_key = run_key or {"recipe": trainer.recipe.settings}
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
    return write_tensors(arrays, path, FORMAT, {"made_by": run_key, "epoch": trainer.epoch})


def read_checkpoint(
    path: str | os.PathLike[str], trainer: Trainer, run_key: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Restore the state of a checkpoint in a fresh trainer of the same recipe; returns the tables.

    The replay stays empty until `refill` fills it. The number of epochs may differ if no epoch depends on it.
    """
    arrays, metadata = read_tensors(path, FORMAT)
    try:
        # The number of epochs is taken from the trainer, so that it counts as a difference only where it makes one.
        before = dict(metadata["made_by"])
        epoch = int(metadata["epoch"])
        recipe = {**before["recipe"], **({"epochs": trainer.recipe.epochs} if trainer.recipe.is_extendable else {})}
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the metadata of {path} is damaged: {error!r}") from None
    run_key = run_key or {"recipe": trainer.recipe.settings}
    other = list(list_differences({**before, "recipe": recipe}, run_key))
    # Training backwards is impossible.
    if epoch > trainer.recipe.epochs:
        other.append(f"{epoch} epochs, not {trainer.recipe.epochs}")
    if other:
        raise RecipeMismatchError(f"{path} was written by another training: {', '.join(other)}")
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
    """How many epochs were done when a checkpoint was written."""
    _, metadata = read_tensors(path, FORMAT)
    return int(metadata["epoch"])


def _restore_trainer(trainer: Trainer, tensors: dict[str, Tensor]) -> None:
    """Copy weights, their average, Adam's state and what it takes to fly again into a trainer."""
    trainer.network.load_state_dict(_select_prefix("network.", tensors))
    trainer.learner.load_state_dict(_select_prefix("learner.", tensors))
    if trainer.average is not None:
        trainer.average.load_state_dict(_select_prefix("average.", tensors))
    trainer.rollouts.clear()  # an older checkpoint may be read after one that does not fit
    for rollout in _unpack_rollouts(_select_prefix("flights.", tensors), trainer.network.state_dict()):
        trainer.rollouts.add(rollout)


def _pack_rollouts(rollouts: list[Rollout]) -> dict[str, Tensor]:
    """The flights as a table of their numbers, and for every weight of the network its values in all of them."""
    numbers = [[getattr(rollout, name) for name in ROLLOUT_FIELDS] for rollout in rollouts]
    names = rollouts[0].network if rollouts else {}
    return {
        "numbers": torch.tensor(numbers, dtype=torch.int64).reshape(-1, len(ROLLOUT_FIELDS)),
        **{f"network.{name}": torch.stack([rollout.network[name] for rollout in rollouts]) for name in names},
    }


def _unpack_rollouts(tensors: dict[str, Tensor], expected: Mapping[str, Tensor]) -> Iterator[Rollout]:
    """The flights that `_pack_rollouts` packed; an error unless their networks have the weights that are expected."""
    numbers, networks = tensors["numbers"].tolist(), _select_prefix("network.", tensors)
    shapes = {name: (len(numbers), *tensor.shape) for name, tensor in expected.items()}
    if numbers and {name: tuple(tensor.shape) for name, tensor in networks.items()} != shapes:
        raise ValueError("the networks of its flights have other weights")
    for place, row in enumerate(numbers):
        network = {name: values[place] for name, values in networks.items()}
        yield Rollout(**dict(zip(ROLLOUT_FIELDS, row, strict=True)), network=network)


def _add_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors with a prefix before their names; `_select_prefix` is the inverse."""
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def _select_prefix(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
