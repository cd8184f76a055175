"""How long an epoch of training takes, and what this machine could do at best."""

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
"""Multiply-adds that a tanh counts as, on the way forth and back."""


@dataclass(frozen=True)
class EpochTiming:
    """The time of an epoch of the paper's recipe, on one thread."""

    controller: str
    flight: float
    """Milliseconds for the flight of 200 steps of 100 agents."""
    updates: float
    """Milliseconds for the 200 steps of Adam."""
    validation: float
    """Milliseconds for a validation, which is due every 40 epochs."""
    multiply_adds: float
    """What the updates must do at least, in multiply-adds."""

    @property
    def epoch(self) -> float:
        """Milliseconds for an epoch, with its share of a validation."""
        return self.flight + self.updates + self.validation / DAgger().validate_every


def measure_epoch(controller: str, repeats: int = 5) -> EpochTiming:
    """Time the parts of an epoch with a full replay."""
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
    work = agents * multiply_adds_per_agent(chain, recipe.dimensions)
    return EpochTiming(controller, flight, updates, validation, work)


def multiply_adds_per_agent(chain: Chain, D: int) -> float:
    """Multiply-adds for one agent, forth and back.

    Each matrix is used to go forth, for its own gradient and, unless it is the first, for what is passed on.
    """
    components = D if chain.acts_on_vectors else 1
    total = 0.0
    for first, outputs, inputs, bent in _iterate_matrices(chain):
        total += (2 if first else 3) * outputs * inputs * components
        total += 2 * outputs * (TANH_MULTIPLY_ADDS + 2 * components) if bent else 0
    return total


def _iterate_matrices(chain: Chain) -> Iterator[tuple[bool, int, int, bool]]:
    """Outputs and inputs of each matrix, layers with nothing between them being one, and what surrounds it."""
    inputs, first = chain.input_width, True
    for number, (layer, row) in enumerate(zip(chain.layers, chain.table, strict=True)):
        last = number + 1 == len(chain.layers)
        if not row[FOLDS_PREVIOUS] and number > 0:
            inputs, first = layer.weight.shape[1], False
        if last or row[ACTIVATION] != IDENTITY:
            yield first, layer.weight.shape[0], inputs, bool(row[ACTIVATION] != IDENTITY)
