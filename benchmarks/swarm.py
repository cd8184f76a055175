"""Swarms of processes: 50 agents in lockstep, and 12 in real time at 20 Hz; steps per second, and steps missed.

python benchmarks/swarm.py
"""

from __future__ import annotations

import os

import equiflock as ef
from equiflock.cli.console import out
from equiflock.cli.terminal import print_table
from equiflock.deployment.deploy_swarm import Deployment, DeploymentResult, deploy

FLIGHTS = 3
"""So many of each are flown, as other programs take their share of the cores at some times and not at others."""
LOCKSTEP = {"steps": 200}
REAL_TIME = {"steps": 200, "rate": 20.0, "time_step": 0.05}


def fly_swarm(agents: int, seed: int, **options: object) -> DeploymentResult:
    """A flight under etdagnn."""
    start = ef.random_disk(flocks=1, agents=agents, seed=seed)
    return deploy("etdagnn", start, Deployment(**options))  # type: ignore[arg-type]


def format_row(name: str, found: DeploymentResult) -> list[str]:
    """What was measured in a flight."""
    seconds, missed_steps = sum(found.log.seconds), sum(found.log.missed_steps.values())
    told = len(found.log.seconds) * len(found.host.robots)
    parity = "yes" if found.parity.is_within_tolerance else "no"
    rate = f"{len(found.log.seconds) / seconds:.1f}"
    return [name, rate, f"{missed_steps:,} of {told:,}", f"{found.log.late_steps}", parity]


def main() -> None:
    rows = []
    for seed in range(FLIGHTS):
        rows += [
            format_row(f"50 in lockstep, {kind}", fly_swarm(50, seed, agent=kind, **LOCKSTEP))
            for kind in ("c", "numpy")
        ]
        rows.append(format_row("12 at 20 Hz, c", fly_swarm(12, seed, agent="c", **REAL_TIME)))
    header = "agents", "steps per second", "steps missed", "steps that the world was late", "parity"
    print_table("swarms of processes under etdagnn, 200 steps", (header, sorted(rows)))
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    out.print(f"{os.cpu_count()} cores; load in the last 1, 5 and 15 minutes, ours with it: {load}", highlight=False)


if __name__ == "__main__":
    main()
