"""Cost of channels: a closed-loop step of networks with more than the paper's three channels.

python benchmarks/channels.py    # ns per agent and step, and ratios to ETDAGNN; 50 x 100 on one thread comes first
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

import equiflock as ef
from equiflock._runtime import threads
from equiflock.controllers.loading import make_network
from equiflock.flock import Flock

NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "etdagnn, three means": ("etdagnn", {}),
    "etdagnn, means and sums": ("etdagnn", {"aggregation": "both"}),
    "starling": ("starling", {}),
    "starling, with weights near obstacles": ("starling", {"near": True}),
}
REPEATS, STEPS = 7, 200


class Flight(NamedTuple):
    """A column of the table."""

    start: Flock
    options: dict[str, Any]
    """Further arguments of `simulate`."""
    threads: int


def make_flights() -> dict[str, Flight]:
    """Return the flights by name."""
    course = ef.ObstacleCourse(ef.RandomDisk(4, 100, seed=0), sides=96)
    return {
        "50 flocks of 100, 1 thread": Flight(ef.random_disk(50, 100, seed=0), {}, 1),
        "20 flocks of 100": Flight(ef.random_disk(20, 100, seed=0), {}, threads.count()),
        "2 flocks of 800": Flight(ef.random_disk(2, 800, seed=0), {}, threads.count()),
        "4 courses of 100, 96 sides": Flight(course.draw(), {"orbit": ef.Orbit()}, threads.count()),
    }


def measure(flight: Flight) -> dict[str, float]:
    """Return nanoseconds per agent and step, the best of several rounds; networks alternate, to see the same noise."""
    controllers: dict[str, Any] = {name: make_network(kind, **rest) for name, (kind, rest) in NETWORKS.items()}
    best = dict.fromkeys(controllers, float("inf"))
    for _ in range(REPEATS):
        for name, controller in controllers.items():
            begin = time.perf_counter()
            # Agents hardly move, so that random weights are harmless.
            with threads.use(flight.threads):
                ef.simulate(
                    flight.start,
                    controller,
                    time_step=1e-4,
                    duration=STEPS * 1e-4,
                    keep_every=None,
                    **flight.options,
                )
            best[name] = min(best[name], time.perf_counter() - begin)
    return {name: seconds * 1e9 / (STEPS * flight.start.positions[..., 0].size) for name, seconds in best.items()}


def main() -> None:
    """Print a table."""
    table = Table(title="a step in closed loop: ns per agent, and ratio to ETDAGNN")
    timings = {name: measure(flight) for name, flight in make_flights().items()}
    for title in ("network", *timings):
        table.add_column(title, justify="left" if title == "network" else "right")
    for network in NETWORKS:
        cells = [(times[network], times[network] / next(iter(times.values()))) for times in timings.values()]
        table.add_row(network, *(f"{own:.0f} ({ratio:.2f} x)" for own, ratio in cells))
    Console().print(table)


if __name__ == "__main__":
    main()
