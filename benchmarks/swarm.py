"""Swarms of processes: 50 agents in lockstep, and 12 in real time at 20 Hz; steps per second, and missed steps.

python benchmarks/swarm.py
"""

from __future__ import annotations

import os

import equiflock as ef
from equiflock.cli.terminal import out, print_table
from equiflock.deployment.swarm import Deployment, DeploymentResult, deploy

FLIGHTS = 3
"""Repetitions of each flight, since the load by other programs varies."""
LOCKSTEP = {"steps": 200}
REAL_TIME = {"steps": 200, "rate": 20.0, "time_step": 0.05}


def fly_swarm(agents: int, seed: int, **options: object) -> DeploymentResult:
    """Deploy a swarm under etdagnn."""
    start = ef.random_disk(flocks=1, agents=agents, seed=seed)
    return deploy("etdagnn", start, Deployment(**options))  # type: ignore[arg-type]


def format_row(name: str, result: DeploymentResult) -> list[str]:
    """Return the cells of a flight."""
    log = result.log
    seconds, missed_steps = sum(log.seconds), sum(log.missed_steps.values())
    commands = len(log.seconds) * len(result.host.robots)
    parity = "yes" if result.parity.is_within_tolerance else "no"
    return [name, f"{len(log.seconds) / seconds:.1f}", f"{missed_steps:,} of {commands:,}", f"{log.late_steps}", parity]


def main() -> None:
    rows = []
    for seed in range(FLIGHTS):
        rows += [
            format_row(f"50 in lockstep, {kind}", fly_swarm(50, seed, agent=kind, **LOCKSTEP))
            for kind in ("c", "numpy")
        ]
        rows.append(format_row("12 at 20 Hz, c", fly_swarm(12, seed, agent="c", **REAL_TIME)))
    header = "agents", "steps per second", "missed steps", "late steps of the host", "parity"
    print_table("swarms of processes under etdagnn, 200 steps", (header, sorted(rows)))
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    out.print(f"{os.cpu_count()} cores; load average over 1, 5 and 15 minutes, including ours: {load}", highlight=False)


if __name__ == "__main__":
    main()
