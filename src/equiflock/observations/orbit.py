"""The orbit technique: the virtual velocity of an obstacle agent (section 5, "Obstacle avoidance").

With r = r_j - r_i the vector from follower i to the obstacle agent j, w the mean velocity of i and its neighbours in
the flock, R(.) a rotation, and the discriminant gamma(r, w, angle) = (r / |r|) . R(angle) (w / |w|), the follower uses
as relative velocity of the obstacle agent

    -v_ij = alpha_1(|r|, |w|) r / |r|                                           if -alpha_2 <= gamma(r, w, 0) <= 0
    -v_ij = -sgn(gamma(r, w, pi/2)) alpha_1(|r|, |w|) R(alpha_theta) r / |r|    else

so that a follower that heads for the obstacle dodges it, and one that passes it bends around it. sgn(0) is 1; the
discriminant is 0 if w is, and the relative velocity is 0 if r is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from equiflock._runtime.checks import InputError, is_finite, shorten_repr
from equiflock._runtime.jit import Array, Index, inline_kernel
from equiflock.flock import OBSTACLE
from equiflock.graph.cell_list import Numbering

# Parameters of the orbit technique, by which followers avoid obstacles (section 5 of the paper, "Obstacle avoidance").
#
# `equiflock.observations.orbit` applies them. Weights tuned with other parameters store these in their metadata.


class OrbitCoefficients(NamedTuple):
    """The parameters of an `Orbit` as kernels take them."""

    gravity_break: float
    """alpha_2."""
    cosine: float
    """cos(alpha_theta)."""
    sine: float
    """sin(alpha_theta)."""
    near: float
    """The weight of e^(-|r|) in alpha_1."""
    slow: float
    """The weight of e^(-|w|) in alpha_1."""


@dataclass(frozen=True)
class Orbit:
    """Parameters of the orbit technique; the defaults are the paper's."""

    gravity_break: float = 0.5
    """alpha_2 in [0, 1]: a follower leaves its orbit the sooner, the smaller it is."""
    dodge_angle: float = math.pi / 2
    """alpha_theta in (0, pi/2], the dodge angle in radians. Only pi/2 is symmetric between left and right."""
    near: float = 1.0
    """Weight of e^(-|r|) in alpha_1(|r|, |w|) = near e^(-|r|) + slow e^(-|w|)."""
    slow: float = 1.0
    """Weight of e^(-|w|) in alpha_1(|r|, |w|) = near e^(-|r|) + slow e^(-|w|)."""

    def __post_init__(self) -> None:
        if not (is_finite(self.gravity_break) and 0.0 <= self.gravity_break <= 1.0):
            raise InputError(f"gravity_break must be from 0 to 1; got {shorten_repr(self.gravity_break)}")
        if not (is_finite(self.dodge_angle) and 0.0 < self.dodge_angle <= math.pi / 2):
            raise InputError(f"dodge_angle must be above 0 and at most pi/2; got {shorten_repr(self.dodge_angle)}")
        for name in ("near", "slow"):
            if not (is_finite(getattr(self, name)) and getattr(self, name) >= 0.0):
                raise InputError(
                    f"{name} must be a finite number of at least 0; got {shorten_repr(getattr(self, name))}"
                )

    @property
    def coefficients(self) -> OrbitCoefficients:
        """The parameters as kernels take them."""
        cosine, sine = math.cos(self.dodge_angle), math.sin(self.dodge_angle)
        return OrbitCoefficients(self.gravity_break, cosine, sine, self.near, self.slow)


NO_ORBIT = OrbitCoefficients(0.0, 0.0, 0.0, 0.0, 0.0)
"""The coefficients without the orbit technique, where obstacle agents stand still."""


class ObstacleRule(NamedTuple):
    """Which obstacle agents a follower observes, and with which velocity."""

    nearest_only: bool
    """Whether only the nearest obstacle agent is observed, rather than all."""
    is_orbiting: bool
    """Whether followers use the orbit technique."""
    orbit: OrbitCoefficients


class ObstacleSelection(NamedTuple):
    """The result of `select_obstacles` for one agent."""

    end: Index
    """Where the agent's list ends now."""
    nearest: Index
    """The record of the nearest obstacle agent; the agent's own if there is none."""
    count: Index
    """Obstacle agents whose relative velocity is replaced; 0 without the orbit technique."""
    vx: float
    """The virtual v_ij of the nearest obstacle agent along x; that of the others is 0."""
    vy: float
    """The same along y."""


@inline_kernel
def virtual_velocity(x: float, y: float, u: float, v: float, coefficients: OrbitCoefficients) -> tuple[float, float]:
    """Return the virtual v_ij, for r = (x, y) to the obstacle agent and the mean velocity w = (u, v); zero if r is."""
    gravity_break, cosine, sine, near, slow = coefficients
    # |r| and |w|; (x, y) becomes r / |r|.
    distance, speed = math.sqrt(x * x + y * y), math.sqrt(u * u + v * v)
    if distance == 0.0:
        return 0.0, 0.0
    x, y = x / distance, y / distance
    # gamma(r, w, 0) and gamma(r, w, pi/2).
    ahead, left = 0.0, 0.0
    if speed > 0.0:
        ahead, left = (x * u + y * v) / speed, (y * u - x * v) / speed
    # alpha_1(|r|, |w|).
    size = near * math.exp(-distance) + slow * math.exp(-speed)
    # The first case: v_ij = -alpha_1 r / |r|.
    if -gravity_break <= ahead <= 0.0:
        return -size * x, -size * y
    # The second case: sgn(gamma(r, w, pi/2)) alpha_1, times r / |r| rotated by alpha_theta.
    side = size if left >= 0.0 else -size
    return side * (cosine * x - sine * y), side * (sine * x + cosine * y)


@inline_kernel
def select_obstacles(
    s: Index,
    begin: Index,
    end: Index,
    senders: Array,
    record_positions: Array,
    record_velocities: Array,
    roles: Array,
    numbering: Numbering,
    obstacle_rule: ObstacleRule,
) -> ObstacleSelection:
    """Apply the obstacle rule to the obstacle agents among senders[begin : end] of the agent with record s.

    Args:
        s: the agent's record.
        begin: where its list begins.
        end: where its list ends.
        senders: the records of the neighbours; with `nearest_only` rewritten to flock agents, then the nearest obstacle
            agent.
        record_positions: (D, rows), positions of all records.
        record_velocities: (rows, D), velocities of all records.
        roles: (N,), of agents.
        numbering: the agents of the records.
        obstacle_rule: the rule.
    """
    order, agent_ids = numbering
    nearest_only = obstacle_rule.nearest_only
    # The sum of velocities begins with the follower's; `flock` counts the others.
    u, v, flock, obstacle_count = record_velocities[s, 0], record_velocities[s, 1], 0, 0
    nearest, least, nearest_id = s, math.inf, np.int64(0)
    kept = begin
    # Find the nearest obstacle agent, sum the velocities of flock agents, and close the gaps in the list.
    for e in range(begin, end):
        j = np.uintp(senders[e])
        if roles[order[j]] == OBSTACLE:
            obstacle_count += 1
            square = (record_positions[0, j] - record_positions[0, s]) ** 2 + (
                record_positions[1, j] - record_positions[1, s]
            ) ** 2
            # Of several equally near, the one with the smallest id, whatever its cell.
            agent_id = agent_ids[order[j]] if agent_ids.size > 0 else np.int64(order[j])
            if square < least or (square == least and agent_id < nearest_id):
                nearest, least, nearest_id = j, square, agent_id
        else:
            u, v, flock = u + record_velocities[j, 0], v + record_velocities[j, 1], flock + 1
            if nearest_only:
                senders[kept] = j
                kept += np.uintp(1)
    # Without an obstacle agent nothing changes.
    if least == math.inf:
        return ObstacleSelection(end, s, 0, 0.0, 0.0)
    # The nearest obstacle agent comes last, and counts once in |N_i|.
    if nearest_only:
        senders[kept] = nearest
        end, obstacle_count = kept + np.uintp(1), 1
    if not obstacle_rule.is_orbiting:
        return ObstacleSelection(end, nearest, 0, 0.0, 0.0)
    # The mean velocity of the follower and its neighbours in the flock decides which way to dodge.
    x, y = record_positions[0, nearest] - record_positions[0, s], record_positions[1, nearest] - record_positions[1, s]
    vx, vy = virtual_velocity(x, y, u / (flock + 1), v / (flock + 1), obstacle_rule.orbit)
    return ObstacleSelection(end, nearest, obstacle_count, vx, vy)
