"""What an acceleration does to a flock, and when a flight is over."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int8, Int64

from equiflock import threads
from equiflock.checks import check_positive
from equiflock.graph import AGENTS_PER_THREAD, components
from equiflock.kernels import Array, Index, kernel
from equiflock.types import Flock, Outcome, Role, Roles, Vectors

FOLLOWER, LEADER = int(Role.FOLLOWER), int(Role.LEADER)


def advance(
    positions: Vectors,
    velocities: Vectors,
    roles: Roles,
    accelerations: Vectors,
    time_step: float,
    active: Int64[np.ndarray, " active"],
) -> None:
    """Move the active flocks by one time step, in place: the double integrator

        r(t + dt) = r(t) + v(t) dt + a(t) dt^2 / 2,    v(t + dt) = v(t) + a(t) dt

    for followers, which is exact for an acceleration held during the step. Leaders keep their velocity, obstacle
    agents stand still.

    Args:
        positions: (B, N, D), changed in place.
        velocities: (B, N, D), changed in place.
        roles: (B, N).
        accelerations: (B, N, D), read for followers only.
        time_step: dt > 0, in seconds.
        active: the indices of the flocks to move.
    """
    # One flock of a million agents, or a thousand flocks of a hundred: both are shared out evenly.
    _, N, _ = positions.shape
    if len(active) > 1:
        parts = [(active[first:last], 0, N) for first, last in threads.split(len(active), 10 * AGENTS_PER_THREAD // N)]
    else:
        parts = [(active, first, last) for first, last in threads.split(N, 10 * AGENTS_PER_THREAD)]
    threads.share(_advance, [(positions, velocities, roles, accelerations, time_step, *part) for part in parts])


@kernel
def _advance(
    positions: Array,
    velocities: Array,
    roles: Array,
    accelerations: Array,
    time_step: float,
    active: Array,
    first: Index,
    last: Index,
) -> None:
    half_square = 0.5 * time_step * time_step
    for b in active:
        for i in range(first, last):
            for d in range(positions.shape[2]):
                if roles[b, i] == FOLLOWER:
                    acceleration = accelerations[b, i, d]
                    positions[b, i, d] += velocities[b, i, d] * time_step + acceleration * half_square
                    velocities[b, i, d] += acceleration * time_step
                elif roles[b, i] == LEADER:
                    positions[b, i, d] += velocities[b, i, d] * time_step


@dataclass(frozen=True)
class UntilDisconnected:
    """Ends a flight as soon as its communication graph, taken without directions, is not connected.

    Args:
        radius: the communication radius R, if it shall be another than that of the flight.
    """

    radius: float | None = None

    def __post_init__(self) -> None:
        if self.radius is not None:
            check_positive("radius", self.radius)

    def __call__(self, time: float, flock: Flock, flying: Bool[np.ndarray, " B"]) -> Int8[np.ndarray, " B"]:
        """DISCONNECTED where a flying flock has more than one component."""
        outcomes = np.full(len(flock), Outcome.FLYING, np.int8)
        outcomes[flying] = np.where(
            components(flock[flying], self.radius).max(axis=1) > 0, Outcome.DISCONNECTED, Outcome.FLYING
        )
        return outcomes
