"""DAgger, by default with exactly the paper's settings (section 5, "Training").

Each epoch flies one flock of the training set under a mixture of expert and pupil, adds each agent's observations and
the expert's accelerations to the replay, and then takes some hundred steps of Adam on batches of it. All randomness of
an epoch comes from streams named by the seed and the epoch, so no state of a generator has to be kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float32
from torch import nn

from equiflock.controllers import load
from equiflock.flock import FOLLOWER
from equiflock.learning.learner import make_learner
from equiflock.learning.mixture import Mixture
from equiflock.learning.network_checks import prepare_network
from equiflock.learning.recipe import DAgger
from equiflock.learning.replay import ReplayBuffer, check_memory
from equiflock.learning.rollouts import Rollout, RolloutHistory, compute_crc32, copy_state_dict
from equiflock.learning.validation import Validation, Validator
from equiflock.learning.weight_average import WeightAverage
from equiflock.learning.worlds import FlightWorld
from equiflock.protocols import Controller, LocalController
from equiflock.runtime.checks import InputError, NumericRangeError
from equiflock.runtime.randomness import make_rng
from equiflock.runtime.threads import use_one_thread
from equiflock.senses.aggregation import DelayedAggregation
from equiflock.simulation.flight_builder import flight


class DivergedError(InputError):
    """The weights, the loss, or a flight of the network are no longer finite."""


@dataclass(frozen=True)
class EpochReport:
    """The loss of an epoch, and the validation after it."""

    epoch: int
    """How many epochs are done."""
    loss: float
    """The mean loss over the epoch's updates."""
    expert_share: float
    """beta, the probability of the expert's acceleration."""
    validation: Validation | None
    """The validation after this epoch; None if none was due."""


class Trainer:
    """The state of a training; `run_epoch` does one epoch.

    Args:
        recipe: the settings of the training.
        network: the module to train, with `senses`; a fresh one of the recipe's controller if left out.
    """

    def __init__(self, recipe: DAgger, network: nn.Module | None = None) -> None:
        self.recipe = recipe
        self.network = prepare_network(recipe, network)
        self.student = cast(LocalController, self.network)
        self.expert = load(recipe.expert)
        self.starts = [scene.draw(recipe.flocks, recipe.seed, "train") for scene in recipe.training_scenarios]
        """The sets of initial conditions, one for each scenario."""
        # The replay has one size for all flocks, and only followers learn.
        agents = min(start.followers for starts in self.starts for start in starts)
        if agents < 1:
            raise InputError(f"every flock of {recipe.scenario!r} must have a follower at least: nobody else learns")
        self.learner = make_learner(self.network, recipe.learning_rate)
        D, senses = self.starts[0][0].flock.shape[2], self.student.senses
        check_memory(recipe.capacity + recipe.batch, agents, senses.hops, D, senses.width)
        self.replay = ReplayBuffer(recipe.capacity, agents, D, self.learner)
        self.rollouts = RolloutHistory(recipe.capacity)
        self.average = WeightAverage(self.network, recipe.average) if recipe.average > 0.0 else None
        self.epoch = 0
        self._worlds = recipe.worlds
        self.validator = Validator(recipe)

    def run_epoch(self) -> EpochReport:
        """Collect one flight, update the network many times, and validate it if that is due.

        Raises:
            DivergedError: if the loss or a flight is no longer finite; the text says at which epoch.
        """
        expert_share = self.recipe.compute_expert_share(self.epoch)
        with self.seed_torch():
            with self._report_divergence(self.epoch + 1):
                self.run_rollout()
            self.network.train()
            loss = self.update()
            self.network.eval()
        self.epoch += 1
        # The last update may make the weights infinite though the loss before it was finite.
        if not all(weight.isfinite().all() for weight in self.network.parameters()):
            loss = math.nan
        if not math.isfinite(loss):
            raise _make_divergence_error(self.epoch, f"the loss turned {loss:g}")
        if self.average is not None:
            self.average.add(self.network, self.epoch)
        validation = self.run_validation() if self.recipe.is_validation_due(self.epoch) else None
        return EpochReport(self.epoch, loss, expert_share, validation)

    def run_validation(self) -> Validation:
        """Validate the network with its present weights, or their average if there is one."""
        with self._report_divergence(self.epoch), self.use_averaged_weights():
            return self.validator(cast(Controller, self.network))

    def use_averaged_weights(self) -> AbstractContextManager[None]:
        """Inside the block the network has the average as its weights, if there is one."""
        return nullcontext() if self.average is None else self.average.swap_into(self.network)

    @contextmanager
    def _report_divergence(self, epoch: int) -> Iterator[None]:
        """Turn the error of a flight that left the range of float64 into one of divergence."""
        try:
            yield
        except NumericRangeError as error:
            # Before the first update the training cannot be the cause.
            if self.epoch == 0:
                raise
            raise _make_divergence_error(epoch, str(error)) from None

    @contextmanager
    def seed_torch(self) -> Iterator[None]:
        """Seed torch with the epoch's number, for modules that draw random numbers themselves, such as dropout."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(make_rng(self.recipe.seed, "torch", self.epoch).integers(2**63)))
            yield

    def run_rollout(self) -> None:
        """Collect the epoch's flight, and note what it takes to fly it again."""
        network, tuples_before = copy_state_dict(self.network), self.replay.total_added
        self.network.eval()
        checksum = self.collect()
        self.rollouts.add(
            Rollout(self.epoch, tuples_before, self.replay.total_added - tuples_before, checksum, network)
        )

    @property
    def world(self) -> FlightWorld:
        """The radio and the body of the epoch's flight, a function of the recipe and the epoch's number alone."""
        return self._worlds.draw(self.recipe.seed, self.epoch)

    @property
    def scenario_index(self) -> int:
        """Which of the scenarios the epoch's flight is of, drawn by their shares."""
        shares = [scenario_index.share for scenario_index in self.recipe.training_scenarios]
        if len(shares) == 1:
            return 0
        return int(make_rng(self.recipe.seed, "scenario", self.epoch).choice(len(shares), p=shares))

    def collect(self) -> int:
        """Fly one flock of the training set under the mixture, and add every step to the replay.

        Returns:
            a checksum of what was added.
        """
        recipe = self.recipe
        rng = make_rng(recipe.seed, "collect", self.epoch)
        # One flock of the scenario's training set, drawn with replacement.
        starts = self.starts[self.scenario_index]
        scenario, start = starts[int(rng.integers(len(starts)))]
        rules: dict[str, Any] = {"orbit": scenario.orbit, "obstacles": scenario.obstacles}
        # The expert may need other observations than the pupil, which the flight itself makes.
        sensing = DelayedAggregation(self.expert.senses, **rules)
        mixture = Mixture(self.expert, self.student, recipe.compute_expert_share(self.epoch), rng, sensing)
        # The pupil hears by the radio that the epoch drew; the expert, which is privileged, hears everything.
        world = self.world
        rules |= {"radio": world.radio, "body": world.body, "ending": scenario.ending()}
        loop = flight(start, mixture, time_step=recipe.time_step, **rules)
        # Leaders and obstacle agents have no observations and no controller: there is nothing to learn from them.
        who = start.roles[0] == FOLLOWER if start.roles.any() else slice(None)
        observations, targets = [], []
        for moment in islice(loop, recipe.steps):
            if not moment.flying[0]:
                break
            # Z of the pupil, and what the expert would do, whoever flew this step.
            assert mixture.target is not None
            observations.append(moment.observations[0, who].copy())
            targets.append(mixture.target[0, who].astype(np.float32))
        if not observations:
            return 0
        known, wanted = self.sample_agents(np.stack(observations), np.stack(targets))
        self.replay.add(known, wanted)
        return compute_crc32(known, wanted)

    def sample_agents(
        self, observations: Float32[np.ndarray, "T N K C D"], targets: Float32[np.ndarray, "T N D"]
    ) -> tuple[Float32[np.ndarray, "T A K C D"], Float32[np.ndarray, "T A D"]]:
        """As many agents of each step as a tuple holds, drawn at random if there are more."""
        (T, N), A = targets.shape[:2], self.replay.agents
        if N == A:
            return observations, targets
        rng = make_rng(self.recipe.seed, "followers", self.epoch)
        agents = np.stack([rng.choice(N, A, replace=False) for _ in range(T)])
        steps = np.arange(T)[:, None]
        return observations[steps, agents], targets[steps, agents]

    def update(self) -> float:
        """Take the epoch's steps of Adam; returns their mean loss."""
        recipe = self.recipe
        if len(self.replay) == 0:
            raise InputError(f"every flight of {recipe.scenario!r} ended before its first step: nothing to learn from")
        # All batches of the epoch, drawn with replacement from the whole replay.
        batch_indices = make_rng(recipe.seed, "batches", self.epoch).integers(
            len(self.replay), size=(recipe.updates, recipe.batch)
        )
        self.learner.set_learning_rate(recipe.compute_learning_rate(self.epoch))
        return float(self.learner.descend(self.replay.tuples, batch_indices).mean())


def _make_divergence_error(epoch: int, how: str) -> DivergedError:
    return DivergedError(f"the training diverged in epoch {epoch}: {how}; lower learning_rate")


def train(
    recipe: DAgger,
    network: nn.Module | None = None,
    on_epoch: Callable[[EpochReport], object] | None = None,
) -> nn.Module:
    """Train a network and return it; `equiflock train` does the same and keeps everything in a folder.

    Args:
        recipe: all numbers of the training.
        network: a torch module of your own with `senses`, to go on from its weights; if left out, a fresh one of the
            recipe's controller.
        on_epoch: called with the report of every epoch.

    Raises:
        DivergedError: if the loss or a flight is no longer finite; the text says at which epoch.
    """
    # More threads would only slow down networks this small, and could change torch's bits.
    with use_one_thread():
        trainer = Trainer(recipe, network)
        while trainer.epoch < recipe.epochs:
            report = trainer.run_epoch()
            if on_epoch is not None:
                on_epoch(report)
    if trainer.average is not None:
        trainer.average.copy_into(trainer.network)
    return trainer.network.eval()
