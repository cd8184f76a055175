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
from equiflock.learning.flights import Flown
from equiflock.runtime.checks import InputError
from equiflock.runtime.provenance import differences

FORMAT = "equiflock checkpoint 4"
NUMBERS = "epoch", "before", "tuples", "checksum"
"""The numbers of a flight, in their order."""


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
    tensors = {
        **_named("network.", trainer.network.state_dict()),
        **_named("learner.", trainer.learner.state()),
        **_named("average.", {} if trainer.average is None else trainer.average.tensors),
        **_named("flights.", _packed(list(trainer.flights))),
    }
    # As tensors, since tables may grow beyond what safetensors allows as metadata.
    for name, text in (texts or {}).items():
        tensors[f"table.{name}"] = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    made_by = made_by or {"recipe": trainer.recipe.settings}
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
    return write_tensors(arrays, path, FORMAT, {"made_by": made_by, "epoch": trainer.epoch})


def read_checkpoint(
    path: str | os.PathLike[str], trainer: Trainer, made_by: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Restore the state of a checkpoint in a fresh trainer of the same recipe; returns the tables.

    The replay stays empty until `refill` fills it. The number of epochs may differ if no epoch depends on it.
    """
    arrays, metadata = read_tensors(path, FORMAT)
    try:
        # The number of epochs is taken from the trainer, so that it counts as a difference only where it makes one.
        before = dict(metadata["made_by"])
        epoch = int(metadata["epoch"])
        recipe = {**before["recipe"], **({"epochs": trainer.recipe.epochs} if trainer.recipe.can_be_prolonged else {})}
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the metadata of {path} is damaged: {error!r}") from None
    made_by = made_by or {"recipe": trainer.recipe.settings}
    other = list(differences({**before, "recipe": recipe}, made_by))
    # Training backwards is impossible.
    if epoch > trainer.recipe.epochs:
        other.append(f"{epoch} epochs, not {trainer.recipe.epochs}")
    if other:
        raise OtherRecipeError(f"{path} was written by another training: {', '.join(other)}")
    try:
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        _fill(trainer, tensors)
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


def _fill(trainer: Trainer, tensors: dict[str, Tensor]) -> None:
    """Copy weights, their average, Adam's state and what it takes to fly again into a trainer."""
    trainer.network.load_state_dict(_under("network.", tensors))
    trainer.learner.restore(_under("learner.", tensors))
    if trainer.average is not None:
        trainer.average.restore(_under("average.", tensors))
    trainer.flights.clear()  # an older checkpoint may be read after one that does not fit
    for flown in _unpacked(_under("flights.", tensors), trainer.network.state_dict()):
        trainer.flights.add(flown)


def _packed(flights: list[Flown]) -> dict[str, Tensor]:
    """The flights as a table of their numbers, and for every weight of the network its values in all of them."""
    numbers = [[getattr(flown, name) for name in NUMBERS] for flown in flights]
    names = flights[0].network if flights else {}
    return {
        "numbers": torch.tensor(numbers, dtype=torch.int64).reshape(-1, len(NUMBERS)),
        **{f"network.{name}": torch.stack([flown.network[name] for flown in flights]) for name in names},
    }


def _unpacked(tensors: dict[str, Tensor], expected: Mapping[str, Tensor]) -> Iterator[Flown]:
    """The flights that `_packed` packed; an error unless their networks have the weights that are expected."""
    numbers, networks = tensors["numbers"].tolist(), _under("network.", tensors)
    shapes = {name: (len(numbers), *tensor.shape) for name, tensor in expected.items()}
    if numbers and {name: tuple(tensor.shape) for name, tensor in networks.items()} != shapes:
        raise ValueError("the networks of its flights have other weights")
    for place, row in enumerate(numbers):
        network = {name: values[place] for name, values in networks.items()}
        yield Flown(**dict(zip(NUMBERS, row, strict=True)), network=network)


def _named(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors with a prefix before their names; `_under` is the inverse."""
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
