"""Benchmark of a training epoch: times of its parts, and the minimal arithmetic of its updates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from equiflock.controllers.networks.chain import ACTIVATION, FOLDS_PREVIOUS, IDENTITY, Chain
from equiflock.controllers.networks.models import find_trainable_chain
from equiflock.experiments.bench import measure_best_time
from equiflock.learning.dagger import Trainer
from equiflock.learning.recipe import DAgger
from equiflock.runtime.threads import use_one_thread

TANH_MULTIPLY_ADDS = 12
"""Multiply-adds that a tanh counts as, in the forward and in the backward pass."""


@dataclass(frozen=True)
class EpochTiming:
    """Times of an epoch of the paper's recipe, on one thread."""

    controller: str
    flight: float
    """Milliseconds of the flight, 200 steps of 100 agents."""
    updates: float
    """Milliseconds of the 200 Adam steps."""
    validation: float
    """Milliseconds of a validation, which runs every 40 epochs."""
    multiply_adds: float
    """Minimal multiply-adds of the updates."""

    @property
    def epoch(self) -> float:
        """Milliseconds of an epoch, including its share of a validation."""
        return self.flight + self.updates + self.validation / DAgger().validate_every


def measure_epoch(controller: str, repeats: int = 5) -> EpochTiming:
    """Time the parts of an epoch with a full replay buffer, on one thread; the best of `repeats` measurements counts.

    The network must have a compiled form.
    """
    with use_one_thread():
        recipe = DAgger(controller=controller, flocks=10)
        trainer = Trainer(recipe)
        while len(trainer.replay) < recipe.capacity:
            trainer.collect()
        flight, updates, validation = (
            1e3 * measure_best_time(part, repeats) for part in (trainer.collect, trainer.update, trainer.run_validation)
        )
    chain = find_trainable_chain(trainer.network)
    assert chain is not None
    agents = recipe.updates * recipe.batch * recipe.min_agents
    work = agents * count_multiply_adds(chain, recipe.dimensions)
    return EpochTiming(controller, flight, updates, validation, work)


def count_multiply_adds(chain: Chain, D: int) -> float:
    """Return the minimal multiply-adds of the forward and backward pass for one agent in D dimensions.

    Each matrix takes part in the forward pass, in its own gradient and, unless it is the first, in the gradient of
    its input.
    """
    components = D if chain.acts_on_vectors else 1
    total = 0.0
    for first, outputs, inputs, nonlinear in _iterate_matrices(chain):
        total += (2 if first else 3) * outputs * inputs * components
        total += 2 * outputs * (TANH_MULTIPLY_ADDS + 2 * components) if nonlinear else 0
    return total


def _iterate_matrices(chain: Chain) -> Iterator[tuple[bool, int, int, bool]]:
    """Yield (is first, outputs, inputs, has activation) of each matrix; consecutive linear layers count as one."""
    inputs, first = chain.input_width, True
    for number, (layer, row) in enumerate(zip(chain.layers, chain.table, strict=True)):
        last = number + 1 == len(chain.layers)
        if not row[FOLDS_PREVIOUS] and number > 0:
            inputs, first = layer.weight.shape[1], False
        if last or row[ACTIVATION] != IDENTITY:
            yield first, layer.weight.shape[0], inputs, bool(row[ACTIVATION] != IDENTITY)
