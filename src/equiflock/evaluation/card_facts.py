"""What a report card says of a controller without judging its flights: weights, messages, symmetry."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from equiflock._runtime.checks import InputError, shorten_repr
from equiflock._runtime.randomness import make_rng
from equiflock._runtime.threads import use_one_thread
from equiflock.controllers import load, load_module
from equiflock.controllers.networks.chain import build_chain
from equiflock.controllers.networks.compiled import CompiledNetwork
from equiflock.controllers.torch_bridge import as_numpy_function
from equiflock.evaluation.benchmark import count_multiply_adds
from equiflock.evaluation.card import ControllerFacts, Role, round_number
from equiflock.evaluation.card_jobs import describe_error
from equiflock.evaluation.job_weights import compute_weights_checksum
from equiflock.features import Channel, Senses
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.scenarios.random_disk import RandomDisk
from equiflock.simulation.flight_builder import flight

BYTES_PER_NUMBER = 4
"""Numbers of messages are float32."""
DIMENSIONS = 2
TIME_STEP = 0.01
BOUND_FLOCKS, BOUND_AGENTS, BOUND_STEPS = 10, 100, 200
"""Flights of the expert in which the sizes of observations and targets are measured: the paper's, but fewer."""
PAPER_TUPLES = 30_150
"""Training tuples of the paper's bound."""
STEPS = 20
"""Steps after which observations are rotated: all hops have values by then."""
ROTATIONS = 8


def collect_facts(name: str, role: Role, label: str) -> ControllerFacts:
    """Return the facts of a controller; if it cannot be loaded, only its name and the error."""
    try:
        controller = load(name)
        senses = controller.senses
        if not isinstance(senses, Senses):
            raise InputError(f"{name} must declare senses; got {shorten_repr(senses)}")
    # A user's controller may raise anything; the card's other controllers do not depend on it.
    except Exception as error:
        return ControllerFacts(name, label, role, error=describe_error(error))
    facts = ControllerFacts(
        name,
        label,
        role,
        checksum=compute_weights_checksum(name),
        weights=_count_weights(controller),
        multiply_adds=_count_operations(controller),
    )
    if getattr(controller, "privileged", False):
        return facts
    size = compute_message_bytes(senses)
    with use_one_thread():
        return replace(
            facts,
            message_bytes=size,
            bytes_per_second=size / TIME_STEP,
            equivariance_error=_measure_or_none(measure_equivariance_error, controller),
            bound=_measure_or_none(compute_bound, name),
        )


def _measure_or_none(measure: Callable[[Any], float | None], subject: Any) -> float | None:
    """Return a measured number, rounded; None if the controller fails, which its rows say, too."""
    try:
        value = measure(subject)
    except (MemoryError, OSError):
        raise
    except Exception:
        return None
    return None if value is None else round_number(value)


def compute_message_bytes(senses: Senses) -> int:
    """Return the bytes of the numbers that an agent sends per step: position, velocity and its hops 1 .. K - 1."""
    relayed = (senses.hops - 1) * senses.width
    return BYTES_PER_NUMBER * DIMENSIONS * (2 + relayed)


def measure_equivariance_error(controller: Any) -> float:
    """Return max |f(Q z) - Q f(z)| / max |f(z)| over random rotations and reflections Q of observations z in flight."""
    start = RandomDisk(4, 30, split="equivariance").draw()
    moment = next(islice(flight(start, controller, time_step=TIME_STEP), STEPS, None))
    evaluate = as_numpy_function(controller)
    observations = np.array(moment.observations)
    expected = np.array(evaluate(observations), np.float64)
    rng, largest = make_rng(0, "equivariance"), 0.0
    for _ in range(ROTATIONS):
        orthogonal, _ = np.linalg.qr(rng.normal(size=(DIMENSIONS, DIMENSIONS)))
        rotated = np.ascontiguousarray(observations @ orthogonal.T, dtype=observations.dtype)
        difference = np.asarray(evaluate(rotated), np.float64) - expected @ orthogonal.T
        if not np.isfinite(difference).all():
            return math.inf
        largest = max(largest, float(np.linalg.norm(difference, axis=-1).max()))
    size = float(np.linalg.norm(expected, axis=-1).max())
    return largest / size if size > 0.0 else 0.0


@dataclass(frozen=True)
class ExpertFlights:
    """What the bound depends on, measured in flights of the paper's expert."""

    senses: Senses
    samples: int = PAPER_TUPLES

    @property
    def hops(self) -> int:
        """K, the number of hops of the observations."""
        return self.senses.hops

    @property
    def largest_target(self) -> float:
        """Largest norm of the expert's acceleration."""
        return self._extremes[0]

    def largest_input(self, channels: tuple[Channel, ...]) -> float:
        """Return the largest |Z_i|_F of any agent, for observations with these channels."""
        assert channels == self.senses.channels
        return self._extremes[1]

    @cached_property
    def _extremes(self) -> tuple[float, float]:
        """Largest norms of an acceleration and of an agent's observations, over the flights."""
        start, sensing = RandomDisk(BOUND_FLOCKS, BOUND_AGENTS, split="bound").draw(), DelayedAggregation(self.senses)
        target = size = 0.0
        for moment in islice(flight(start, load("tanner"), time_step=TIME_STEP), BOUND_STEPS + 1):
            observations = np.asarray(sensing.observe(moment.flock), np.float64)
            target = max(target, float(np.linalg.norm(moment.accelerations, axis=-1).max()))
            size = max(size, float(np.sqrt(np.square(observations).sum(axis=(2, 3, 4))).max()))
        return target, size


def compute_bound(name: str) -> float | None:
    """Return the bound on the generalization gap of a network of the paper's family; None if it does not apply.

    It needs torch, and is None without it.
    """
    try:
        from equiflock.theory.bound import generalization_bound

        module: Any = load_module(name)
        return float(generalization_bound(module, ExpertFlights(module.senses)).value)
    except (InputError, ImportError):
        return None


def _count_operations(controller: Any) -> float | None:
    """Return the multiply-adds of a compiled network per agent and step; None for other controllers."""
    if not isinstance(controller, CompiledNetwork):
        return None
    return count_multiply_adds(build_chain(controller.architecture, controller.tensors), DIMENSIONS, backward=False)


def _count_weights(controller: Any) -> int | None:
    """Return the number of a network's weights; None for other controllers."""
    if hasattr(controller, "parameters"):
        return sum(int(np.prod(tensor.shape)) for tensor in controller.parameters())
    size = getattr(controller, "size", None)
    return size if isinstance(size, int) else None
