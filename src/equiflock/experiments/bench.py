"""How long a step of the closed loop takes, part by part, and what this machine could do at best."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from equiflock.bodies import DoubleIntegrator
from equiflock.controllers import load
from equiflock.controllers.torch_bridge import as_numpy_function
from equiflock.features import Senses, paper_senses
from equiflock.flock import Flock
from equiflock.runtime import threads
from equiflock.runtime.jit import PEAK_LANES, multiply_add
from equiflock.runtime.randomness import make_rng
from equiflock.scenarios import random_disk
from equiflock.senses.aggregation import DelayedAggregation
from equiflock.senses.cell_list import make_cell_list, sort_into_cells
from equiflock.senses.graph import compute_connectivity
from equiflock.simulation.flight_builder import flight

BATCHES = ((50, 100), (50, 400))
"""Batches of small flocks, (flocks, agents), that are measured beside single flocks."""
HOPS = 3
MAX_CACHED_AGENTS = 50_000
"""The number of agents, of some 300 bytes each, that stay in the processor's caches from step to step."""


@dataclass(frozen=True)
class Timing:
    """Best times, in nanoseconds per agent and step."""

    flocks: int
    agents: int
    one_thread: float
    all_threads: float
    mean_degree: float


def draw(flocks: int, agents: int) -> Flock:
    """The flocks of the benchmarks, of any size at the density of 100 agents."""
    return random_disk(flocks, agents, seed=0, radius_rule="constant-density")


def measure_best_time(call: Callable[[], object], repeats: int) -> float:
    """The least time of a call, in seconds, over several measurements of some milliseconds each."""
    # A first call compiles and warms up; a second one tells how many calls make up 5 ms.
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


def measure_observations(flocks: int, agents: int, repeats: int = 5, shuffle: bool = False) -> Timing:
    """Time a whole step of observations (sort, one-hop sums, histories), with K = 3 hops and mean aggregation.

    Args:
        flocks: B.
        agents: N.
        repeats: the number of measurements, of which the best is taken.
        shuffle: number the agents at random; drawn as they are, those who hear each other are near in memory.
    """
    flock = draw(flocks, agents)
    if shuffle:
        # Neighbours in space are far apart in memory, as in a flock of foreign origin.
        order = make_rng(0, "shuffle").permutation(agents)
        flock = Flock(flock.positions[:, order], flock.velocities[:, order])
    sensing = DelayedAggregation(paper_senses("mean", HOPS), comm_radius=1.0)
    scale = 1e9 / (flocks * agents)
    with threads.use(1):
        one = measure_best_time(lambda: sensing.observe(flock), repeats) * scale
    several = measure_best_time(lambda: sensing.observe(flock), repeats) * scale
    return Timing(flocks, agents, one, several, float(compute_connectivity(flock, 1.0).degrees.mean()))


@dataclass(frozen=True)
class Cost:
    """What must be done at least, per agent and step."""

    bytes_moved: float
    """Bytes that go to memory and back."""
    multiply_adds: float
    """Multiply-adds; any other operation on a number counts as one."""


@dataclass(frozen=True)
class LoopTiming:
    """The time of a step and of its parts, in nanoseconds per agent and step."""

    flocks: int
    agents: int
    threads: int
    sort: float
    observations: float
    policy: float
    integration: float
    step: float
    """The whole step, as `flight` makes it; what it takes besides its parts is between them."""
    costs: dict[str, Cost]
    """What each part, and the step, must do at least."""

    @property
    def bytes_moved(self) -> float:
        """The least number of bytes that must go to memory and back, per agent and step."""
        return self.costs["step"].bytes_moved

    @property
    def multiply_adds(self) -> float:
        """The number of multiply-adds, per agent and step."""
        return self.costs["step"].multiply_adds

    @property
    def speed(self) -> float:
        """Agent-steps per second."""
        return 1e9 / self.step


def measure_loop(flocks: int, agents: int, repeats: int = 5) -> LoopTiming:
    """Time a step with ETDAGNN in the loop, and its parts by themselves."""
    start = draw(flocks, agents)
    controller = load("etdagnn")
    think = as_numpy_function(controller)
    sensing = DelayedAggregation(controller.senses, comm_radius=1.0)
    known = sensing.observe(start)
    state = start.positions.copy(), start.velocities.copy(), start.roles.copy(), np.zeros(start.shape)
    everyone, body = np.arange(flocks), DoubleIntegrator()
    memory = make_cell_list(agents)

    # The parts are measured by themselves, on the same flock; the whole step has besides what lies between them.
    def sort() -> None:
        for b in range(flocks):
            sort_into_cells(start.positions[b], 1.0, *memory)

    def per_agent(call: Callable[[], object]) -> float:
        return measure_best_time(call, repeats) * 1e9 / (flocks * agents)

    loop = flight(start, controller, time_step=1e-4)  # agents hardly move, so every step is like the first
    # Flocks are sorted on several threads in the loop, a single flock on one.
    sorting = per_agent(sort) / (min(threads.count(), flocks) if flocks > 1 else 1)
    hearing = per_agent(lambda: sensing.observe(start))
    parts = (
        sorting,
        max(hearing - sorting, 0.0),
        per_agent(lambda: think(known)),
        per_agent(lambda: body.advance(*state, 1e-12, everyone)),
    )
    step = per_agent(lambda: next(loop))
    # A fused step makes all parts in one call, in less time than they take by themselves: each gets its share of it.
    sort_time, observing, deciding, moving = (part * min(1.0, step / sum(parts)) for part in parts)
    degree = float(compute_connectivity(start, 1.0).degrees.mean())
    costs = compute_step_costs(controller.senses, degree)
    return LoopTiming(flocks, agents, threads.count(), sort_time, observing, deciding, moving, step, costs)


def compute_step_costs(senses: Senses, degree: float, D: int = 2) -> dict[str, Cost]:
    """What the parts of a step under ETDAGNN must do at least, and the step as a whole.

    The state and the acceleration (float64) are read and written; the old observations (float32) are read and the new
    ones written. Whoever is in the nine cells around, 9 / pi times the degree, is a candidate (its distance: 2 D); each
    agent heard costs a quotient, five products and sums of K C D numbers; then the network, with 12 multiply-adds for
    each logarithm and tanh.
    """
    state, action, knowledge = 2 * 8 * D, 8 * D, 4 * senses.hops * senses.width * D
    vectors, channels = senses.width * senses.hops, 16
    heard = 9 / np.pi * degree * 2 * D + degree * (6 + vectors * D)
    network = vectors * channels * D + channels * D + (vectors + channels) * (D + 12)
    parts = {
        # Positions are read, and an agent's cell and place are written (8 bytes each).
        "sort": Cost(8 * D + 16, 2 * D),
        "observations": Cost(state + 2 * knowledge, heard),
        "policy": Cost(knowledge + action, network),
        "integration": Cost(2 * state + action, 3 * D),
    }
    # What one part writes and the next one reads need not go to memory in between.
    return {**parts, "step": Cost(2 * (state + action + knowledge), heard + network)}


@dataclass(frozen=True)
class MachineLimits:
    """What this machine can do at best, on all threads."""

    copy_bandwidth: float
    """Bytes read and written per second."""
    multiply_add_peak: float
    """float32 multiply-adds per second."""

    def least(self, timing: LoopTiming, part: str = "step") -> tuple[float, str]:
        """The nanoseconds per agent and step that cannot be undercut, and what binds: memory or arithmetic.

        Flocks that stay in the processor's caches from step to step are not bound by memory.
        """
        # Both take at least so long; the larger of the two binds.
        cost = timing.costs[part]
        memory = cost.bytes_moved / self.copy_bandwidth * 1e9
        arithmetic = cost.multiply_adds / self.multiply_add_peak * 1e9
        if timing.flocks * timing.agents < MAX_CACHED_AGENTS or arithmetic > memory:
            return arithmetic, "compute"
        return memory, "memory"


def measure_limits(repeats: int = 5) -> MachineLimits:
    """Copy arrays far larger than any cache, and multiply and add in registers."""
    count = threads.count()
    # Each thread copies 32 MB, far more than a cache holds; bytes are read once and written once.
    size = 4_000_000
    pairs = [(np.ones(size), np.zeros(size)) for _ in range(count)]
    copying = measure_best_time(lambda: threads.run_parallel(copy_array, pairs), repeats)
    # Each thread multiplies and adds in registers, with enough independent sums to fill the pipeline.
    rounds = 200_000
    lanes = [(np.full(PEAK_LANES, 0.5, np.float32), rounds) for _ in range(count)]
    adding = measure_best_time(lambda: threads.run_parallel(multiply_add, lanes), repeats)
    return MachineLimits(2 * 8 * size * count / copying, PEAK_LANES * rounds * count / adding)
