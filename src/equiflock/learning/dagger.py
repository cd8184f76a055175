"""DAgger, by default with exactly the paper's settings (section 5, "Training").

Each epoch flies one flock of the training set under a mixture of expert and student, adds each agent's observations and
the expert's accelerations to the replay, and then takes `updates` Adam steps on batches of it, which lower the loss of
`equiflock.learning.loss`. All random numbers of an epoch come from streams named by the seed and the epoch, so no
generator state has to be saved.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor, nn

from equiflock._runtime.checks import InputError, NumericRangeError
from equiflock._runtime.randomness import make_rng
from equiflock.controllers import load
from equiflock.controllers.loading import make_network, select_network_options
from equiflock.flock import FOLLOWER
from equiflock.learning.learner import WeightAverage, copy_state_dict, make_learner
from equiflock.learning.mixture import Mixture
from equiflock.learning.recipe import DAgger
from equiflock.learning.replay import ReplayBuffer, Rollout, RolloutHistory, check_memory
from equiflock.learning.validation import EpochReport, Validation, Validator
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.protocols import Controller, LocalController
from equiflock.simulation.environment import Environment
from equiflock.simulation.flight_builder import check_controller, flight
from equiflock.simulation.simulate import count_steps


class DivergedError(InputError):
    """The weights, the loss or a flight of the network are no longer finite."""


def prepare_network(recipe: DAgger, network: nn.Module | None = None) -> nn.Module:
    """Return the network to train; by default a new one, initialized from the recipe's seed.

    Raise InputError if the network or the expert does not fit the recipe, or if the replay needs more memory than the
    machine has.
    """
    if not isinstance(recipe, DAgger):
        raise InputError(f"recipe must be an equiflock.DAgger; got {recipe!r:.80}")
    if network is None:
        options = select_network_options(recipe.controller, hops=recipe.hops, dimensions=recipe.dimensions)
        # Report insufficient memory before allocating any.
        tuples = recipe.capacity + recipe.batch
        check_memory(tuples, recipe.min_agents, options.get("hops", 1), recipe.dimensions)
        network = make_network(recipe.controller, recipe.seed, **options)
    if not isinstance(network, nn.Module) or not list(network.parameters()):
        expected = "a torch module with weights to train, such as equiflock.load_module returns"
        raise InputError(f"network must be {expected}; got {network!r:.80}")
    check_controller(cast(Controller, network))
    _check_output_shape(network, recipe)
    check_controller(load(recipe.expert))
    return network


def _check_output_shape(network: nn.Module, recipe: DAgger) -> None:
    """Call the network once, on zeros and in eval mode; raise InputError if it fails or returns a wrong shape."""
    senses = cast(LocalController, network).senses
    expected_shape = 1, recipe.min_agents, recipe.dimensions
    shape = *expected_shape[:2], senses.hops, senses.width, recipe.dimensions
    was_training = network.training
    try:
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            output = network.eval()(torch.zeros(shape))
    except (RuntimeError, TypeError, IndexError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"the network does not take observations (B, N, K, C, D) = {shape}: {reason}") from None
    finally:
        network.train(was_training)
    if not isinstance(output, Tensor) or output.shape != expected_shape:
        received = tuple(output.shape) if isinstance(output, Tensor) else output
        raise InputError(f"the network must return accelerations (B, N, D) = {expected_shape}; got {received!r:.80}")


class Trainer:
    """State of a training; `run_epoch` trains for one epoch.

    `network` is the torch module to train, with `senses`; default: a new network of the recipe's controller.
    """

    def __init__(self, recipe: DAgger, network: nn.Module | None = None) -> None:
        self.recipe = recipe
        self.network = prepare_network(recipe, network)
        self.student = cast(LocalController, self.network)
        self.expert = load(recipe.expert)
        self.starts = [scenario.draw(recipe.flocks, recipe.seed, "train") for scenario in recipe.training_scenarios]
        """Initial conditions, one list per scenario."""
        # All tuples of the replay have the same number of agents, and only followers learn.
        agents = min(start.followers for starts in self.starts for start in starts)
        if agents < 1:
            raise InputError(f"every flock of {recipe.scenario!r} must have at least one follower to learn from")
        self.learner = make_learner(self.network, recipe.learning_rate)
        D, senses = self.starts[0][0].flock.shape[2], self.student.senses
        check_memory(recipe.capacity + recipe.batch, agents, senses.hops, D, senses.width)
        self.replay = ReplayBuffer(recipe.capacity, agents, D, self.learner)
        self.rollouts = RolloutHistory(recipe.capacity)
        self.average = WeightAverage(self.network, recipe.average) if recipe.average > 0.0 else None
        self.epoch = 0
        self._environment_ranges = recipe.environment_ranges
        self.validator = Validator(recipe)

    def run_epoch(self) -> EpochReport:
        """Run one rollout, take the epoch's Adam steps, update the averaged weights, and validate them if due.

        Raise DivergedError, which names the epoch, if the loss or a flight is no longer finite.
        """
        expert_share = self.recipe.compute_expert_share(self.epoch)
        with seed_torch(self.recipe.seed, self.epoch):
            with self._report_divergence(self.epoch + 1):
                self.run_rollout()
            self.network.train()
            loss = self.update()
            self.network.eval()
        self.epoch += 1
        # The last update may make the weights infinite although the loss before it was finite.
        if not all(weight.isfinite().all() for weight in self.network.parameters()):
            loss = math.nan
        if not math.isfinite(loss):
            raise _make_divergence_error(self.epoch, f"the loss became {loss:g}")
        if self.average is not None:
            self.average.add(self.network, self.epoch)
        validation = self.run_validation() if self.recipe.is_validation_due(self.epoch) else None
        return EpochReport(self.epoch, loss, expert_share, validation)

    def run_validation(self) -> Validation:
        """Validate the network with its averaged weights, or its current ones if there is no average."""
        with self._report_divergence(self.epoch), self.use_averaged_weights():
            return self.validator(cast(Controller, self.network))

    def use_averaged_weights(self) -> AbstractContextManager[None]:
        """Return a context manager that temporarily loads the averaged weights, if any."""
        return nullcontext() if self.average is None else self.average.swap_into(self.network)

    @contextmanager
    def _report_divergence(self, epoch: int) -> Iterator[None]:
        """Inside the block, convert NumericRangeError of a flight to DivergedError, whose message names `epoch`."""
        try:
            yield
        except NumericRangeError as error:
            # Before the first update, the training cannot be the cause.
            if self.epoch == 0:
                raise
            raise _make_divergence_error(epoch, str(error)) from None

    def run_rollout(self) -> None:
        """Add the tuples of the epoch's flight to the replay, and the flight to `rollouts`; sets eval mode."""
        network, tuples_before = copy_state_dict(self.network), self.replay.total_added
        self.network.eval()
        checksum = self.collect()
        self.rollouts.add(
            Rollout(self.epoch, tuples_before, self.replay.total_added - tuples_before, checksum, network)
        )

    @property
    def environment(self) -> Environment:
        """Radio and body of the epoch's rollout; they depend only on the recipe and the epoch."""
        return self._environment_ranges.draw(self.recipe.seed, self.epoch)

    @property
    def scenario_index(self) -> int:
        """Index of the epoch's scenario, drawn according to the shares."""
        shares = [scenario.share for scenario in self.recipe.training_scenarios]
        if len(shares) == 1:
            return 0
        return int(make_rng(self.recipe.seed, "scenario", self.epoch).choice(len(shares), p=shares))

    def collect(self) -> int:
        """Fly one flock of the training set under the mixture, and add a tuple per step to the replay.

        A tuple holds the student's observations and the expert's accelerations of followers, divided by the student's
        gain at the time step of the flight. The flight is shorter than the recipe's if its ending comes earlier. Return
        the CRC-32 of the added tuples, 0 if there are none.
        """
        recipe = self.recipe
        rng = make_rng(recipe.seed, "collect", self.epoch)
        # One flock of the scenario's training set, drawn with replacement.
        starts = self.starts[self.scenario_index]
        scenario, start = starts[int(rng.integers(len(starts)))]
        rules: dict[str, Any] = {"orbit": scenario.orbit, "obstacles": scenario.obstacles}
        # The expert may need other observations than the student.
        sensing = DelayedAggregation(self.expert.senses, **rules)
        time_step = recipe.draw_time_step(self.epoch)
        expert_share = recipe.compute_expert_share(self.epoch)
        environment = self.environment
        mixture = Mixture(
            self.expert,
            self.student,
            expert_share,
            rng,
            time_step,
            sensing,
            recipe.gain_margin,
            environment.radio.latency,
        )
        # The student's messages pass the radio drawn for the epoch; the privileged expert has an ideal radio.
        rules |= {"environment": environment, "ending": scenario.ending()}
        loop = flight(start, mixture, time_step=time_step, **rules)
        # Leaders and obstacle agents have no observations and no controller, so they provide no training data.
        followers = start.roles[0] == FOLLOWER if start.roles.any() else slice(None)
        observations, targets = [], []
        for moment in islice(loop, count_steps(recipe.duration, time_step)):
            if not moment.flying[0]:
                break
            # Z of the student and the expert's accelerations, regardless of which of them acted in this step.
            assert mixture.target is not None
            observations.append(moment.observations[0, followers].copy())
            targets.append((mixture.target[0, followers] / mixture.student_gain).astype(np.float32))
        if not observations:
            return 0
        tuples = self.sample_agents(np.stack(observations), np.stack(targets))
        self.replay.add(*tuples)
        # CRC-32 is fast, and enough to compare a rollout with its repetition.
        return zlib.crc32(np.ascontiguousarray(tuples[1]).data, zlib.crc32(np.ascontiguousarray(tuples[0]).data))

    def sample_agents(
        self, observations: Float32[np.ndarray, "T N K C D"], targets: Float32[np.ndarray, "T N D"]
    ) -> tuple[Float32[np.ndarray, "T A K C D"], Float32[np.ndarray, "T A D"]]:
        """Return A random agents of each step; A is the number of agents in a tuple of the replay."""
        (T, N), A = targets.shape[:2], self.replay.agents
        if N == A:
            return observations, targets
        rng = make_rng(self.recipe.seed, "followers", self.epoch)
        agents = np.stack([rng.choice(N, A, replace=False) for _ in range(T)])
        steps = np.arange(T)[:, None]
        return observations[steps, agents], targets[steps, agents]

    def update(self) -> float:
        """Take the epoch's Adam steps on batches drawn with replacement from the replay, and return their mean loss."""
        recipe = self.recipe
        if len(self.replay) == 0:
            raise InputError(f"every flight of {recipe.scenario!r} ended before its first step: no training data")
        batch_indices = make_rng(recipe.seed, "batches", self.epoch).integers(
            len(self.replay), size=(recipe.updates, recipe.batch)
        )
        self.learner.set_learning_rate(recipe.compute_learning_rate(self.epoch))
        return float(self.learner.descend(self.replay.tuples, batch_indices).mean())


@contextmanager
def seed_torch(seed: int, epoch: int) -> Iterator[None]:
    """Inside the block, seed torch from seed and epoch, for modules that draw random numbers, such as dropout."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(make_rng(seed, "torch", epoch).integers(2**63)))
        yield


def _make_divergence_error(epoch: int, reason: str) -> DivergedError:
    """Return the error of a training that diverged in an epoch, counted from 1."""
    return DivergedError(f"the training diverged in epoch {epoch}: {reason}; lower learning_rate")
