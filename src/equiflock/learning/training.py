"""Training in one call, without a run directory: `train`, and the trainer of each algorithm."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from equiflock._runtime.threads import use_one_thread
from equiflock.learning.dagger import Trainer
from equiflock.learning.recipe import DAgger
from equiflock.learning.rollout_training import RolloutTrainer
from equiflock.learning.validation import EpochReport


def make_trainer(recipe: DAgger, network: nn.Module | None = None) -> Trainer:
    """Return the trainer of a recipe's algorithm; the arguments are those of `Trainer`."""
    if isinstance(recipe, DAgger) and recipe.algorithm == "rollout":
        return RolloutTrainer(recipe, network)
    return Trainer(recipe, network)


def train(
    recipe: DAgger,
    network: nn.Module | None = None,
    on_epoch: Callable[[EpochReport], object] | None = None,
) -> nn.Module:
    """Train a network in place, on one thread, and return it in eval mode, with averaged weights if the recipe says so.

    `equiflock train` does the same in a run directory. Raise DivergedError, which names the epoch, if the loss or a
    flight is no longer finite.

    Args:
        recipe: the settings of the training.
        network: torch module with `senses` to continue from; default: a new network of the recipe's controller.
        on_epoch: called with the report of every epoch.
    """
    # More threads slow down networks this small, and could change torch's rounding.
    with use_one_thread():
        trainer = make_trainer(recipe, network)
        while trainer.epoch < recipe.epochs:
            report = trainer.run_epoch()
            if on_epoch is not None:
                on_epoch(report)
    if trainer.average is not None:
        trainer.network.load_state_dict(trainer.average.tensors)
    return trainer.network.eval()
