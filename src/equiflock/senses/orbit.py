"""What a follower makes of an obstacle agent's position: the orbit technique (section 5, "Obstacle avoidance").

With r = r_j - r_i the way from follower i to the obstacle agent j, w the mean velocity of i and the flock agents that
it hears, R(.) a rotation, and the discriminant gamma(r, w, angle) = (r / |r|) . R(angle) (w / |w|), the follower takes
for the relative velocity of the obstacle agent

    -v_ij = alpha_1(|r|, |w|) r / |r|                                           if -alpha_2 <= gamma(r, w, 0) <= 0
    -v_ij = -sgn(gamma(r, w, pi/2)) alpha_1(|r|, |w|) R(alpha_theta) r / |r|    else

so that whoever heads for the obstacle dodges it, and whoever passes it bends around it. sgn(0) is 1; the discriminant
is 0 where w is, and a follower on top of an obstacle agent takes 0 for its relative velocity.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from equiflock.flock import OBSTACLE
from equiflock.orbit_technique import Orbit as Orbit
from equiflock.runtime.jit import Array, Index, inline_kernel

NO_ORBIT = (0.0, 0.0, 0.0, 0.0, 0.0)
"""In place of `Orbit.coefficients`, where obstacle agents are heard as what they are: agents that stand still."""


@inline_kernel
def virtual_velocity(x: float, y: float, u: float, v: float, coefficients: Any) -> tuple[float, float]:
    """v_ij as follower i takes it, from the way (x, y) to the obstacle agent and the mean velocity (u, v)."""
    gravity_break, cosine, sine, near, slow = coefficients
    # |r| and |w|, and r / |r| in place of r.
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
    # The second case: sgn(gamma(r, w, pi/2)) alpha_1, times r / |r| turned by alpha_theta.
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
    numbering: Any,
    obstacle_rule: Any,
) -> tuple[Index, Index, Index, float, float]:
    """Apply the obstacle rule to the obstacle agents among senders[begin : end] of the agent with record s.

    Args:
        s: its record.
        begin: where its list begins.
        end: where it ends.
        senders: the records of those heard; rewritten if only the nearest obstacle agent is heard: flock agents, then
            that one.
        record_positions: positions of all records in columns, (D, N) or longer.
        record_velocities: velocities of all records, (N, D).
        roles: (N,), of agents.
        numbering: (order, ranks): record s is agent order[s], whose number is ranks[order[s]], or order[s] itself if
            there are no ranks.
        obstacle_rule: whether only the nearest obstacle agent is heard, whether followers orbit, and `Orbit.coefficients`.

    Returns:
        Where the list ends now, the record of the nearest obstacle agent, how many obstacle agents have a relative
        velocity other than their own (0 without the technique), and the one that the nearest is taken to have; that of
        the others is 0.
    """
    order, agent_ids = numbering
    nearest_only, orbiting, coefficients = obstacle_rule
    # The sum of velocities begins with the follower's own, and counts the others in `flock`.
    u, v, flock, rim = record_velocities[s, 0], record_velocities[s, 1], 0, 0
    nearest, least, number = s, math.inf, np.int64(0)
    kept = begin
    # Find the nearest obstacle agent, add up the velocities of flock agents, and close the gaps in the list.
    for e in range(begin, end):
        j = np.uintp(senders[e])
        if roles[order[j]] == OBSTACLE:
            rim += 1
            square = (record_positions[0, j] - record_positions[0, s]) ** 2 + (
                record_positions[1, j] - record_positions[1, s]
            ) ** 2
            # Of several equally near, the first by number, whatever cell it is in.
            its = agent_ids[order[j]] if agent_ids.size > 0 else np.int64(order[j])
            if square < least or (square == least and its < number):
                nearest, least, number = j, square, its
        else:
            u, v, flock = u + record_velocities[j, 0], v + record_velocities[j, 1], flock + 1
            if nearest_only:
                senders[kept] = j
                kept += np.uintp(1)
    # No obstacle agent is heard: nothing changes.
    if least == math.inf:
        return end, s, 0, 0.0, 0.0
    # The nearest obstacle agent stands last, and counts once in |N_i|.
    if nearest_only:
        senders[kept] = nearest
        end, rim = kept + np.uintp(1), 1
    if not orbiting:
        return end, nearest, 0, 0.0, 0.0
    # The mean velocity of the follower and the flock agents that it hears decides which way to dodge.
    x, y = record_positions[0, nearest] - record_positions[0, s], record_positions[1, nearest] - record_positions[1, s]
    taken_x, taken_y = virtual_velocity(x, y, u / (flock + 1), v / (flock + 1), coefficients)
    return end, nearest, rim, taken_x, taken_y
