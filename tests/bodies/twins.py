"""Slow, obvious twins of the bodies: one agent at a time, straight from their equations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm

from equiflock._runtime.randomness import NORMAL_QUANTILES
from equiflock.bodies import DoubleIntegrator, Unicycle
from equiflock.bodies.double_integrator import GUST_STREAM
from equiflock.flock import Role
from tests.twins import hashed

Array = NDArray[Any]


def within(vector: Array, most: float | None) -> Array:
    """The vector, shortened to at most that norm."""
    norm = float(np.linalg.norm(vector))
    return vector if most is None or norm <= most else vector * (most / norm)


def gust(body: DoubleIntegrator, flock: int, step: int, agent: int, dimensions: int) -> Array:
    """The wind on an agent: for every entry one of 4,096 quantiles of the normal distribution."""
    h = hashed(body.seed, GUST_STREAM, flock, step, agent)
    return body.gust * np.array([float(NORMAL_QUANTILES[(h >> 12 * d) & 4095]) for d in range(dimensions)])


def double_integrator(
    body: DoubleIntegrator, known: tuple[Array, Array, Array], role: int, command: Array, dt: float, wind: Array
) -> tuple[Array, Array, Array]:
    """Position, velocity and actuators of one agent after a step, by the exponential of the motion's matrix."""
    r, v, a = known
    if role == Role.LEADER:
        return r + v * dt, v, a
    if role == Role.OBSTACLE:
        return known
    u = within(command, body.max_acceleration)
    rate = 1 / body.lag if body.lag > 0 else 0.0
    a = a if body.lag > 0 else u
    # The rates of change of (r, v, a, u, g), of which the last two are held.
    matrix = np.zeros((5, 5))
    matrix[0, 1] = 1
    matrix[1, 1], matrix[1, 2], matrix[1, 4] = -body.drag, 1, 1
    matrix[2, 2], matrix[2, 3] = -rate, rate
    later = expm(matrix * dt) @ np.stack([r, v, a, u, wind])
    velocity = within(later[1], body.max_speed)
    too_fast = not np.array_equal(velocity, later[1])
    return r + (v + velocity) / 2 * dt if too_fast else later[0], velocity, later[2]


def unicycle(
    body: Unicycle, known: tuple[Array, Array, float], role: int, command: Array, dt: float
) -> tuple[Array, Array, float]:
    """Position, velocity and heading of one agent after a step, with complex numbers for vectors."""
    r, v, heading = known
    if role == Role.OBSTACLE:
        return known
    speed = abs(complex(*v))
    heading = float(np.angle(complex(*v))) if speed > 0 else heading
    if role == Role.LEADER:
        return r + v * dt, v, heading
    # The turn from the heading to the velocity that is asked for, and as much of it as is possible.
    asked = complex(*(v + command * dt))
    turn = float(np.angle(asked * np.exp(-1j * heading))) if asked != 0 else 0.0
    most = np.inf if body.max_turn_rate is None else body.max_turn_rate * dt
    after = heading + float(np.clip(turn, -most, most))
    along = max((asked * np.exp(-1j * after)).real, 0.0)
    wanted = along if body.max_speed is None else min(along, body.max_speed)
    change = np.inf if body.max_acceleration is None else body.max_acceleration * dt
    new = float(np.clip(wanted, speed - change, speed + change)) * np.exp(1j * after)
    velocity = np.array([new.real, new.imag])
    return r + (v + velocity) / 2 * dt, velocity, after
