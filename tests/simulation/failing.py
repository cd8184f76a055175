"""Flights in which agents fail."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import equiflock as ef
from equiflock.flock import Flock, Role
from equiflock.simulation.failures import FailureKind

KINDS: tuple[FailureKind, ...] = ("silent", "stopped", "drifting")
FIVE = {kind: ef.Failures(kind, agents=5, time=0.05) for kind in KINDS}


def begin() -> Flock:
    """Three flocks with four leaders each."""
    drawn = ef.random_disk(3, 30, seed=4)
    roles = drawn.roles.copy()
    roles[:, :4] = Role.LEADER
    return replace(drawn, roles=roles)


def moments(start: Flock, controller: Any, steps: int, **options: Any) -> list[ef.Moment]:
    """Copies of the first moments of a flight."""
    return [
        replace(
            moment,
            flock=Flock(*moment.flock.arrays, comm_radius=moment.flock.comm_radius),
            observations=moment.observations.copy(),
            accelerations=moment.accelerations.copy(),
        )
        for moment in itertools.islice(ef.flight(start, controller, **options), steps)
    ]
