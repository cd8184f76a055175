"""The paper's body, an agent whose acceleration is what its controller commands, and what real ones make of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from equiflock.bodies.held import held_step
from equiflock.bodies.limits import check_limits, check_not_negative, limit, share_within
from equiflock.bodies.registry import body
from equiflock.bodies.sharing import share_agents
from equiflock.flock import FOLLOWER, LEADER, Flock, Roles, Vectors
from equiflock.runtime.arrays import ReadOnlyDict
from equiflock.runtime.checks import InputError, check_count
from equiflock.runtime.hashing import begin, blend, normal
from equiflock.runtime.jit import Array, Index, kernel

GUSTS = 0x67757374
"""Begins the hashes of gusts, so that they are not those of anything else with the same seed."""
NO_ACTUATORS, NO_RANKS = np.empty((0, 0, 0)), np.empty(0, np.int64)
"""Stand for arrays that a kernel does not look at."""
NO_STATE: Mapping[str, NDArray[Any]] = ReadOnlyDict()


@body("double-integrator")
@dataclass(frozen=True)
class DoubleIntegrator:
    """The double integrator, which is exact for an acceleration held during the step:

    r(t + dt) = r(t) + v(t) dt + a(t) dt^2 / 2,    v(t + dt) = v(t) + a(t) dt

    With limits, drag, lag or gusts a is what the actuators make of the command, and the step is still exact for a
    held command and gust (`equiflock.bodies.held` has the equations). What it remembers, if it lags: "actuators",
    (B, N, D), the accelerations now, gusts left out.
    """

    max_acceleration: float | None = None
    """The most that it can accelerate, as a 2-norm; a larger command is scaled back. None: no limit."""
    max_speed: float | None = None
    """The most that it can fly, as a 2-norm; a larger velocity is scaled back after the step. None: no limit."""
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

    @property
    def is_ideal(self) -> bool:
        """Whether it is the paper's: every command is obeyed, at once and exactly."""
        limited = self.max_acceleration is not None or self.max_speed is not None
        return not (limited or self.drag or self.lag or self.gust)

    def begin(self, flock: Flock) -> dict[str, NDArray[Any]]:
        """What it remembers beyond position and velocity: actuators that are at rest, if they lag."""
        return {"actuators": np.zeros(flock.shape)} if self.lag > 0.0 else {}

    def advance(
        self,
        positions: Vectors,
        velocities: Vectors,
        roles: Roles,
        accelerations: Vectors,
        time_step: float,
        active: Int64[np.ndarray, " active"],
        state: Mapping[str, NDArray[Any]] = NO_STATE,
        step: int = 0,
        ranks: Int64[np.ndarray, " N"] | None = None,
    ) -> None:
        """Move the active flocks by one time step, in place (see `equiflock.protocols.StatefulBody`)."""
        N = positions.shape[1]
        moved = positions, velocities, roles, accelerations
        if self.is_ideal:
            share_agents(advance_agents, (*moved, time_step), N, active)
            return
        if self.lag > 0.0 and "actuators" not in state:
            raise InputError("a body with lag remembers its actuators: advance needs the state that begin made")
        actuators = state["actuators"] if self.lag > 0.0 else NO_ACTUATORS
        # Only gusts ask who an agent is.
        if self.gust > 0.0:
            ranks = np.arange(N) if ranks is None else ranks
        limits = limit(self.max_acceleration), limit(self.max_speed)
        gusts = NO_RANKS if ranks is None else ranks, float(self.gust), self.seed, step
        law = limits, gusts, tuple(held_step(self.drag, self.lag, time_step))
        share_agents(advance_limited, (*moved, actuators, *law), N, active)


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


@kernel
def advance_limited(
    positions: Array,
    velocities: Array,
    roles: Array,
    accelerations: Array,
    actuators: Array,
    limits: Any,
    gusts: Any,
    held: Any,
    active: Array,
    first: Index,
    last: Index,
) -> None:
    """Move agents first .. last of the active flocks, by limits, drag, lag and gusts.

    Args:
        positions: (B, N, D), and so the three below.
        velocities: moved.
        roles: (B, N).
        accelerations: the commands.
        actuators: the accelerations now, which follow the commands; empty if there is no lag.
        limits: the largest acceleration and the largest speed.
        gusts: the caller's numbers of the agents, the standard deviation, the seed, and the number of the step.
        held: `HeldStep`.
        active: the flocks that fly.
        first: the first agent to move.
        last: the agent after the last one to move.
    """
    max_acceleration, max_speed = limits
    ranks, gust, seed, step = gusts
    time_step, velocity_kept, velocity_gained, way_pushed, actuators_kept, velocity_lagged, way_lagged = held
    D = positions.shape[2]
    lags = actuators.size > 0
    before, way = np.empty(D), np.empty(D)
    for b in active:
        of_step = blend(blend(blend(begin(seed), GUSTS), b), step)
        for i in range(first, last):
            # A leader keeps its velocity, and no wind moves it. Obstacle agents stand still.
            if roles[b, i] == LEADER:
                for d in range(D):
                    positions[b, i, d] += velocities[b, i, d] * time_step
            if roles[b, i] != FOLLOWER:
                continue
            # The command u, scaled back to what the body can do, and the gust of this agent at this step.
            share = share_within(accelerations, b, i, max_acceleration)
            of_agent = blend(of_step, ranks[i]) if gust > 0.0 else of_step
            for d in range(D):
                command = share * accelerations[b, i, d]
                push = command + gust * normal(of_agent, d) if gust > 0.0 else command
                # v and r under a held command, then what actuators that are still at another acceleration change.
                before[d] = velocities[b, i, d]
                way[d] = before[d] * velocity_gained + push * way_pushed
                velocities[b, i, d] = before[d] * velocity_kept + push * velocity_gained
                if lags:
                    behind = actuators[b, i, d] - command
                    way[d] += behind * way_lagged
                    velocities[b, i, d] += behind * velocity_lagged
                    actuators[b, i, d] = command + behind * actuators_kept
            # A velocity beyond the largest speed is scaled back, and the agent has flown by the mean of both.
            share = share_within(velocities, b, i, max_speed)
            for d in range(D):
                if share < 1.0:
                    velocities[b, i, d] *= share
                    way[d] = 0.5 * (before[d] + velocities[b, i, d]) * time_step
                positions[b, i, d] += way[d]
