"""Exported controllers on a Cortex-M4F in QEMU: flash, RAM and instructions per step, with about ten neighbours.

python benchmarks/firmware.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import equiflock as ef
from equiflock.cli.terminal import err, out, print_table
from equiflock.controllers.loading import make_network
from equiflock.deployment.microcontroller import ResourceUsage, emulate, list_missing_tools, record_agent

STEPS = 20
DEFAULT_MAX_NEIGHBOURS = 10
LIMITS: dict[str, Any] = {
    "max_acceleration": 4.0,
    "max_speed": 1.5,
    "min_separation": 0.3,
    "max_silence": 1.0,
    "fence": ((-5.0, -5.0), (5.0, 5.0)),
}
"""All limits of a `Safe` controller; which values they have does not change code or time."""
CLOCK = 168e6
"""Hz of an STM32F405."""


def make_recording(
    controller: Any, neighbours: int = DEFAULT_MAX_NEIGHBOURS, steps: int = STEPS, dimensions: int = 2
) -> Any:
    """Record the agent of a flock whose number of neighbours is closest to `neighbours`."""
    start = ef.random_disk(flocks=1, agents=100, seed=0, dimensions=dimensions)
    degrees = ef.radius_graph(start).degrees[0]
    return record_agent(controller, start, int(np.abs(degrees - neighbours).argmin()), steps)


def record_near_obstacle(controller: Any, orbit: ef.Orbit) -> Any:
    """Record an agent with about ten neighbours, two of which are nearby obstacle agents."""
    start = ef.random_disk(flocks=1, agents=100, seed=0)
    agent = int(np.abs(ef.radius_graph(start).degrees[0] - DEFAULT_MAX_NEIGHBOURS).argmin())
    distances = np.linalg.norm(start.positions[0] - start.positions[0, agent], axis=1)
    rim = np.isin(np.arange(100), np.argsort(distances)[2:4])[None]
    velocities = np.where(rim[..., None], 0.0, start.velocities)
    return record_agent(
        controller, ef.Flock(start.positions, velocities, np.where(rim, 2, 0)), agent, STEPS, orbit=orbit
    )


def main() -> None:
    if missing := list_missing_tools():
        err.print(f"{', '.join(missing)} not found, nothing was measured: run `make emulator` to install it")
        raise SystemExit(2)
    networks: dict[str, Any] = {
        name: ef.load(name) for name in ("etdagnn", "tdagnn", "tdagnn-tf", "etdagnn-segregation")
    }
    networks["etdagnn:aggregation=both"] = make_network("etdagnn:aggregation=both")
    networks["etdagnn, limits"] = ef.Safe("etdagnn", **LIMITS)
    laws = {name: ef.load(name) for name in ("tanner-dynamic", "reynolds", "cucker-smale-local")}
    rows = []
    for name, controller in {**networks, **laws}.items():
        with tempfile.TemporaryDirectory() as folder:
            rows.append([name, *format_row(emulate(controller, make_recording(controller), Path(folder)))])
    etdagnn, orbit = ef.load("etdagnn"), ef.Orbit()
    with tempfile.TemporaryDirectory() as folder:
        usage = emulate(etdagnn, record_near_obstacle(etdagnn, orbit), Path(folder), orbit=orbit)
        rows.insert(1, ["etdagnn, orbit", *format_row(usage)])
    title = "one agent on a Cortex-M4F (STM32F405 in QEMU), gcc -Os; bytes, and instructions per step"
    header = (
        "controller",
        "code",
        "weights",
        "libm, libc",
        "RAM",
        "stack",
        "neighbours",
        "instructions",
        "µs at 168 MHz",
        "error",
    )
    print_table(title, (header, rows))
    out.print("µs: at one cycle per instruction. error: relative to the terms that an acceleration is the sum of.")


def format_row(usage: ResourceUsage) -> list[str]:
    sizes = usage.code, usage.weights, usage.library, usage.memory, usage.stack
    speed = f"{usage.neighbours:.1f}", f"{usage.instructions:,}", f"{usage.instructions / CLOCK * 1e6:.0f}"
    return [*(f"{number:,}" for number in sizes), *speed, f"{usage.largest_error:.0e}"]


if __name__ == "__main__":
    main()
