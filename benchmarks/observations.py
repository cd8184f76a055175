"""Benchmark of an observation step against dense NumPy and a k-d tree in the same run.

python benchmarks/observations.py            # the table: ns per agent and step, and ratios
python benchmarks/observations.py --quick    # up to 100,000 agents
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from baselines import dense_step, tree_step
from equiflock._runtime import threads
from equiflock._runtime.randomness import make_rng
from equiflock.evaluation.benchmark import BATCHES, draw, measure_best_time
from equiflock.features import paper_senses
from equiflock.flock import Flock
from equiflock.observations.aggregation import DelayedAggregation

HOPS = 3
MAX_DENSE_AGENTS = 2_000
"""Largest flock for dense NumPy; above it an N x N step takes seconds and gigabytes."""


@dataclass(frozen=True)
class Timing:
    """Best times, in nanoseconds per agent and step."""

    one_thread: float
    all_threads: float


def measure_observations(flocks: int, agents: int, repeats: int = 5, shuffle: bool = False) -> Timing:
    """Time a full observation step (sort, one-hop sums, histories) with K = 3 hops, on one thread and on all.

    With `shuffle`, neighbours in space are far apart in memory, as in flocks from other sources.
    """
    flock = draw(flocks, agents)
    if shuffle:
        order = make_rng(0, "shuffle").permutation(agents)
        flock = Flock(flock.positions[:, order], flock.velocities[:, order])
    sensing = DelayedAggregation(paper_senses("mean", HOPS), comm_radius=1.0)
    scale = 1e9 / (flocks * agents)
    with threads.use(1):
        one = measure_best_time(lambda: sensing.observe(flock), repeats) * scale
    return Timing(one, measure_best_time(lambda: sensing.observe(flock), repeats) * scale)


def time_baseline(step: Callable[[Flock, NDArray[Any]], NDArray[Any]], flock: Flock) -> float:
    """Check a baseline against our observations and return its nanoseconds per agent and step."""
    B, N, _ = flock.shape
    senses = DelayedAggregation(paper_senses("mean", HOPS), comm_radius=1.0)
    before = senses.observe(flock).reshape(B, N, -1).astype(np.float64)
    ours = senses.observe(flock).reshape(B, N, -1)
    theirs = step(flock, before)
    np.testing.assert_allclose(theirs, ours, rtol=1e-3, atol=1e-5 * np.abs(ours).max())
    return measure_best_time(lambda: step(flock, before), repeats=3) * 1e9 / (B * N)


PEAK_MEMORY = """
import sys
from pathlib import Path
import equiflock as ef
from equiflock.evaluation.benchmark import draw
agents = int(sys.argv[1])
def fly(agents):
    loop = ef.flight(draw(1, agents), ef.load("etdagnn"))
    for _ in range(4):
        next(loop)
fly(4000)  # compiles the kernels, or loads them from the cache
def kilobytes(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))
before = kilobytes("VmRSS")
fly(agents)
print((kilobytes("VmHWM") - before) * 1024 / agents)
"""


def measure_peak_memory(agents: int) -> float:
    """Return bytes per agent, without Python's own, for drawing and flying a flock under ETDAGNN (Linux's /proc)."""
    output = subprocess.run(
        [sys.executable, "-c", PEAK_MEMORY, str(agents)], capture_output=True, text=True, check=True, env=os.environ
    )
    return float(output.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="up to 100,000 agents")
    quick = parser.parse_args().quick
    singles = [(1, 10**power) for power in range(2, 6 if quick else 7)]
    console = Console()
    table = Table(
        title="Observations (K = 3, mean, D = 2), ns per agent and step; ratios to all threads", title_justify="left"
    )
    columns = "B x N", "one thread", f"{threads.count()} threads", "dense", "ratio", "k-d tree", "ratio"
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    sizes = [*BATCHES, *singles]
    # Measure ours first: the linear algebra behind dense NumPy leaves threads spinning for a while.
    ours = {}
    for size in sizes:
        console.print(f"measuring {size[0]} x {size[1]:,} ...", style="dim")
        ours[size] = measure_observations(*size)
    for size in sizes:
        console.print(f"measuring baselines at {size[0]} x {size[1]:,} ...", style="dim")
        flock = draw(*size)
        dense = time_baseline(dense_step, flock) if size[1] <= MAX_DENSE_AGENTS else None
        tree = time_baseline(tree_step, flock)
        table.add_row(
            f"{size[0]} x {size[1]:,}",
            f"{ours[size].one_thread:.0f}",
            f"{ours[size].all_threads:.0f}",
            f"{dense:,.0f}" if dense else "-",
            f"{dense / ours[size].all_threads:,.0f} x" if dense else "-",
            f"{tree:,.0f}",
            f"{tree / ours[size].all_threads:,.0f} x",
        )
    console.print(table)
    shuffled = measure_observations(*singles[-1], shuffle=True)
    console.print(
        f"{singles[-1][1]:,} agents in random order: {shuffled.one_thread:.0f} on one thread, "
        f"{shuffled.all_threads:.0f} on all"
    )
    large = [ours[size] for size in singles if size[1] >= 1_000]
    for label, costs in (
        ("one thread", [timing.one_thread for timing in large]),
        ("all threads", [timing.all_threads for timing in large]),
    ):
        spread = max(costs) / min(costs)
        console.print(f"cost per agent from 1,000 agents on, {label}: within a factor of {spread:.2f}")
    peak = measure_peak_memory(singles[-1][1])
    console.print(f"peak memory at {singles[-1][1]:,} agents in closed loop: {peak:.0f} bytes per agent")


if __name__ == "__main__":
    main()
