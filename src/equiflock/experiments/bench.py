"""Benchmark of the closed loop: the time of a step by parts, and lower bounds from the machine's peak rates."""

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
from equiflock.runtime.jit import PEAK_LANES, copy_array, multiply_add
from equiflock.runtime.randomness import make_rng
from equiflock.scenarios import random_disk
from equiflock.senses.aggregation import DelayedAggregation
from equiflock.senses.cell_list import make_cell_list, sort_into_cells
from equiflock.senses.graph import compute_connectivity
from equiflock.simulation.flight_builder import flight

BATCHES = ((50, 100), (50, 400))
"""Batches of small flocks, (flocks, agents), measured in addition to single flocks."""
HOPS = 3
MAX_CACHED_AGENTS = 50_000
"""Number of agents, at about 300 bytes each, that stay in the processor's caches from step to step."""


@dataclass(frozen=True)
class Timing:
    """Best times, in nanoseconds per agent and step."""

    flocks: int
    agents: int
    one_thread: float
    all_threads: float
    mean_degree: float


def draw(flocks: int, agents: int) -> Flock:
    """Draw benchmark flocks of any size at the density of 100 agents."""
    return random_disk(flocks, agents, seed=0, radius_rule="constant-density")


def measure_best_time(call: Callable[[], object], repeats: int) -> float:
    """Return the shortest time of a call in seconds, over `repeats` measurements of about 5 ms each.

    A measurement is the mean over as many calls as fill 5 ms, at least one. Two warm-up calls, which may compile, do
    not count.
    """
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


def measure_observations(flocks: int, agents: int, repeats: int = 5, shuffle: bool = False) -> Timing:
    """Time a full observation step (sort, one-hop sums, histories) with K = 3 hops, on one thread and on all.

    Args:
        flocks: B.
        agents: N.
        repeats: number of measurements; the best one counts.
        shuffle: permute the agents at random. As drawn, neighbours in space are also close in memory.
    """
    flock = draw(flocks, agents)
    if shuffle:
        # Neighbours in space are then far apart in memory, as in flocks from other sources.
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
    def bytes_moved(self) -> float:
        """Minimal bytes moved per agent and step."""
        return self.costs["step"].bytes_moved

    @property
    def multiply_adds(self) -> float:
        """Multiply-adds per agent and step."""
        return self.costs["step"].multiply_adds

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

    # The parts are timed separately on the same flock; the full step also contains the overhead between them.
    def sort() -> None:
        for b in range(flocks):
            sort_into_cells(start.positions[b], 1.0, *cell_list)

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
        per_agent(lambda: body.advance(*state, 1e-12, all_flocks)),
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
        # The larger of the two times is the bound.
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
