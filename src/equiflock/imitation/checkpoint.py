"""A training on disk: everything that the next epoch needs.

Weights, Adam's state, the replay and the epoch's number; there are no states of random generators, because every epoch
takes its randomness from streams named by the seed and its number.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

from torch import Tensor

from equiflock.controllers.weights import read_tensors, write_tensors
from equiflock.imitation.dagger import Trainer
from equiflock.types import InputError

FORMAT = "equiflock checkpoint 1"


class OtherRecipeError(InputError):
    """A checkpoint is whole, but not of this training."""


def write_checkpoint(trainer: Trainer, path: str | os.PathLike[str]) -> Path:
    """Write what `read_checkpoint` needs to go on."""
    kept = len(trainer.replay)
    tensors = {f"network.{name}": tensor for name, tensor in trainer.network.state_dict().items()}
    for place, state in trainer.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{place}.{name}": tensor for name, tensor in state.items()}
    tensors |= {"replay.messages": trainer.replay.messages[:kept], "replay.targets": trainer.replay.targets[:kept]}
    metadata = {"recipe": asdict(trainer.recipe), "epoch": trainer.epoch, "added": trainer.replay.added}
    return write_tensors(tensors, path, FORMAT, metadata)


def read_checkpoint(path: str | os.PathLike[str], trainer: Trainer) -> None:
    """Bring a fresh trainer of the same recipe to where the checkpoint was written."""
    tensors, metadata = read_tensors(path, FORMAT)
    try:
        recipe = dict(metadata["recipe"])
        epoch, added = int(metadata["epoch"]), int(metadata["added"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the metadata of {path} is damaged: {error!r}") from None
    own = asdict(trainer.recipe)
    other = sorted(name for name in own.keys() | recipe.keys() if own.get(name) != recipe.get(name))
    if other:
        told = ", ".join(f"{name} = {recipe.get(name)!r}, not {own.get(name)!r}" for name in other)
        raise OtherRecipeError(f"{path} was written by another recipe: {told}")
    try:
        _fill(trainer, tensors, added)
    except (KeyError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(f"{path} does not fit {trainer.recipe.controller}: {reason}") from None
    trainer.epoch = epoch


def _fill(trainer: Trainer, tensors: dict[str, Tensor], added: int) -> None:
    trainer.network.load_state_dict(_under("network.", tensors))
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in _under("optimizer.", tensors).items():
        place, key = name.split(".")
        moments.setdefault(int(place), {})[key] = tensor
    trainer.optimizer.load_state_dict({**trainer.optimizer.state_dict(), "state": moments})
    messages, targets = tensors["replay.messages"], tensors["replay.targets"]
    trainer.replay.messages[: len(messages)] = messages
    trainer.replay.targets[: len(targets)] = targets
    trainer.replay.added = added


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
