"""The double integrator of the paper, with optional limits, drag, actuator lag and gusts.

With a constant command u, a constant gust g, actuators of the rate l = 1 / lag, and drag of the rate k,

    a'(t) = l (u - a(t)),    v'(t) = a(t) + g - k v(t),    r'(t) = v(t),

so after a time t

    a(t) = u + (a(0) - u) e^(-l t)
    v(t) = v(0) e^(-k t) + (u + g) decay(k) + (a(0) - u) cascade(k, l)
    r(t) = r(0) + v(0) decay(k) + (u + g) travel(k, 0) + (a(0) - u) travel(k, l)

with the integrals `integrate_decay`, `integrate_cascade` and `integrate_travel` below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError, check_count
from equiflock._runtime.jit import Array, Index, kernel
from equiflock._runtime.randomness import hash_combine, hash_seed, hash_to_normal
from equiflock.bodies.limits import (
    check_limits,
    check_not_negative,
    compute_clamp_factor,
    resolve_limit,
    run_over_agents,
)
from equiflock.bodies.registry import body
from equiflock.flock import FOLLOWER, LEADER, Flock
from equiflock.protocols import BodyStep

QUADRATURE_LIMIT = 0.5
"""Rate times time below which a difference of integrals loses digits, and quadrature with 8 nodes loses none."""
QUADRATURE_NODES, QUADRATURE_WEIGHTS = (values.tolist() for values in np.polynomial.legendre.leggauss(8))
GUST_STREAM = 0x67757374
"""First word of the hashes of gusts, which keeps them apart from other random numbers of the same seed."""
EMPTY_ACTUATORS, NO_AGENT_IDS = np.empty((0, 0, 0)), np.empty(0, np.int64)
"""Placeholders for arrays that a kernel does not read."""


class StepFactors(NamedTuple):
    """Factors of the equations above for one step."""

    time_step: float
    velocity_decay: float
    """e^(-k t)."""
    velocity_gain: float
    """decay(k)."""
    position_gain: float
    """travel(k, 0)."""
    actuator_decay: float
    """e^(-l t)."""
    velocity_lag_gain: float
    """cascade(k, l)."""
    position_lag_gain: float
    """travel(k, l)."""


@lru_cache(maxsize=256)
def compute_step_factors(drag: float, lag: float, time_step: float) -> StepFactors:
    """Return the factors of a step, cached. Without lag a(0) = u, and the factors of a(0) - u are 0."""
    velocity_decay, position_gain = math.exp(-drag * time_step), integrate_travel(drag, 0.0, time_step)
    factors = StepFactors(time_step, velocity_decay, integrate_decay(drag, time_step), position_gain, 0.0, 0.0, 0.0)
    if lag == 0.0:
        return factors
    rate = 1.0 / lag
    return factors._replace(
        actuator_decay=math.exp(-rate * time_step),
        velocity_lag_gain=integrate_cascade(drag, rate, time_step),
        position_lag_gain=integrate_travel(drag, rate, time_step),
    )


def integrate_decay(rate: float, time: float) -> float:
    """Return the integral of e^(-rate s) over s from 0 to time."""
    return time if rate * time < 1e-17 else -math.expm1(-rate * time) / rate


def integrate_cascade(drag: float, lag_rate: float, time: float) -> float:
    """Return the integral of e^(-drag (time - s)) e^(-lag_rate s) over s from 0 to time; the rates may be swapped."""
    # The slower exponential is taken out of the integral, which prevents overflow.
    return math.exp(-min(drag, lag_rate) * time) * integrate_decay(abs(drag - lag_rate), time)


def integrate_travel(drag: float, lag_rate: float, time: float) -> float:
    """Return the integral of cascade(drag, lag_rate, s) over s from 0 to time."""
    slow, fast = sorted((drag, lag_rate))
    if fast == 0.0:
        return 0.5 * time * time
    if fast * time > QUADRATURE_LIMIT:
        return (integrate_decay(slow, time) - integrate_cascade(drag, lag_rate, time)) / fast
    half = 0.5 * time
    return half * sum(
        w * integrate_cascade(drag, lag_rate, half * (1.0 + x))
        for x, w in zip(QUADRATURE_NODES, QUADRATURE_WEIGHTS, strict=True)
    )


@body("double-integrator")
@dataclass(frozen=True)
class DoubleIntegrator:
    """The double integrator, exact for an acceleration that is constant during the step:

    r(t + dt) = r(t) + v(t) dt + a(t) dt^2 / 2,    v(t + dt) = v(t) + a(t) dt

    With limits, drag, lag or gusts, a follows from the command, and the step is still exact for a constant command and
    gust (equations in `equiflock.bodies.double_integrator`). A body with lag has the state "actuators" (B, N, D), the
    present accelerations without gusts.
    """

    max_acceleration: float | None = None
    """Largest 2-norm of the acceleration; larger commands are scaled down. None: no limit."""
    max_speed: float | None = None
    """Largest 2-norm of the velocity; larger velocities are scaled down after the step. None: no limit."""
    drag: float = 0.0
    """Decay rate of the velocity, per second."""
    lag: float = 0.0
    """Time constant, in seconds, of the first-order actuators through which accelerations follow commands."""
    gust: float = 0.0
    """Standard deviation of each entry of a random acceleration, drawn at every step."""
    seed: int = 0
    """Seed of the gusts."""

    def __post_init__(self) -> None:
        check_limits(self, "max_acceleration", "max_speed")
        check_not_negative(self, "drag", "lag", "gust")
        check_count("seed", self.seed, least=0)

    @cached_property
    def is_ideal(self) -> bool:
        """Whether this is the paper's body, which executes every command at once and exactly."""
        limited = self.max_acceleration is not None or self.max_speed is not None
        return not (limited or self.drag or self.lag or self.gust)

    def init_state(self, flock: Flock) -> dict[str, NDArray[Any]]:
        """Return the state beyond position and velocity: actuators at rest if there is lag, otherwise nothing."""
        return {"actuators": np.zeros(flock.shape)} if self.lag > 0.0 else {}

    def advance(self, step: BodyStep) -> None:
        """Move the active flocks by one time step, in place.

        Followers obey commands, leaders keep their velocity, obstacle agents stand still. Raise InputError if the body
        has lag and the state has no "actuators". Only gusts depend on `step.number` and `step.agent_ids`.
        """
        if self.is_ideal:
            run_over_agents(advance_agents, step, (step.time_step,))
            return
        if self.lag > 0.0 and "actuators" not in step.state:
            raise InputError(
                'advance of a body with lag needs state["actuators"]: pass the state that init_state returned'
            )
        actuators = step.state["actuators"] if self.lag > 0.0 else EMPTY_ACTUATORS
        agent_ids = NO_AGENT_IDS if step.agent_ids is None else step.agent_ids
        if self.gust > 0.0 and step.agent_ids is None:
            agent_ids = np.arange(step.positions.shape[1])
        limits = resolve_limit(self.max_acceleration), resolve_limit(self.max_speed)
        gusts = agent_ids, float(self.gust), self.seed, step.number
        factors = tuple(compute_step_factors(self.drag, self.lag, step.time_step))
        run_over_agents(advance_limited_agents, step, (actuators, limits, gusts, factors))


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
    """Move agents first .. last - 1 of the active flocks by one step of the ideal body, in place.

    Leaders keep their velocity, obstacle agents stand still.
    """
    # dt^2 / 2, once for all agents.
    half_square = 0.5 * time_step * time_step
    for b in active:
        for i in range(first, last):
            for d in range(positions.shape[2]):
                # Followers: r + v dt + a dt^2 / 2, then v + a dt. Leaders: a = 0. Obstacle agents stand still.
                # The position comes first, as it needs the velocity before the step.
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
    limits: tuple[float, ...],
    gusts: tuple[Any, ...],
    factors: tuple[float, ...],
    active: Array,
    first: Index,
    last: Index,
) -> None:
    """Move agents first .. last - 1 of the active flocks by one step with limits, drag, lag and gusts, in place.

    These act on followers only: leaders keep their velocity, obstacle agents stand still. An agent whose velocity is
    clamped moves by the mean of its velocities before and after.

    `actuators` (B, N, D) are the present accelerations, empty if there is no lag. `limits` are the largest 2-norms of
    acceleration and velocity. `gusts` are the ids of agents, (N,) int64, or (0,) without gusts, the deviation of each
    entry, the seed, and the number of the step. `factors` are the `StepFactors`. Plain tuples are faster to pass from
    Python.
    """
    max_acceleration, max_speed = limits
    agent_ids, gust, seed, step_number = gusts
    time_step, velocity_decay, velocity_gain, position_gain, actuator_decay, velocity_lag_gain, position_lag_gain = (
        factors
    )
    D = positions.shape[2]
    lags = actuators.size > 0
    velocity, displacement = np.empty(D), np.empty(D)
    for b in active:
        step_hash = hash_combine(hash_combine(hash_combine(hash_seed(seed), GUST_STREAM), b), step_number)
        for i in range(first, last):
            # Leaders keep their velocity and are not subject to gusts. Obstacle agents stand still.
            if roles[b, i] == LEADER:
                for d in range(D):
                    positions[b, i, d] += velocities[b, i, d] * time_step
            if roles[b, i] != FOLLOWER:
                continue
            # The command u, clamped, and u + g with the gust of this agent at this step.
            clamp_factor = compute_clamp_factor(accelerations, b, i, max_acceleration)
            agent_hash = hash_combine(step_hash, agent_ids[i]) if gust > 0.0 else step_hash
            for d in range(D):
                command = clamp_factor * accelerations[b, i, d]
                total = command + gust * hash_to_normal(agent_hash, d) if gust > 0.0 else command
                # v and r under a constant command, then the terms in a(0) - u of the lagging actuators.
                velocity[d] = velocities[b, i, d]
                displacement[d] = velocity[d] * velocity_gain + total * position_gain
                velocities[b, i, d] = velocity[d] * velocity_decay + total * velocity_gain
                if lags:
                    difference = actuators[b, i, d] - command
                    displacement[d] += difference * position_lag_gain
                    velocities[b, i, d] += difference * velocity_lag_gain
                    actuators[b, i, d] = command + difference * actuator_decay
            # The velocity, clamped; an agent whose velocity was clamped moves by the mean of its old and new velocity.
            clamp_factor = compute_clamp_factor(velocities, b, i, max_speed)
            for d in range(D):
                if clamp_factor < 1.0:
                    velocities[b, i, d] *= clamp_factor
                    displacement[d] = 0.5 * (velocity[d] + velocities[b, i, d]) * time_step
                positions[b, i, d] += displacement[d]
