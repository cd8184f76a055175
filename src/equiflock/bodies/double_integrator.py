"""The paper's body: an agent whose acceleration is what its controller commands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from equiflock.bodies.limits import check_limits, check_not_negative
from equiflock.flock import FOLLOWER, LEADER, Roles, Vectors
from equiflock.runtime import threads
from equiflock.runtime.checks import check_count
from equiflock.runtime.jit import Array, Index, kernel
from equiflock.runtime.threads import AGENTS_PER_THREAD


@dataclass(frozen=True)
class DoubleIntegrator:
    """The double integrator, which is exact for an acceleration held during the step:

    r(t + dt) = r(t) + v(t) dt + a(t) dt^2 / 2,    v(t + dt) = v(t) + a(t) dt
    """

    max_acceleration: float | None = None
    """The most that it can accelerate, as a 2-norm; a larger command is scaled back. None: no limit."""
    max_speed: float | None = None
    """The most that it can fly, as a 2-norm. None: no limit."""
    drag: float = 0.0
    """The rate, per second, at which its velocity decays by itself."""
    lag: float = 0.0
    """The time constant, in seconds, of first-order actuators, by which accelerations follow commands."""
    gust: float = 0.0
    """The standard deviation of each entry of a random acceleration, drawn anew at every step."""
    seed: int = 0
    """Seeds the gusts."""

    def __post_init__(self) -> None:
        check_limits(self, "max_acceleration", "max_speed")
        check_not_negative(self, "drag", "lag", "gust")
        check_count("seed", self.seed, least=0)

    def advance(
        self,
        positions: Vectors,
        velocities: Vectors,
        roles: Roles,
        accelerations: Vectors,
        time_step: float,
        active: Int64[np.ndarray, " active"],
    ) -> None:
        """Move the active flocks by one time step, in place (see `equiflock.protocols.Body`)."""
        # Threads share out the flocks, or the agents of a single one.
        # A step of the body costs little, so a thread is worth its start for ten times the usual number of agents only.
        N, least = positions.shape[1], 10 * AGENTS_PER_THREAD
        if len(active) * N < 2 * least:
            parts = [(active, 0, N)]
        elif len(active) > 1:
            parts = [(active[first:last], 0, N) for first, last in threads.split(len(active), least // N)]
        else:
            parts = [(active, first, last) for first, last in threads.split(N, least)]
        threads.share(
            advance_agents, [(positions, velocities, roles, accelerations, time_step, *part) for part in parts]
        )


@kernel
def advance_agents(
    positions: Array,
    velocities: Array,
    roles: Array,
    accelerations: Array,
    time_step: float,
    active: Array,
    first: Index,
    last: Index,
) -> None:
    """Move agents first .. last of the active flocks."""
    # dt^2 / 2, once for all agents.
    half_square = 0.5 * time_step * time_step
    for b in active:
        for i in range(first, last):
            for d in range(positions.shape[2]):
                # A follower: r + v dt + a dt^2 / 2, then v + a dt. A leader: a = 0. Obstacle agents stand still.
                # The position is advanced first, by the velocity before the step.
                if roles[b, i] == FOLLOWER:
                    acceleration = accelerations[b, i, d]
                    positions[b, i, d] += velocities[b, i, d] * time_step + acceleration * half_square
                    velocities[b, i, d] += acceleration * time_step
                elif roles[b, i] == LEADER:
                    positions[b, i, d] += velocities[b, i, d] * time_step
