"""Speed of the environments of reinforcement learning, each beside its baseline in the same run.

python benchmarks/rl.py            # about a minute
python benchmarks/rl.py --quick    # without VMAS

    VectorFlocks  32 flocks of 100 agents with the reward "variance", beside the same flight driven by `Flight.step`,
                  which returns no rewards and restarts no flock; once in the middle of episodes, once with restarts,
                  for which every flock draws a new start every 200 steps.
    TorchRL       the same flocks through `torchrl_env` and `step_and_maybe_reset`, beside VMAS's flocking at 32 x 100
                  (see peers.py for what a step of it is), in agent-steps per second.
    PettingZoo    one flock of 100 agents through `parallel_env`, in steps per second.

The pairs alternate, step for step, so that a busy machine slows both down; ratios are those of the medians. VMAS is
timed by the smaller of CPU time and wall time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import equiflock as ef
from equiflock._runtime import threads
from equiflock.rl.interfaces import parallel_env, torchrl_env
from equiflock.rl.vector_flocks import VectorFlocks
from peers import make_vmas_loops, measure_seconds

FLOCKS, AGENTS = 32, 100
ROUNDS, STEPS = 60, 10
EPISODE = 200
"""Steps of an episode of the scenario at dt = 0.01 s."""
TIME_STEP = 1e-5
Step = Callable[[], object]


def measure_pair(ours: Step, baseline: Step, rounds: int = ROUNDS, steps: int = STEPS) -> tuple[float, float]:
    """Return the median seconds of a step of both, which alternate."""
    times: tuple[list[float], list[float]] = ([], [])
    for step in (ours, baseline):
        step()
    for turn in range(rounds):
        # The second one measured finds warm caches.
        for which in (0, 1) if turn % 2 else (1, 0):
            start = time.perf_counter()
            for _ in range(steps):
                (ours, baseline)[which]()
            times[which].append((time.perf_counter() - start) / steps)
    return statistics.median(times[0]), statistics.median(times[1])


def make_flight_step(flocks: VectorFlocks) -> Step:
    """Return a function that makes a step of a flight with the same start and senses, driven by `Flight.step`."""
    start = flocks.moment.flock
    loop = ef.flight(ef.Flock(*start.arrays[:2]), None, senses=flocks.senses, time_step=flocks.time_step)
    next(loop)
    commands = np.zeros(start.shape)
    return lambda: loop.step(commands)


def make_vector_flocks(duration: float) -> VectorFlocks:
    # With a short time step the density of the flocks, and so the cost of a step, stays the same.
    flocks = VectorFlocks("flocking", FLOCKS, AGENTS, time_step=TIME_STEP, duration=duration)
    flocks.reset()
    return flocks


def measure_vector_flocks(rounds: int) -> tuple[float, float]:
    """Return the speed relative to `Flight.step`: in the middle of episodes, and with restarts."""
    calm = make_vector_flocks(1.0)
    commands = np.zeros(calm.shape)
    ours, baseline = measure_pair(lambda: calm.step(commands), make_flight_step(calm), rounds)
    restarting = make_vector_flocks(EPISODE * TIME_STEP)
    whole, flight = measure_pair(
        lambda: restarting.step(commands), make_flight_step(calm), max(rounds // 15, 2), EPISODE
    )
    return baseline / ours, flight / whole


def measure_torchrl(rounds: int) -> float:
    """Return the agent-steps per second of 32 x 100 through TorchRL."""
    env = torchrl_env("flocking", FLOCKS, AGENTS)
    data = env.rand_action(env.reset())
    state = {"data": data}

    def step() -> None:
        _, state["data"] = env.step_and_maybe_reset(state["data"])
        state["data"].set(("agents", "action"), data.get(("agents", "action")))

    times = []
    for _ in range(rounds * STEPS):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    # The mean, which includes restarts.
    return FLOCKS * AGENTS / statistics.fmean(times)


def measure_pettingzoo(rounds: int) -> float:
    """Return the steps per second of one flock of 100 agents through PettingZoo, resets included."""
    env = parallel_env("flocking", AGENTS)
    env.reset()
    actions = {agent: np.zeros(2, np.float32) for agent in env.agents}
    times = []
    for _ in range(rounds * STEPS):
        start = time.perf_counter()
        env.step(actions)
        if not env.agents:
            env.reset()
        times.append(time.perf_counter() - start)
    return 1.0 / statistics.fmean(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="without VMAS")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="alternations of each pair")
    arguments = parser.parse_args()
    console = Console(highlight=False)
    table = Table(
        title=f"{threads.count()} threads for ours, {torch.get_num_threads()} for torch", title_justify="left"
    )
    for column in ("", "measured", "target"):
        table.add_column(column, no_wrap=True)
    calm, restarting = measure_vector_flocks(arguments.rounds)
    table.add_row("VectorFlocks / Flight.step, 32 x 100", f"{calm:.0%}", ">= 90%")
    table.add_row("the same with a restart of all every 200 steps", f"{restarting:.0%}", "")
    speed = measure_torchrl(arguments.rounds)
    table.add_row("TorchRL, agent-steps/s at 32 x 100", f"{speed:,.0f}", "")
    if not arguments.quick:
        seconds, _ = measure_seconds(make_vmas_loops(FLOCKS, AGENTS)[0])
        theirs = FLOCKS * AGENTS / seconds
        table.add_row("VMAS flocking, agent-steps/s at 32 x 100", f"{theirs:,.0f}", "")
        table.add_row("TorchRL / VMAS", f"{speed / theirs:,.0f} x", ">= 100 x")
    table.add_row("PettingZoo, steps/s with 100 agents", f"{measure_pettingzoo(arguments.rounds):,.0f}", ">= 500")
    console.print(table)


if __name__ == "__main__":
    main()
