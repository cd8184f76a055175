"""Behaviour cloning on fast-forward data, with the loss of the generalization bound (section 4.3), `ScoringLoss`.

Every epoch uses each training tuple once. The first `warm_up` steps use the loss without min(1, .).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
from jaxtyping import Float32, Float64
from torch import nn

from equiflock._runtime.checks import InputError
from equiflock._runtime.randomness import make_rng
from equiflock._runtime.threads import use_one_thread
from equiflock.controllers.gain_schedule import compute_gain
from equiflock.controllers.loading import make_network, select_network_options
from equiflock.learning.dagger import DivergedError, seed_torch
from equiflock.learning.fast_forward import FastForwardData, Split
from equiflock.learning.learner import Adam, make_learner
from equiflock.learning.loss import ScoringLoss, Tuples
from equiflock.learning.recipe import Cloning
from equiflock.learning.replay import ReplayBuffer
from equiflock.protocols import Controller, LocalController
from equiflock.simulation.flight_builder import check_controller

BATCHES_PER_READ = 100
"""Number of batches to read from disk at once, because the tuples of a batch are scattered over the file."""


@dataclass(frozen=True)
class CloningReport:
    """Losses after an epoch; epoch 0 is before the first Adam step."""

    epoch: int
    """Number of completed epochs."""
    train_loss: float
    """Mean loss of all training tuples with the weights at the end of the epoch."""
    test_loss: float
    """Mean loss of all test tuples with the same weights."""
    gradient_share: float
    """Share of training tuples that have a gradient, i.e. a loss below 1."""
    score_bias: float
    """b, the weight of the scoring model."""

    @property
    def gap(self) -> float:
        """Empirical generalization gap: test loss - training loss."""
        return self.test_loss - self.train_loss


class Cloner:
    """State of a cloning; `run_epoch` trains for one epoch, and `make_report` measures the losses.

    `network` is a torch module with `senses` that match the data; default: a new one of the recipe's controller.
    """

    def __init__(self, recipe: Cloning, data: FastForwardData, network: nn.Module | None = None) -> None:
        self.recipe, self.data = recipe, data
        if network is None:
            options = select_network_options(recipe.controller, hops=data.recipe.hops)
            network = make_network(recipe.controller, recipe.seed, **options)
        check_controller(cast(Controller, network))
        self.network, self.senses = network.eval(), cast(LocalController, network).senses
        if self.senses.hops != data.recipe.hops:
            raise InputError(f"the network observes {self.senses.hops} hops, but the data has {data.recipe.hops}")
        if self.senses.hop_mean != data.recipe.hop_mean:
            raise InputError(
                f"the network divides hops by the {self.senses.hop_mean}'s degree, but the data by the "
                f"{data.recipe.hop_mean}'s: make the data with FastForward(hop_mean={self.senses.hop_mean!r})"
            )
        data.find_array_name(self.senses.channels)
        # A flight multiplies the output by this gain.
        self._gain = compute_gain(network, data.recipe.time_step)
        self.learner = make_learner(network, recipe.learning_rate)
        self.loss = ScoringLoss(recipe.loss_scale)
        # b is trained together with the weights, by a separate Adam.
        self._bias_adam = Adam(1, recipe.learning_rate)
        self.epoch = self.updates = 0
        self.tuple_losses: dict[Split, Float64[np.ndarray, "S b"]] = {}
        """Losses of all training and test tuples, by time index, at the last report."""

    def run_epoch(self) -> None:
        """Take one Adam step per batch of training tuples, each used once, in an order drawn from seed and epoch.

        The last batch may be smaller. Raise DivergedError if the weights are no longer finite.
        """
        order = make_rng(self.recipe.seed, "cloning", self.epoch).permutation(self.data.samples)
        batch, read_size = self.recipe.batch, BATCHES_PER_READ * self.recipe.batch
        with seed_torch(self.recipe.seed, self.epoch):
            self.network.train()
            for first in range(0, len(order), read_size):
                indices = order[first : first + read_size]
                tuples = self._pack_tuples(*self.data.get_tuples(indices, self.senses.channels))
                full = len(indices) - len(indices) % batch
                for rows in (np.arange(full).reshape(-1, batch), np.arange(full, len(indices))[None]):
                    if rows.size:
                        self.learner.descend(tuples, rows, self._weight_errors)
            self.network.eval()
        self.epoch += 1
        if not all(weight.isfinite().all() for weight in self.network.parameters()):
            raise DivergedError(f"the weights are no longer finite in epoch {self.epoch}: lower learning_rate")

    def make_report(self) -> CloningReport:
        """Measure the losses of all training and test tuples with the current weights; keep them in `tuple_losses`."""
        train, test = self.compute_losses("train"), self.compute_losses("test")
        self.tuple_losses = {"train": train, "test": test}
        gradient_share = int((train < 1.0).sum()) / train.size
        return CloningReport(
            self.epoch, _compute_mean(train), _compute_mean(test), gradient_share, float(self.loss.bias[0])
        )

    def compute_losses(self, split: Split) -> Float64[np.ndarray, "S b"]:
        """Return the loss of every training or test tuple, a row per time index; a loss of 1 has no gradient."""
        # One time index at a time, because the data may not fit into memory.
        rows = []
        for step in range(self.data.recipe.index_count):
            tuples = self._pack_tuples(*self.data.get_block(step, split, self.senses.channels))
            rows.append(np.minimum(self.loss.compute_scores(self.learner.compute_errors(tuples)), 1.0))
        return np.stack(rows)

    def _pack_tuples(
        self, observations: Float32[np.ndarray, "T N K C D"], targets: Float32[np.ndarray, "T N D"]
    ) -> Tuples:
        """Return a copy of the tuples in the memory layout of the learner, with targets divided by the gain."""
        T, N, D = targets.shape
        buffer = ReplayBuffer(T, N, D, self.learner)
        buffer.add(observations, targets / np.float32(self._gain))
        return buffer.tuples

    def _weight_errors(self, errors: Float64[np.ndarray, " b"]) -> Float64[np.ndarray, " b"]:
        """Return the weights of a batch's errors in the loss, and take one Adam step on b."""
        weights = self.loss.compute_weights(errors, is_clipped=self.updates >= self.recipe.warm_up)
        self._bias_adam.step(self.loss.bias, self.loss.compute_bias_gradient(weights))
        self.loss.clip_bias()
        self.updates += 1
        return weights


def _compute_mean(losses: Float64[np.ndarray, "S b"]) -> float:
    """Return the mean loss, summed by time index."""
    return sum(float(row.sum()) for row in losses) / losses.size


def clone(
    recipe: Cloning,
    data: FastForwardData,
    network: nn.Module | None = None,
    on_epoch: Callable[[Cloner, CloningReport], object] | None = None,
) -> nn.Module:
    """Train a network in place by behaviour cloning, on one thread, and return it in eval mode.

    Raise DivergedError if the weights are no longer finite.

    Args:
        recipe: the settings of the training.
        data: the result of `FastForward.make`.
        network: torch module with `senses` to continue from; default: a new network of the recipe's controller.
        on_epoch: called with the cloner and the report of every measured epoch: 0, before the first step, every
            `measure_every` and the last. Without it nothing is measured.
    """
    # More threads slow down networks this small, and could change torch's rounding.
    with use_one_thread():
        cloner = Cloner(recipe, data, network)
        if on_epoch is not None:
            on_epoch(cloner, cloner.make_report())
        while cloner.epoch < recipe.epochs:
            cloner.run_epoch()
            due = cloner.epoch % recipe.measure_every == 0 or cloner.epoch == recipe.epochs
            if on_epoch is not None and due:
                on_epoch(cloner, cloner.make_report())
    return cloner.network
