"""The rules of safety limits for one agent, in plain loops: the slow, obvious twin of filters and exported agents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import equiflock as ef
from equiflock.features import Senses
from equiflock.flock import Flock, Role
from tests.twins import find_neighbours

Neighbour = tuple[Sequence[float], Sequence[float]]
"""Position and velocity."""
SENSES = Senses((("velocity", "mean"),), 1)


class Still:
    """A law whose accelerations are all zero: what its agents do is what the limits do."""

    name = "still"
    senses = SENSES

    def __call__(self, observations: Any) -> Any:
        return 0.0 * observations[:, :, 0, 0]


def limit_one(
    limits: ef.SafetyLimits,
    period: float,
    position: Sequence[float],
    velocity: Sequence[float],
    neighbours: Sequence[Neighbour],
    silence: float,
    acceleration: Sequence[float],
    unit: float = 1.0,
) -> list[float]:
    """Return the limited acceleration of one agent, which has received nothing for `silence` seconds.

    `unit` is the controller's unit of length: agents nearer than 1e-8 of it coincide.
    """
    p, v, a, D = list(map(float, position)), list(map(float, velocity)), list(map(float, acceleration)), len(position)
    T_b = max(limits.braking_time or 4 * period, period)
    if limits.max_silence is not None and silence >= limits.max_silence - 1e-6:
        a = [-c / T_b for c in v]
    a = shorten(a, limits.max_acceleration)
    if limits.min_separation is not None:
        d, s = limits.min_separation, [0.0] * D
        for r_j, v_j in neighbours:
            r, w = [p[k] - r_j[k] for k in range(D)], [v[k] - v_j[k] for k in range(D)]
            distance = max(math.sqrt(sum(c * c for c in r)), 1e-8 * unit)
            if distance < d:
                approach = max(0.0, -sum(r[k] * w[k] for k in range(D)) / distance)
                for k in range(D):
                    s[k] += r[k] / distance * (approach / T_b + (d - distance) / T_b**2)
        size = math.sqrt(sum(c * c for c in s))
        if size > 1e-4 * d / T_b**2:
            against = min(0.0, sum(a[k] * s[k] / size for k in range(D)))
            a = shorten([a[k] - against * s[k] / size + s[k] for k in range(D)], limits.max_acceleration)
    if limits.fence is not None:
        for side, corner in ((1.0, limits.fence[1]), (-1.0, limits.fence[0])):
            for k in range(D):
                x = side * (corner[k] - p[k])
                allowed = min(math.sqrt(limits.max_acceleration * abs(x)), abs(x) / (4 * T_b))
                most = ((allowed if x > 0 else -allowed) - side * v[k]) / T_b
                a[k] = side * min(side * a[k], most)
    if limits.max_speed is not None:
        planned = [v[k] + a[k] * period for k in range(D)]
        speed = math.sqrt(sum(c * c for c in planned))
        if speed > limits.max_speed:
            a = [(limits.max_speed * planned[k] / speed - v[k]) / period for k in range(D)]
    return shorten(a, limits.max_acceleration)


def shorten(vector: list[float], longest: float) -> list[float]:
    size = math.sqrt(sum(c * c for c in vector))
    return vector if size <= longest else [c * longest / size for c in vector]


def list_received(flock: Flock, b: int, agent: int, unit: float = 1.0) -> tuple[list[Neighbour], bool]:
    """Return what an agent of flock b receives by an ideal radio, and whether some of it is of no obstacle agent."""
    scaled = flock if unit == 1.0 else flock.in_units(unit, 1.0)
    senders = [j for j, is_sender in enumerate(find_neighbours(scaled, b, scaled.comm_radius)[agent]) if is_sender]
    states = [(flock.positions[b, j].tolist(), flock.velocities[b, j].tolist()) for j in senders]
    return states, any(flock.roles[b, j] != Role.OBSTACLE for j in senders)
