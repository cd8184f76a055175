"""Closed-loop speed compared with other flock simulators in the same run, in agent-steps per second.

python benchmarks/peers.py            # all tables, about five minutes, mostly VMAS at 1,000 agents
python benchmarks/peers.py --quick    # without VMAS at 1,000 agents, under a minute

They are not the same computation, so a ratio compares the cost of a step, not the quality of programs:

    ours         communication graph, observations over K = 3 hops, the trained network ETDAGNN, double integrator. No
                 collisions.
    dense NumPy  the same flight, checked against ours: observations with N x N arrays, the same network in torch.
    Mesa         its example boids: every agent is a Python object that compares itself with all others in NumPy (no
                 spatial index), three rules over visible agents, constant speed, on a torus. No observations, no
                 network.
    VMAS         its scenario "flocking" with fixed random actions: forces, collisions and drag in 5 substeps, then
                 each agent's observation (12 lidar rays), reward and info. Python loops over all pairs of agents,
                 each vectorised over all flocks. No K-hop observations, no network.
    VMAS physics its forces, collisions and drag only: no observations, no rewards.

Ours, dense NumPy and VMAS start from the same flocks; Mesa draws its own at its default density. All use their default
threads. Figures are the best of several steps after a warm-up, except those marked with *. For the others the smaller
of CPU time and wall time counts, so that a busy machine does not slow down their long steps.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import sys
import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import equiflock as ef
from equiflock._runtime import threads
from equiflock.evaluation.benchmark import draw, measure_best_time
from equiflock.flock import Flock

SIZES = 100, 1_000
BATCH = 32
"""Number of flocks in a batch: VMAS is built for batches."""
TIME_STEP = 0.01
PACKAGES = "mesa", "scipy", "vmas"
REPEATS = 10
"""Number of timed steps; the best one counts."""
SLOW_SECONDS = 10.0
"""A step that takes longer is timed once."""

Step = Callable[[], object]


def make_our_loop(flocks: int, agents: int) -> Step:
    """Return a function that makes one step of ours."""
    # Thousands of steps are timed: a short time step keeps the density of the flock.
    loop = ef.flight(draw(flocks, agents), ef.load("etdagnn"), time_step=TIME_STEP / 100)
    return lambda: next(loop)


class DenseLoop:
    """The same flight with N x N arrays for the observations and torch for the network."""

    def __init__(self, start: Flock) -> None:
        from baselines import dense_step  # needs scipy

        self.observe = dense_step
        self.positions, self.velocities = start.positions.copy(), start.velocities.copy()
        self.observations = np.zeros((*start.shape[:2], 3 * 3 * start.shape[2]))
        self.network = cast(nn.Module, ef.load("etdagnn"))

    def __call__(self) -> None:
        """Observe, decide, move."""
        B, N, D = self.positions.shape
        self.observations = self.observe(Flock(self.positions, self.velocities), self.observations)
        observations = torch.from_numpy(self.observations.astype(np.float32).reshape(B, N, 3, 3, D))
        with torch.inference_mode():
            accelerations = self.network(observations).numpy().astype(np.float64)
        self.positions += self.velocities * TIME_STEP + accelerations * (TIME_STEP**2 / 2)
        self.velocities += accelerations * TIME_STEP


def check_dense_loop(agents: int, steps: int = 5) -> None:
    """Check the dense loop against ours."""
    start = draw(1, agents)
    ours, theirs = ef.flight(start, ef.load("etdagnn"), time_step=TIME_STEP), DenseLoop(start)
    for _ in range(steps):
        next(ours)
        theirs()
    np.testing.assert_allclose(theirs.velocities, next(ours).flock.velocities, rtol=1e-3, atol=1e-3)


def make_mesa_loop(agents: int) -> Step:
    """Return a function that makes one step of Mesa's boids with defaults, in a space that grows with their number."""
    side = 100.0 * math.sqrt(agents / 100)  # 100 boids in 100 x 100 is the example's default
    model = importlib.import_module("mesa.examples.basic.boid_flockers.model").BoidFlockers(agents, side, side, seed=0)
    return lambda: model.step()


def make_vmas_loops(flocks: int, agents: int) -> tuple[Step, Step]:
    """Return functions that make one step of VMAS's flocking, and of its physics only, from our initial flocks."""
    # Its default minimal distance leaves no room for this many agents, which are moved below anyway.
    options = {"n_agents": agents, "min_dist_between_entities": 0.0, "seed": 0}
    env: Any = importlib.import_module("vmas").make_env("flocking", num_envs=flocks, device="cpu", **options)
    start = draw(flocks, agents)
    for i, agent in enumerate(env.agents):
        agent.set_pos(torch.tensor(start.positions[:, i], dtype=torch.float32), batch_index=None)
        agent.set_vel(torch.tensor(start.velocities[:, i], dtype=torch.float32), batch_index=None)
    actions = env.get_random_actions()
    return lambda: env.step(actions), lambda: env.world.step()


def measure_seconds(step: Step) -> tuple[float, str]:
    """Return the best time of several steps and "", or the time of a single slow step and "*".

    The smaller of CPU time and wall time counts: a busy machine interrupts steps of a second, but not ours.
    """

    def once() -> float:
        start, busy = time.perf_counter(), time.process_time()
        step()
        return min(time.perf_counter() - start, time.process_time() - busy)

    first = once()
    return (first, "*") if first > SLOW_SECONDS else (min(once() for _ in range(REPEATS)), "")


def measure(flocks: int, quick: bool, report: Callable[[str], object]) -> dict[str, dict[int, tuple[float, str]]]:
    """Return agent-steps per second, and "*" if timed once, by name and number of agents."""
    rates: dict[str, dict[int, tuple[float, str]]] = {}

    def add(name: str, agents: int, seconds: float, mark: str = "") -> None:
        rates.setdefault(name, {})[agents] = flocks * agents / seconds, mark

    # Measure ours first: the linear algebra behind the others leaves threads spinning for a while.
    for agents in SIZES:
        report(f"ours at {flocks} x {agents:,}")
        add("ours", agents, measure_best_time(make_our_loop(flocks, agents), REPEATS))
    for agents in SIZES if flocks == 1 else ():
        report(f"dense NumPy and Mesa at {flocks} x {agents:,}")
        check_dense_loop(agents)
        add("dense NumPy", agents, *measure_seconds(DenseLoop(draw(flocks, agents))))
        add("Mesa", agents, *measure_seconds(make_mesa_loop(agents)))
    for agents in SIZES[: 1 if quick else None]:
        report(f"VMAS at {flocks} x {agents:,}")
        whole, physics = make_vmas_loops(flocks, agents)
        add("VMAS", agents, *measure_seconds(whole))
        add("VMAS physics", agents, *measure_seconds(physics))
    return rates


def tabulate(flocks: int, results: dict[str, dict[int, tuple[float, str]]]) -> Table:
    """Return a table of rates, and of ours divided by theirs."""
    batch = "One flock" if flocks == 1 else f"Batch of {flocks} flocks"
    table = Table(title=f"{batch}: agent-steps per second, and ours / theirs", title_justify="left")
    for column in ("", *(text for agents in SIZES for text in (f"N = {agents:,}", "ratio"))):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, rates in results.items():
        cells = []
        for agents in SIZES:
            rate, mark = rates.get(agents, (math.nan, ""))
            ratio = f"{results['ours'][agents][0] / rate:,.0f} x"
            cells += [f"{rate:,.0f}{mark}", "" if name == "ours" else ratio] if agents in rates else ["-", "-"]
        table.add_row(name, *cells)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="without VMAS at 1,000 agents")
    quick = parser.parse_args().quick
    missing = [package for package in PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        install = "python -m pip install --constraint constraints.txt --editable '.[bench]'"
        print(f"peers.py needs {' and '.join(missing)}: run make peers, or {install}", file=sys.stderr)
        sys.exit(2)
    console = Console(highlight=False)
    tables = []
    for flocks in (1, BATCH):
        results = measure(flocks, quick, lambda text: console.print(f"measuring {text} ...", style="dim"))
        tables.append(tabulate(flocks, results))
    console.print(*tables, sep="\n")
    if not quick:
        console.print(f"* one step, timed once, without a warm-up: it takes more than {SLOW_SECONDS:.0f} seconds")
    console.print(f"{threads.count()} threads for ours, {torch.get_num_threads()} for torch\n")
    assert __doc__ is not None
    console.print(__doc__[__doc__.index("They are not") :].strip(), soft_wrap=True)


if __name__ == "__main__":
    main()
