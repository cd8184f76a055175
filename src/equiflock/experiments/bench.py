"""How long it takes to compute what agents know."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from equiflock import threads
from equiflock.graph import survey
from equiflock.initial import random_disk
from equiflock.messages import DelayedAggregation
from equiflock.randomness import stream
from equiflock.types import Flock

BATCHES = ((50, 100), (50, 400))
HOPS = 3


@dataclass(frozen=True)
class Timing:
    """Best times, in nanoseconds per agent and step."""

    flocks: int
    agents: int
    one_thread: float
    all_threads: float
    mean_degree: float


def draw(flocks: int, agents: int) -> Flock:
    """Flocks as the benchmarks use them: the density of 100 agents at every size."""
    return random_disk(flocks, agents, seed=0, radius_rule="constant-density")


def best_time(call: Callable[[], object], repeats: int) -> float:
    """The least time of several calls, in seconds, each of at least some milliseconds; one call goes before."""
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


def measure_messages(flocks: int, agents: int, repeats: int = 5, shuffle: bool = False) -> Timing:
    """Time a whole step of messages (sort, one-hop sums, histories), with K = 3 hops and mean aggregation.

    Args:
        flocks: B.
        agents: N.
        repeats: the best of so many is taken.
        shuffle: number the agents at random; drawn as they are, those who hear each other are near in memory.
    """
    flock = draw(flocks, agents)
    if shuffle:
        order = stream(0, "shuffle").permutation(agents)
        flock = Flock(flock.positions[:, order], flock.velocities[:, order])
    senses = DelayedAggregation(radius=1.0, hops=HOPS, one_hop="mean")
    scale = 1e9 / (flocks * agents)
    with threads.use(1):
        one = best_time(lambda: senses.hear(flock), repeats) * scale
    several = best_time(lambda: senses.hear(flock), repeats) * scale
    return Timing(flocks, agents, one, several, float(survey(flock, 1.0)[0].mean()))
