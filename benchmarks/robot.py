"""Exported controllers on a Cortex-M4F in QEMU: flash, RAM and instructions per step, with about ten neighbours.

python benchmarks/robot.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import equiflock as ef
from equiflock.cli.console import err, out
from equiflock.cli.terminal import print_table
from equiflock.controllers.loading import new_network
from equiflock.deployment.microcontroller import Figures, emulate, missing_tools
from equiflock.deployment.recording import record

STEPS = 20
NEIGHBOURS = 10
CLOCK = 168e6
"""Hz of an STM32F405."""


def recorded(controller: Any, neighbours: int = NEIGHBOURS, steps: int = STEPS, dimensions: int = 2) -> Any:
    """A recording of the agent of a flock that has so many neighbours, or nearly."""
    start = ef.random_disk(flocks=1, agents=100, seed=0, dimensions=dimensions)
    degrees = ef.radius_graph(start).degrees[0]
    return record(controller, start, int(np.abs(degrees - neighbours).argmin()), steps)


def near_obstacle(controller: Any, orbit: ef.Orbit) -> Any:
    """A recording of such an agent, two of whose nearest neighbours are obstacle agents."""
    start = ef.random_disk(flocks=1, agents=100, seed=0)
    agent = int(np.abs(ef.radius_graph(start).degrees[0] - NEIGHBOURS).argmin())
    distances = np.linalg.norm(start.positions[0] - start.positions[0, agent], axis=1)
    rim = np.isin(np.arange(100), np.argsort(distances)[2:4])[None]
    velocities = np.where(rim[..., None], 0.0, start.velocities)
    return record(controller, ef.Flock(start.positions, velocities, np.where(rim, 2, 0)), agent, STEPS, orbit=orbit)


def main() -> None:
    if missing := missing_tools():
        err.print(
            f"{', '.join(missing)} cannot be found, so nothing was measured: run make emulator, which installs it"
        )
        raise SystemExit(2)
    networks: dict[str, Any] = {
        name: ef.load(name) for name in ("etdagnn", "tdagnn", "tdagnn-tf", "etdagnn-segregation")
    }
    networks["etdagnn:aggregation=both"] = new_network("etdagnn:aggregation=both")
    laws = {name: ef.load(name) for name in ("tanner-dynamic", "reynolds", "cucker-smale-local")}
    rows = []
    for name, controller in {**networks, **laws}.items():
        with tempfile.TemporaryDirectory() as folder:
            rows.append([name, *row(emulate(controller, recorded(controller), Path(folder)))])
    etdagnn, orbit = ef.load("etdagnn"), ef.Orbit()
    with tempfile.TemporaryDirectory() as folder:
        found = emulate(etdagnn, near_obstacle(etdagnn, orbit), Path(folder), orbit=orbit)
        rows.insert(1, ["etdagnn, orbit", *row(found)])
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
    out.print("µs: if every instruction took one cycle. error: relative to what an acceleration is the sum of.")


def row(figures: Figures) -> list[str]:
    whole = figures.code, figures.weights, figures.library, figures.memory, figures.stack
    speed = f"{figures.neighbours:.1f}", f"{figures.instructions:,}", f"{figures.instructions / CLOCK * 1e6:.0f}"
    return [*(f"{number:,}" for number in whole), *speed, f"{figures.worst:.0e}"]


if __name__ == "__main__":
    main()
