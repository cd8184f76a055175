"""Benchmarks of the closed loop and of training: times by parts, and lower bounds from the machine's peak rates."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from equiflock._runtime import threads
from equiflock._runtime.jit import PEAK_LANES, copy_array, multiply_add
from equiflock._runtime.threads import use_one_thread
from equiflock.bodies import DoubleIntegrator
from equiflock.controllers import load
from equiflock.controllers.networks.chain import ACTIVATION, FOLDS_PREVIOUS, IDENTITY, Chain
from equiflock.controllers.torch_bridge import as_numpy_function
from equiflock.features import Senses
from equiflock.flock import Flock
from equiflock.graph.cell_list import make_cell_list, sort_into_cells
from equiflock.graph.radius_graph import compute_connectivity
from equiflock.learning.recipe import DAgger
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.plotting.figures import write_png
from equiflock.plotting.style import GRID_COLOUR, TEXT_COLOUR
from equiflock.protocols import BodyStep
from equiflock.scenarios import random_disk
from equiflock.simulation.flight_builder import flight

BATCHES = ((50, 100), (50, 400))
"""Batches of small flocks, (flocks, agents), measured in addition to single flocks."""
MAX_CACHED_AGENTS = 50_000
"""Number of agents, at about 300 bytes each, that stay in the processor's caches from step to step."""
TANH_MULTIPLY_ADDS = 12
"""Multiply-adds that a tanh counts as, in the forward and in the backward pass."""
PART_COLOURS = {"sort": "#999999", "observations": "#0072b2", "policy": "#e69f00", "integration": "#009e73"}
REST_COLOUR = "#dddddd"


def draw(flocks: int, agents: int) -> Flock:
    """Draw benchmark flocks of any size at the density of 100 agents."""
    return random_disk(flocks, agents, seed=0, radius_rule="constant-density")


def measure_best_time(call: Callable[[], object], repeats: int) -> float:
    """Return the shortest mean time of a call in seconds, over `repeats` measurements of 5 ms, or one call, each."""
    # The first call compiles and warms up; the second determines how many calls fill 5 ms.
    call()
    start = time.perf_counter()
    call()
    inner = max(1, int(0.005 / max(time.perf_counter() - start, 1e-9)))
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(inner):
            call()
        best = min(best, (time.perf_counter() - start) / inner)
    return best


@dataclass(frozen=True)
class Cost:
    """Minimal work per agent and step."""

    bytes_moved: float
    """Bytes read from and written to memory."""
    multiply_adds: float
    """Multiply-adds; any other floating-point operation counts as one."""


@dataclass(frozen=True)
class LoopTiming:
    """Times of a step and of its parts, in nanoseconds per agent and step."""

    flocks: int
    agents: int
    threads: int
    sort: float
    observations: float
    policy: float
    integration: float
    step: float
    """The full step as `flight` runs it, including the overhead between the parts."""
    costs: dict[str, Cost]
    """Minimal work of each part, and of the step."""

    @property
    def speed(self) -> float:
        """Agent-steps per second."""
        return 1e9 / self.step


def measure_loop(flocks: int, agents: int, repeats: int = 5) -> LoopTiming:
    """Time a step with ETDAGNN in the loop, and each of its parts separately, on all threads.

    If the parts take longer than the full step, which may be fused, they are scaled down to its time.
    """
    start = draw(flocks, agents)
    controller = load("etdagnn")
    policy = as_numpy_function(controller)
    sensing = DelayedAggregation(controller.senses, comm_radius=1.0)
    observations = sensing.observe(start)
    state = start.positions.copy(), start.velocities.copy(), start.roles.copy(), np.zeros(start.shape)
    all_flocks, body = np.arange(flocks), DoubleIntegrator()
    cell_list = make_cell_list(agents)

    def sort() -> None:
        for b in range(flocks):
            sort_into_cells(start.positions[b], 1.0, cell_list)

    def per_agent(call: Callable[[], object]) -> float:
        return measure_best_time(call, repeats) * 1e9 / (flocks * agents)

    loop = flight(start, controller, time_step=1e-4)  # agents hardly move, so all steps cost the same
    # The loop sorts several flocks on several threads, a single flock on one.
    sorting = per_agent(sort) / (min(threads.count(), flocks) if flocks > 1 else 1)
    observe_time = per_agent(lambda: sensing.observe(start))
    parts = (
        sorting,
        max(observe_time - sorting, 0.0),
        per_agent(lambda: policy(observations)),
        per_agent(lambda: body.advance(BodyStep(*state, 1e-12, all_flocks))),
    )
    step = per_agent(lambda: next(loop))
    # A fused step runs all parts in one call and is faster than their sum: scale the parts to the step's time.
    sort_time, observing, deciding, moving = (part * min(1.0, step / sum(parts)) for part in parts)
    degree = float(compute_connectivity(start, 1.0).degrees.mean())
    costs = compute_step_costs(controller.senses, degree)
    return LoopTiming(flocks, agents, threads.count(), sort_time, observing, deciding, moving, step, costs)


def compute_step_costs(senses: Senses, degree: float, D: int = 2) -> dict[str, Cost]:
    """Return the minimal work of each part of a step under ETDAGNN, and of the step as a whole.

    State and acceleration (float64) are read and written; old observations (float32) are read and new ones written.
    The agents in the nine surrounding cells, 9 / pi times the degree, are candidates (2 D operations for each
    distance); each neighbour costs a quotient, five products and the sums of K C D numbers. The network follows, with
    12 multiply-adds for each logarithm and tanh.
    """
    state, action, observations = 2 * 8 * D, 8 * D, 4 * senses.hops * senses.width * D
    vectors, channels = senses.width * senses.hops, 16
    neighbours = 9 / np.pi * degree * 2 * D + degree * (6 + vectors * D)
    network = vectors * channels * D + channels * D + (vectors + channels) * (D + 12)
    parts = {
        # Reads positions; writes each agent's cell and slot (8 bytes each).
        "sort": Cost(8 * D + 16, 2 * D),
        "observations": Cost(state + 2 * observations, neighbours),
        "policy": Cost(observations + action, network),
        "integration": Cost(2 * state + action, 3 * D),
    }
    # Data that one part writes and the next one reads need not go through memory.
    return {**parts, "step": Cost(2 * (state + action + observations), neighbours + network)}


@dataclass(frozen=True)
class MachineLimits:
    """Peak rates of this machine on all threads."""

    copy_bandwidth: float
    """Bytes read and written per second."""
    multiply_add_peak: float
    """float32 multiply-adds per second."""

    def compute_lower_bound(self, timing: LoopTiming, part: str = "step") -> tuple[float, str]:
        """Return a lower bound in nanoseconds per agent and step, and what sets it: "memory" or "compute".

        `part` is a key of `timing.costs`, such as "sort". Below `MAX_CACHED_AGENTS` agents, only compute counts.
        """
        cost = timing.costs[part]
        memory = cost.bytes_moved / self.copy_bandwidth * 1e9
        arithmetic = cost.multiply_adds / self.multiply_add_peak * 1e9
        if timing.flocks * timing.agents < MAX_CACHED_AGENTS or arithmetic > memory:
            return arithmetic, "compute"
        return memory, "memory"


def measure_limits(repeats: int = 5) -> MachineLimits:
    """Measure peak rates on all threads: copy arrays far larger than any cache, and multiply and add in registers."""
    count = threads.count()
    # Each thread copies 32 MB, far more than a cache holds, and reads and writes each byte once.
    size = 4_000_000
    pairs = [(np.ones(size), np.zeros(size)) for _ in range(count)]
    copying = measure_best_time(lambda: threads.run_parallel(copy_array, pairs), repeats)
    # Each thread multiplies and adds in registers, with enough independent sums to fill the pipeline.
    rounds = 200_000
    lanes = [(np.full(PEAK_LANES, 0.5, np.float32), rounds) for _ in range(count)]
    adding = measure_best_time(lambda: threads.run_parallel(multiply_add, lanes), repeats)
    return MachineLimits(2 * 8 * size * count / copying, PEAK_LANES * rounds * count / adding)


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
    # Imports torch, which the other measurements do without.
    from equiflock.controllers.networks.models import find_trainable_chain
    from equiflock.learning.dagger import Trainer

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


def count_multiply_adds(chain: Chain, D: int, backward: bool = True) -> float:
    """Return the minimal multiply-adds of the forward pass, and the backward one, for one agent in D dimensions.

    Each matrix takes part in the forward pass, in its own gradient and, unless it is the first, in the gradient of
    its input.
    """
    components = D if chain.acts_on_vectors else 1
    total = 0.0
    for first, outputs, inputs, nonlinear in _iterate_matrices(chain):
        total += (1 + backward * (1 if first else 2)) * outputs * inputs * components
        total += (1 + backward) * outputs * (TANH_MULTIPLY_ADDS + 2 * components) if nonlinear else 0
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


def draw_bench(timings: Sequence[LoopTiming], bounds: Sequence[float], path: str | os.PathLike[str]) -> Path:
    """Draw the step time of every flock size as a stacked bar of its parts, in ns per agent, and write a PNG file.

    A mark on each bar is the machine's lower bound of a step.
    """
    figure = Figure(figsize=(8.5, 4.2), dpi=130, layout="constrained")
    axes = figure.subplots()
    # Stack the measured parts.
    places = np.arange(len(timings))
    below = np.zeros(len(timings))
    for part, colour in PART_COLOURS.items():
        heights = np.array([getattr(timing, part) for timing in timings])
        axes.bar(places, heights, 0.62, bottom=below, color=colour, label=part)
        below += heights
    # The step time beyond the parts; timings are noisy, so the difference may be negative.
    rest = np.maximum([timing.step for timing in timings] - below, 0.0)
    axes.bar(places, rest, 0.62, bottom=below, color=REST_COLOUR, label="rest")
    for place, timing in zip(places, timings, strict=True):
        axes.annotate(f"{timing.step:.0f}", (place, timing.step), (0, 3), textcoords="offset points", ha="center")
    style: dict[str, Any] = {"color": TEXT_COLOUR, "linewidth": 1.6, "label": "lower bound of this machine"}
    axes.hlines(bounds, places - 0.36, places + 0.36, **style)
    axes.set_ylim(0.0, 1.1 * max(timing.step for timing in timings))
    axes.set_xticks(places, [f"{timing.flocks} x {timing.agents:,}" for timing in timings])
    axes.set(xlabel="flocks x agents", ylabel=f"ns per agent and step, {timings[0].threads} threads")
    axes.grid(axis="y", color=GRID_COLOUR)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=6, frameon=False, columnspacing=1.2)
    return write_png(figure, path)
