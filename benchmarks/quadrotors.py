"""Speed of flocks of quadrotors under starling at 50 Hz, in seconds of flight per second of computation.

The table has the speed of the median step, and that of the mean step, which includes the time that other programs take.

python benchmarks/quadrotors.py                 # 100, 1,000 and 5,000 drones, in the plane and in space
python benchmarks/quadrotors.py --quick         # 100 and 1,000 drones in the plane
python benchmarks/quadrotors.py --flights 50    # 50 flights of `equiflock fly`, also with packet loss and delay
python benchmarks/quadrotors.py --crazyflow     # also the body crazyflow, up to 100 drones; needs the extra drones
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import equiflock as ef
from equiflock._runtime import threads
from equiflock.cli.terminal import print_table
from equiflock.evaluation.drone_flights import DroneSetting, choose_controller, simulate_drones

RATE = 50.0
"""Steps per second of flight."""
COMM_RADIUS, TIME_SCALE = 5.0, 10.0
"""R in metres, and seconds of the drones per second of the controller."""
LARGEST_CRAZYFLOW_FLOCK = 100
FLIGHT_SEED, FLIGHT_SECONDS = 2026, 20.0
"""Seed and duration of the flights of `--flights`; no default was chosen with this seed."""
SECONDS = 2.0
"""Time for which each flock is measured, after its first steps."""


def draw_start(drones: int, dimensions: int) -> ef.Flock:
    """Return a flock at the density of 100 drones, at least 0.5 m apart and 2 m above the ground."""
    start = ef.random_disk(
        agents=drones,
        dimensions=dimensions,
        comm_radius=COMM_RADIUS,
        min_separation=0.5,
        max_speed=0.5,
        radius_rule="constant-density",
    )
    positions = start.positions.copy()
    if dimensions == 3:
        positions[..., 2] += 2.0 - positions[..., 2].min()
    return ef.Flock(positions, start.velocities, comm_radius=COMM_RADIUS)


def measure(body: ef.Body, drones: int, dimensions: int) -> tuple[float, float]:
    """Return the seconds of flight per second, by the median and by the mean step."""
    flight = ef.flight(
        draw_start(drones, dimensions),
        ef.load("starling", comm_radius=COMM_RADIUS, time_scale=TIME_SCALE),
        body=body,
        time_step=1.0 / RATE,
    )
    for _ in range(5):
        next(flight)
    begin, step_times = time.perf_counter(), []
    while time.perf_counter() - begin < SECONDS:
        step_begin = time.perf_counter()
        next(flight)
        step_times.append(time.perf_counter() - step_begin)
    median, mean = float(np.median(step_times)), float(np.mean(step_times))
    return 1.0 / RATE / median, 1.0 / RATE / mean


def print_flights(flocks: int) -> None:
    """Print the tables of `equiflock fly` for many flocks of 100 drones, and the speed of single flocks.

    The time scale is chosen as the command does, for each radio.
    """
    for title, options in {
        "ideal radio": {},
        "20% packet loss, one step of delay": {"packet_loss": 0.2, "delay": 1},
        "downwash": {"downwash": True},
        "plane": {"dimensions": 2},
    }.items():
        setting = DroneSetting(flocks=flocks, seed=FLIGHT_SEED, **options)  # type: ignore[arg-type]
        choice = choose_controller(setting)
        _, results = simulate_drones(setting, choice.controller, FLIGHT_SECONDS)
        print_table(f"{title}: {flocks} x 100 drones under {choice.name}", results.table)
    rows = []
    for drones in (100, 1_000):
        setting = DroneSetting(drones=drones, seed=FLIGHT_SEED)
        _, results = simulate_drones(setting, choose_controller(setting, time_scale=18.5).controller, FLIGHT_SECONDS)
        rows.append([f"{drones:,}", f"{results.real_time_factor:.1f}", f"{results.cpu_factor:.1f}"])
    header = ["drones", "times real time, with metrics", "per second of processor time"]
    print_table("one flock", (header, rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="100 and 1,000 drones in the plane")
    parser.add_argument("--crazyflow", action="store_true", help="also the body crazyflow; needs the extra drones")
    parser.add_argument("--flights", type=int, help="tables of this many flights of `equiflock fly` instead")
    arguments = parser.parse_args()
    if arguments.flights is not None:
        print_flights(arguments.flights)
        return
    bodies = {
        "quadrotor": ef.make_body("quadrotor"),
        "quadrotor, downwash": ef.make_body("quadrotor", downwash=True),
        "double-integrator": ef.make_body("double-integrator", max_acceleration=5.0),
    }
    if arguments.crazyflow:
        bodies["crazyflow"] = ef.make_body("crazyflow")
    rows = []
    for dimensions in (2,) if arguments.quick else (2, 3):
        for drones in (100, 1_000) if arguments.quick else (100, 1_000, 5_000):
            for name, body in bodies.items():
                if name != "crazyflow" or drones <= LARGEST_CRAZYFLOW_FLOCK:
                    median, mean = measure(body, drones, dimensions)
                    numbers = [f"{median:.1f}", f"{mean:.1f}"]
                    rows.append([name, f"{dimensions}", f"{drones:,}", *numbers])
    title = f"flocks under starling at {RATE:g} Hz, {threads.count()} threads"
    print_table(title, (["body", "D", "drones", "times real time, median", "mean"], rows))


if __name__ == "__main__":
    main()
