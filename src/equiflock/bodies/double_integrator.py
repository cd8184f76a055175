"""The paper's body, an agent whose acceleration is what its controller commands, and what real ones make of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from equiflock.bodies.agent_threads import run_over_agents
from equiflock.bodies.exact_step import compute_step_factors
from equiflock.bodies.limits import check_limits, check_not_negative, compute_clamp_factor, resolve_limit
from equiflock.bodies.registry import body
from equiflock.flock import FOLLOWER, LEADER, Flock, Roles, Vectors
from equiflock.runtime.arrays import ReadOnlyDict
from equiflock.runtime.checks import InputError, check_count
from equiflock.runtime.hashing import hash_combine, hash_seed, hash_to_normal
from equiflock.runtime.jit import Array, Index, kernel

GUST_STREAM = 0x67757374
"""Begins the hashes of gusts, so that they are not those of anything else with the same seed."""
EMPTY_ACTUATORS, NO_AGENT_IDS = np.empty((0, 0, 0)), np.empty(0, np.int64)
"""Stand for arrays that a kernel does not look at."""
EMPTY_STATE: Mapping[str, NDArray[Any]] = ReadOnlyDict()


@body("double-integrator")
@dataclass(frozen=True)
class DoubleIntegrator:
    """The double integrator, which is exact for an acceleration held during the step:

    r(t + dt) = r(t) + v(t) dt + a(t) dt^2 / 2,    v(t + dt) = v(t) + a(t) dt

    With limits, drag, lag or gusts a is what the actuators make of the command, and the step is still exact for a
    held command and gust (`equiflock.bodies.exact_step` has the equations). What it remembers, if it lags: "actuators",
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

    def init_state(self, flock: Flock) -> dict[str, NDArray[Any]]:
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
        state: Mapping[str, NDArray[Any]] = EMPTY_STATE,
        step: int = 0,
        agent_ids: Int64[np.ndarray, " N"] | None = None,
    ) -> None:
        """Move the active flocks by one time step, in place (see `equiflock.protocols.StatefulBody`)."""
        N = positions.shape[1]
        moved = positions, velocities, roles, accelerations
        if self.is_ideal:
            run_over_agents(advance_agents, (*moved, time_step), N, active)
            return
        if self.lag > 0.0 and "actuators" not in state:
            raise InputError("a body with lag remembers its actuators: advance needs the state that begin made")
        actuators = state["actuators"] if self.lag > 0.0 else EMPTY_ACTUATORS
        # Only gusts ask who an agent is.
        if self.gust > 0.0:
            agent_ids = np.arange(N) if agent_ids is None else agent_ids
        limits = resolve_limit(self.max_acceleration), resolve_limit(self.max_speed)
        gusts = NO_AGENT_IDS if agent_ids is None else agent_ids, float(self.gust), self.seed, step
        law = limits, gusts, tuple(compute_step_factors(self.drag, self.lag, time_step))
        run_over_agents(advance_limited_agents, (*moved, actuators, *law), N, active)


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
def advance_limited_agents(
    positions: Array,
    velocities: Array,
    roles: Array,
    accelerations: Array,
    actuators: Array,
    limits: Any,
    gusts: Any,
    factors: Any,
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
        factors: `StepFactors`.
        active: the flocks that fly.
        first: the first agent to move.
        last: the agent after the last one to move.
    """
    max_acceleration, max_speed = limits
    agent_ids, gust, seed, step = gusts
    time_step, velocity_decay, velocity_gain, position_gain, actuator_decay, velocity_lag_gain, position_lag_gain = (
        factors
    )
    D = positions.shape[2]
    lags = actuators.size > 0
    before, way = np.empty(D), np.empty(D)
    for b in active:
        of_step = hash_combine(hash_combine(hash_combine(hash_seed(seed), GUST_STREAM), b), step)
        for i in range(first, last):
            # A leader keeps its velocity, and no wind moves it. Obstacle agents stand still.
            if roles[b, i] == LEADER:
                for d in range(D):
                    positions[b, i, d] += velocities[b, i, d] * time_step
            if roles[b, i] != FOLLOWER:
                continue
            # The command u, scaled back to what the body can do, and the gust of this agent at this step.
            share = compute_clamp_factor(accelerations, b, i, max_acceleration)
            of_agent = hash_combine(of_step, agent_ids[i]) if gust > 0.0 else of_step
            for d in range(D):
                command = share * accelerations[b, i, d]
                push = command + gust * hash_to_normal(of_agent, d) if gust > 0.0 else command
                # v and r under a held command, then what actuators that are still at another acceleration change.
                before[d] = velocities[b, i, d]
                way[d] = before[d] * velocity_gain + push * position_gain
                velocities[b, i, d] = before[d] * velocity_decay + push * velocity_gain
                if lags:
                    behind = actuators[b, i, d] - command
                    way[d] += behind * position_lag_gain
                    velocities[b, i, d] += behind * velocity_lag_gain
                    actuators[b, i, d] = command + behind * actuator_decay
            # A velocity beyond the largest speed is scaled back, and the agent has flown by the mean of both.
            share = compute_clamp_factor(velocities, b, i, max_speed)
            for d in range(D):
                if share < 1.0:
                    velocities[b, i, d] *= share
                    way[d] = 0.5 * (before[d] + velocities[b, i, d]) * time_step
                positions[b, i, d] += way[d]
