"""A closed loop of ours beside other simulators of flocks in the same run, in agent-steps per second.

python benchmarks/peers.py            # the tables, about five minutes, nearly all of them VMAS at 1,000 agents
python benchmarks/peers.py --quick    # without VMAS at 1,000 agents, under a minute

They are not the same computation, so a ratio says what a step costs, not who is the better program:

    ours         who hears whom, observations of K = 3 hops, the trained network ETDAGNN, double integrator. No
                 collisions.
    dense NumPy  the same flight, checked to be so: observations with N x N arrays, the same network through torch.
    Mesa         its own boids: every agent a Python object that compares itself with all others in NumPy (no spatial
                 index), three rules over those it sees, constant speed, on a torus. No observations, no network.
    VMAS         its own scenario "flocking", fixed random actions: forces, collisions and drag in 5 substeps, then
                 each agent's observation (12 rays of lidar), reward and info. Python loops over all pairs of agents,
                 each over all flocks at once. No observations, no network.
    VMAS physics the forces, collisions and drag of that alone: no observations, no rewards.

Ours, dense NumPy and VMAS begin with the same flocks; Mesa has its own, at its own density. All have their default
threads. Figures are the best of several steps after a warm-up, but for those that are marked; for the others processor
time counts where it is less than time, so that a busy machine is not held against their long steps.
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
from equiflock.experiments.bench import draw, measure_best_time
from equiflock.flock import Flock
from equiflock.runtime import threads

SIZES = 100, 1_000
BATCH = 32
"""Flocks at once: VMAS is built for batches."""
TIME_STEP = 0.01
PACKAGES = "mesa", "scipy", "vmas"
REPEATS = 10
"""Of so many, the best counts."""
SLOW_SECONDS = 10.0
"""Seconds: a step that takes longer is timed once."""

Step = Callable[[], object]


def make_our_loop(flocks: int, agents: int) -> Step:
    """A step of ours."""
    # Thousands of steps are timed: so short that the flock stays as dense as it began.
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
        """Hear, ask, move."""
        B, N, D = self.positions.shape
        self.observations = self.observe(Flock(self.positions, self.velocities), self.observations)
        observations = torch.from_numpy(self.observations.astype(np.float32).reshape(B, N, 3, 3, D))
        with torch.inference_mode():
            accelerations = self.network(observations).numpy().astype(np.float64)
        self.positions += self.velocities * TIME_STEP + accelerations * (TIME_STEP**2 / 2)
        self.velocities += accelerations * TIME_STEP


def check_dense_loop(agents: int, steps: int = 5) -> None:
    """That the dense loop flies as ours does."""
    start = draw(1, agents)
    ours, theirs = ef.flight(start, ef.load("etdagnn"), time_step=TIME_STEP), DenseLoop(start)
    for _ in range(steps):
        next(ours)
        theirs()
    np.testing.assert_allclose(theirs.velocities, next(ours).flock.velocities, rtol=1e-3, atol=1e-3)


def make_mesa_loop(agents: int) -> Step:
    """A step of Mesa's boids as they come, in a space that grows with their number."""
    side = 100.0 * math.sqrt(agents / 100)  # 100 boids in 100 x 100 is the example's default
    model = importlib.import_module("mesa.examples.basic.boid_flockers.model").BoidFlockers(agents, side, side, seed=0)
    return lambda: model.step()


def make_vmas_loops(flocks: int, agents: int) -> tuple[Step, Step]:
    """A step of VMAS's flocking, and its physics alone, with our flocks' positions and velocities."""
    # Its own least distance would leave no room for so many; we move the agents anyway.
    options = {"n_agents": agents, "min_dist_between_entities": 0.0, "seed": 0}
    env: Any = importlib.import_module("vmas").make_env("flocking", num_envs=flocks, device="cpu", **options)
    start = draw(flocks, agents)
    for i, agent in enumerate(env.agents):
        agent.set_pos(torch.tensor(start.positions[:, i], dtype=torch.float32), batch_index=None)
        agent.set_vel(torch.tensor(start.velocities[:, i], dtype=torch.float32), batch_index=None)
    actions = env.get_random_actions()
    return lambda: env.step(actions), lambda: env.world.step()


def measure_seconds(step: Step) -> tuple[float, str]:
    """The best of several steps of a peer and no mark, or the first and only one and a mark if it was slow.

    Processor time counts where it is less: on a busy machine a step of a second is interrupted, one of ours is not.
    """

    def once() -> float:
        start, busy = time.perf_counter(), time.process_time()
        step()
        return min(time.perf_counter() - start, time.process_time() - busy)

    first = once()
    return (first, "*") if first > SLOW_SECONDS else (min(once() for _ in range(REPEATS)), "")


def measure(flocks: int, quick: bool, report: Callable[[str], object]) -> dict[str, dict[int, tuple[float, str]]]:
    """By name and number of agents: agent-steps per second, and a mark if they were timed once."""
    found: dict[str, dict[int, tuple[float, str]]] = {}

    def add(name: str, agents: int, took: float, mark: str = "") -> None:
        found.setdefault(name, {})[agents] = flocks * agents / took, mark

    # Ours first: the linear algebra behind the others leaves threads spinning for a while.
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
    return found


def tabulate(flocks: int, found: dict[str, dict[int, tuple[float, str]]]) -> Table:
    """Rates, and ours over theirs."""
    what = "One flock" if flocks == 1 else f"{flocks} flocks at once"
    table = Table(title=f"{what}: agent-steps per second, and ours / theirs", title_justify="left")
    for column in ("", *(text for agents in SIZES for text in (f"N = {agents:,}", "ratio"))):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, rates in found.items():
        jobs = []
        for agents in SIZES:
            rate, mark = rates.get(agents, (math.nan, ""))
            ratio = f"{found['ours'][agents][0] / rate:,.0f} x"
            jobs += [f"{rate:,.0f}{mark}", "" if name == "ours" else ratio] if agents in rates else ["-", "-"]
        table.add_row(name, *jobs)
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
        found = measure(flocks, quick, lambda text: console.print(f"measuring {text} ...", style="dim"))
        tables.append(tabulate(flocks, found))
    console.print(*tables, sep="\n")
    if not quick:
        console.print(f"* one step, timed once, without a warm-up: it takes more than {SLOW_SECONDS:.0f} seconds")
    console.print(f"{threads.count()} threads for ours, {torch.get_num_threads()} for torch\n")
    assert __doc__ is not None
    console.print(__doc__[__doc__.index("They are not") :].strip(), soft_wrap=True)


if __name__ == "__main__":
    main()
