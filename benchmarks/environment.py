"""Cost of radio, body and failures: a step with ETDAGNN in the loop, relative to the ideal environment.

python benchmarks/environment.py            # 50 x 100 and a million agents: ns per agent and step, and ratios
python benchmarks/environment.py --quick    # up to 100,000 agents
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from rich.console import Console
from rich.table import Table

import equiflock as ef
from equiflock._runtime import threads
from equiflock.evaluation.benchmark import draw

ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "ideal": {},
    "packet loss 0.2": {"radio": ef.Radio(packet_loss=0.2)},
    "packet loss 0.2 in bursts of 5": {"radio": ef.Radio(packet_loss=0.2, burst=5.0)},
    "noise 0.01": {"radio": ef.Radio(noise=0.01)},
    "delay 1": {"radio": ef.Radio(delay=1)},
    "delay 1, noise 0.01": {"radio": ef.Radio(delay=1, noise=0.01)},
    "16 bits": {"radio": ef.Radio(quantization=16)},
    "packet loss 0.2, last known up to 2": {"radio": ef.Radio(packet_loss=0.2, last_known=2)},
    "acceleration at most 5": {"body": ef.DoubleIntegrator(max_acceleration=5.0)},
    "the same, lag 0.1 s": {"body": ef.DoubleIntegrator(max_acceleration=5.0, lag=0.1)},
    "unicycle": {"body": ef.Unicycle(max_turn_rate=3.0)},
    "1% stopped": {"failures": "share"},
}
SLICE_SECONDS = 0.2
"""Seconds for which each environment is measured at a time."""


def measure(flocks: int, agents: int, repeats: int) -> dict[str, float]:
    """Return nanoseconds per agent and step, the best of several rounds.

    Environments alternate within a round, so that all see the same noise.
    """
    start, controller = draw(flocks, agents), ef.load("etdagnn")
    flights = {}
    for name, options in ENVIRONMENTS.items():
        if options.get("failures") == "share":
            options = {"failures": ef.Failures(agents=max(agents // 100, 1))}
        # Agents hardly move, so that all steps cost the same.
        flights[name] = ef.flight(start, controller, time_step=1e-4, **options)
        for _ in range(3):
            next(flights[name])
    best = dict.fromkeys(flights, float("inf"))
    for _ in range(repeats):
        for name, flight in flights.items():
            begin, steps = time.perf_counter(), 0
            while steps == 0 or time.perf_counter() - begin < SLICE_SECONDS:
                next(flight)
                steps += 1
            best[name] = min(best[name], (time.perf_counter() - begin) / steps)
    return {name: seconds * 1e9 / (flocks * agents) for name, seconds in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="up to 100,000 agents")
    parser.add_argument("--repeats", type=int, default=7, help="number of rounds; the best one counts")
    arguments = parser.parse_args()
    sizes = [(50, 100), (1, 100), (1, 100_000 if arguments.quick else 1_000_000)]
    timings = {size: measure(*size, arguments.repeats) for size in sizes}
    table = Table(title=f"a step with ETDAGNN in the loop, ns per agent, {threads.count()} threads")
    table.add_column("environment")
    for flocks, agents in sizes:
        table.add_column(f"{flocks} x {agents:,}", justify="right")
        table.add_column("ratio", justify="right")
    for name in ENVIRONMENTS:
        cells = []
        for size in sizes:
            cells += [f"{timings[size][name]:.0f}", f"{timings[size][name] / timings[size]['ideal']:.2f}"]
        table.add_row(name, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
