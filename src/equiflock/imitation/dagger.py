"""DAgger, exactly the paper's recipe by default (section 5, "Training").

Each epoch flies one flock of the training set under a mixture of expert and pupil, keeps what every agent knew and what
the expert would have done, and then takes some hundred steps of Adam on batches of that. All randomness of an epoch
comes from streams named by the seed and the epoch, so an epoch can be repeated without those before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from equiflock import threads
from equiflock.controllers import load
from equiflock.controllers.networks import NETWORKS, new_network
from equiflock.flight import check_controller, flight
from equiflock.imitation.mixture import Mixture
from equiflock.imitation.recipe import EXPERT, DAgger
from equiflock.imitation.replay import Replay
from equiflock.imitation.validation import Validation, Validator
from equiflock.initial import RandomDisk
from equiflock.randomness import stream
from equiflock.types import Controller, Flock, InputError, LocalController, PrivilegedController


class DivergedError(InputError):
    """The loss is not a number any more."""


@dataclass(frozen=True)
class EpochReport:
    """What came of an epoch."""

    epoch: int
    """Epochs done."""
    loss: float
    """The mean over the epoch's updates."""
    expert_share: float
    """How often the expert flew."""
    validation: Validation | None
    """In epochs that validate."""


class Trainer:
    """A training under way: `run_epoch` after `run_epoch`.

    Args:
        recipe: all numbers of the training.
        network: the module to train, with `hops` and `one_hop`; made by the recipe if left out.
    """

    def __init__(self, recipe: DAgger, network: nn.Module | None = None) -> None:
        self.recipe = recipe
        disk, self.network = prepare(recipe, network)
        self.pupil = cast(LocalController, self.network)
        self.expert = cast(PrivilegedController, load(EXPERT, clamp=recipe.clamp))
        self.optimizer = torch.optim.Adam(
            self.network.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.999), fused=True
        )
        self.replay = Replay(recipe.capacity, recipe.agents, self.pupil.hops, dimensions=2)
        self.epoch = 0
        self.starts: Flock = disk.draw()
        self.validate = Validator(recipe)

    def run_epoch(self) -> EpochReport:
        """Fly once, update many times, and validate if it is time.

        Raises:
            DivergedError: if the loss is not a number any more; the text says at which epoch.
        """
        expert_share = self.recipe.beta(self.epoch)
        with torch.random.fork_rng(devices=[]):
            # For modules that draw numbers themselves, such as by dropout.
            torch.manual_seed(int(stream(self.recipe.seed, "torch", self.epoch).integers(2**63)))
            self.network.eval()
            self.collect()
            self.network.train()
            loss = self.update()
            self.network.eval()
        self.epoch += 1
        # The last update of an epoch may spoil the weights after a loss that was still a number.
        if not all(weight.isfinite().all() for weight in self.network.parameters()):
            loss = math.nan
        if not math.isfinite(loss):
            raise DivergedError(f"the loss turned {loss:g} in epoch {self.epoch}: lower learning_rate")
        due = self.epoch % self.recipe.validate_every == 0 or self.epoch == self.recipe.epochs
        validation = self.validate(cast(Controller, self.network)) if due else None
        return EpochReport(self.epoch, loss, expert_share, validation)

    def collect(self) -> None:
        """Fly one flock of the set under the mixture, and keep what was known and what the expert would have done."""
        recipe = self.recipe
        rng = stream(recipe.seed, "collect", self.epoch)
        start = self.starts[int(rng.integers(recipe.flocks))]
        pilot = Mixture(self.expert, self.pupil, recipe.beta(self.epoch), rng, recipe.comm_radius)
        loop = flight(start, pilot, time_step=recipe.time_step, radius=recipe.comm_radius)
        for moment in islice(loop, recipe.steps):
            assert pilot.target is not None
            self.replay.add(moment.messages[0], pilot.target[0])

    def update(self) -> float:
        """Take the epoch's steps of Adam; returns their mean loss."""
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


def prepare(recipe: DAgger, network: nn.Module | None = None) -> tuple[RandomDisk, nn.Module]:
    """The training set, not drawn yet, and the network, fresh if none is given; a clear error if they do not do."""
    if not isinstance(recipe, DAgger):
        raise InputError(f"recipe must be an equiflock.DAgger; got {recipe!r:.80}")
    disk = RandomDisk(recipe.flocks, recipe.agents, recipe.seed, split="train", comm_radius=recipe.comm_radius)
    if network is None:
        options = {"hops": recipe.hops} if recipe.controller in NETWORKS else {}
        network = new_network(recipe.controller, recipe.seed, **options)
    if not isinstance(network, nn.Module) or not list(network.parameters()):
        raise InputError(f"network must be a torch module with weights to train; got {network!r:.80}")
    check_controller(cast(Controller, network))
    return disk, network


def imitation_loss(accelerations: Tensor, targets: Tensor) -> Tensor:
    """The mean over agents of |a_expert - a_pupil|^2, and over the batch; both (batch, N, D)."""
    return targets.shape[-1] * functional.mse_loss(accelerations, targets)


def train(
    recipe: DAgger,
    network: nn.Module | None = None,
    on_epoch: Callable[[EpochReport], object] | None = None,
) -> nn.Module:
    """Train a network and return it; `equiflock train` does the same and keeps everything in a folder.

    Args:
        recipe: all numbers of the training.
        network: a torch module of your own with `hops` and `one_hop`, to go on from its weights; if left out, a fresh
            one of the recipe's controller.
        on_epoch: called with what came of every epoch.

    Raises:
        DivergedError: if the loss is not a number any more; the text says at which epoch.
    """
    with one_thread():
        trainer = Trainer(recipe, network)
        while trainer.epoch < recipe.epochs:
            report = trainer.run_epoch()
            if on_epoch is not None:
                on_epoch(report)
    return trainer.network.eval()


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread in torch and in our kernels: more only hurt networks this small, and could change torch's bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threads.use(1):
            yield
    finally:
        torch.set_num_threads(before)
