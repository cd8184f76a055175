"""DAgger, exactly the paper's recipe by default (section 5, "Training").

Each epoch flies one flock of the training set under a mixture of expert and pupil, keeps what every agent knew and what
the expert would have done, and then takes some hundred steps of Adam on batches of that. All randomness of an epoch
comes from streams named by the seed and the epoch, so an epoch can be repeated without those before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Literal, cast

import torch
from torch import Tensor
from torch.nn import functional

from equiflock.controllers import load
from equiflock.controllers.networks import Network, new_network
from equiflock.flight import flight
from equiflock.imitation.mixture import Mixture
from equiflock.imitation.replay import Replay
from equiflock.initial import RandomDisk
from equiflock.randomness import stream
from equiflock.simulation import count_steps
from equiflock.types import Flock, InputError, LocalController, PrivilegedController, check_count, check_positive

NetworkName = Literal["tdagnn", "tdagnn-tf", "tdagnn-tf-mean", "etdagnn"]


@dataclass(frozen=True)
class DAgger:
    """The recipe: every number of it. The defaults are the paper's."""

    controller: NetworkName = "etdagnn"
    """The network to train."""
    epochs: int = 400
    """How many flights, each with its updates."""
    seed: int = 0
    """Of weights, flights and batches."""
    agents: int = 100
    """N."""
    hops: int = 3
    """K."""
    flocks: int = 400
    """The size of the set of initial conditions; an epoch draws one of them with replacement."""
    time_step: float = 0.01
    """Seconds per step."""
    duration: float = 2.0
    """Seconds per flight."""
    comm_radius: float = 1.0
    """R."""
    clamp: float = 100.0
    """C, the largest norm of the expert's acceleration."""
    expert_share: float = 0.993
    """beta_0, the probability of the expert's acceleration in the first epoch, and its decay per epoch."""
    least_expert_share: float = 0.5
    """What that probability never falls below."""
    capacity: int = 10_000
    """How many tuples are kept, the newest."""
    updates: int = 200
    """Steps of Adam per epoch."""
    batch: int = 20
    """Tuples per step, drawn with replacement."""
    learning_rate: float = 5e-5
    """Of Adam, with betas 0.9 and 0.999."""

    def __post_init__(self) -> None:
        for name in ("epochs", "agents", "hops", "flocks", "capacity", "updates", "batch"):
            check_count(name, getattr(self, name))
        for name in ("comm_radius", "clamp", "learning_rate"):
            check_positive(name, getattr(self, name))
        check_count("seed", self.seed, least=0)
        for name in ("expert_share", "least_expert_share"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InputError(f"{name} must be from 0 to 1; got {getattr(self, name)!r}")
        check_count("duration / time_step", count_steps(self.duration, self.time_step))

    def beta(self, epoch: int) -> float:
        """beta_e = max(beta_0 beta_(e-1), least share), epochs counted from 0."""
        return float(max(self.expert_share ** (epoch + 1), self.least_expert_share))


class Trainer:
    """A training under way: `run_epoch` after `run_epoch`, each returning its mean loss."""

    def __init__(self, recipe: DAgger) -> None:
        self.recipe = recipe
        self.network: Network = new_network(recipe.controller, recipe.seed, hops=recipe.hops)
        self.optimizer = torch.optim.Adam(
            self.network.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.999), fused=True
        )
        self.replay = Replay(recipe.capacity, recipe.agents, recipe.hops, dimensions=2)
        self.expert = cast(PrivilegedController, load("tanner", clamp=recipe.clamp))
        self.epoch = 0
        disk = RandomDisk(recipe.flocks, recipe.agents, recipe.seed, split="train", comm_radius=recipe.comm_radius)
        self.starts: Flock = disk.draw()

    def run_epoch(self) -> float:
        """Fly once, update many times; returns the mean loss of the updates."""
        self._collect()
        loss = self._update()
        self.epoch += 1
        return loss

    def _collect(self) -> None:
        recipe = self.recipe
        rng = stream(recipe.seed, "collect", self.epoch)
        start = self.starts[int(rng.integers(recipe.flocks))]
        pupil = cast(LocalController, self.network)
        pilot = Mixture(self.expert, pupil, recipe.beta(self.epoch), rng, recipe.comm_radius)
        loop = flight(start, pilot, time_step=recipe.time_step, radius=recipe.comm_radius)
        for moment in islice(loop, count_steps(recipe.duration, recipe.time_step)):
            assert pilot.target is not None
            self.replay.add(moment.messages[0], pilot.target[0])

    def _update(self) -> float:
        recipe = self.recipe
        places = stream(recipe.seed, "batches", self.epoch).integers(
            len(self.replay), size=(recipe.updates, recipe.batch)
        )
        total = torch.zeros(())
        for batch in places:
            messages, targets = self.replay.batch(batch)
            loss = imitation_loss(self.network(messages), targets)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            total += loss.detach()
        return total.item() / recipe.updates


def imitation_loss(accelerations: Tensor, targets: Tensor) -> Tensor:
    """The mean over agents of |a_expert - a_pupil|^2, and over the batch; both (batch, N, D)."""
    return targets.shape[-1] * functional.mse_loss(accelerations, targets)


def train(recipe: DAgger, on_epoch: Callable[[int, float], object] | None = None) -> Network:
    """Train a network and return it.

    Torch uses one thread meanwhile: more only hurt networks this small.

    Args:
        recipe: all numbers of the training.
        on_epoch: called with (epochs done, mean loss of the last), for progress.

    Raises:
        InputError: if the loss is not a number any more; the text says at which epoch.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        trainer = Trainer(recipe)
        while trainer.epoch < recipe.epochs:
            loss = trainer.run_epoch()
            if not loss < float("inf"):
                raise InputError(f"the loss turned {loss} in epoch {trainer.epoch}: lower learning_rate")
            if on_epoch is not None:
                on_epoch(trainer.epoch, loss)
    finally:
        torch.set_num_threads(threads)
    return trainer.network.eval()
