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
from dataclasses import dataclass
from typing import Any

import numpy as np

from equiflock.checks import InputError, is_finite, short
from equiflock.kernels import Array, Index, inlined
from equiflock.types import Role

OBSTACLE = int(Role.OBSTACLE)


@dataclass(frozen=True)
class Orbit:
    """The numbers of the technique; the defaults are the paper's."""

    gravity_break: float = 0.5
    """alpha_2 in [0, 1]: the smaller, the sooner a follower leaves its orbit."""
    dodge_angle: float = math.pi / 2
    """alpha_theta in (0, pi/2], the angle of dodging. Only pi/2 treats left and right alike."""
    near: float = 1.0
    """The weight of e^(-|r|) in alpha_1(|r|, |w|) = near e^(-|r|) + slow e^(-|w|)."""
    slow: float = 1.0
    """The weight of e^(-|w|) in it."""

    def __post_init__(self) -> None:
        if not (is_finite(self.gravity_break) and 0.0 <= self.gravity_break <= 1.0):
            raise InputError(f"gravity_break must be from 0 to 1; got {short(self.gravity_break)}")
        if not (is_finite(self.dodge_angle) and 0.0 < self.dodge_angle <= math.pi / 2):
            raise InputError(f"dodge_angle must be above 0 and at most pi/2; got {short(self.dodge_angle)}")
        for name in ("near", "slow"):
            if not (is_finite(getattr(self, name)) and getattr(self, name) >= 0.0):
                raise InputError(f"{name} must be a finite number of at least 0; got {short(getattr(self, name))}")

    @property
    def numbers(self) -> tuple[float, float, float, float, float]:
        """What the kernel needs."""
        turn = math.cos(self.dodge_angle), math.sin(self.dodge_angle)
        return self.gravity_break, *turn, self.near, self.slow


STAND_STILL = (0.0, 0.0, 0.0, 0.0, 0.0)
"""In place of `Orbit.numbers`, where obstacle agents are heard as what they are: agents that stand still."""


@inlined
def taken_velocity(x: float, y: float, u: float, v: float, numbers: Any) -> tuple[float, float]:
    """v_ij as follower i takes it, from the way (x, y) to the obstacle agent and the mean velocity (u, v)."""
    gravity_break, cosine, sine, near, slow = numbers
    distance, speed = math.sqrt(x * x + y * y), math.sqrt(u * u + v * v)
    if distance == 0.0:
        return 0.0, 0.0
    x, y = x / distance, y / distance
    ahead, left = 0.0, 0.0
    if speed > 0.0:
        ahead, left = (x * u + y * v) / speed, (y * u - x * v) / speed
    size = near * math.exp(-distance) + slow * math.exp(-speed)
    if -gravity_break <= ahead <= 0.0:
        return -size * x, -size * y
    side = size if left >= 0.0 else -size
    return side * (cosine * x - sine * y), side * (sine * x + cosine * y)


@inlined
def hear_obstacles(
    s: Index, heard: Index, hits: Array, place: Array, motion: Array, roles: Array, numbering: Any, rules: Any
) -> tuple[Index, float, float]:
    """Sort out the obstacle agents among hits[:heard] of agent s.

    Returns how many of `hits` count now (all flock agents and, if only the nearest obstacle agent is heard, that one
    after them), and what to add to the sum of v_ij. With the technique only the nearest obstacle agent has a relative
    velocity, that which the follower takes it to have. `numbering` is (order, ranks): record s is agent order[s], whose
    number is ranks[order[s]], or order[s] itself if there are no ranks.
    """
    order, ranks = numbering
    nearest_only, orbiting, numbers = rules
    u, v, flock, rim = motion[s, 0], motion[s, 1], 0, 0
    nearest, least, number = s, math.inf, np.int64(0)
    kept = np.uintp(0)
    for h in range(heard):
        j = hits[h]
        if roles[order[j]] == OBSTACLE:
            rim += 1
            square = (place[j, 0] - place[s, 0]) ** 2 + (place[j, 1] - place[s, 1]) ** 2
            # Of several equally near, the first by number, whatever cell it is in.
            its = ranks[order[j]] if ranks.size > 0 else np.int64(order[j])
            if square < least or (square == least and its < number):
                nearest, least, number = j, square, its
        else:
            u, v, flock = u + motion[j, 0], v + motion[j, 1], flock + 1
            if nearest_only:
                hits[kept] = j
                kept += np.uintp(1)
    if least == math.inf:
        return heard, 0.0, 0.0
    if nearest_only:
        hits[kept] = nearest
        heard, rim = kept + np.uintp(1), 1
    if not orbiting:
        return heard, 0.0, 0.0
    x, y = place[nearest, 0] - place[s, 0], place[nearest, 1] - place[s, 1]
    taken_x, taken_y = taken_velocity(x, y, u / (flock + 1), v / (flock + 1), numbers)
    return heard, taken_x - rim * motion[s, 0], taken_y - rim * motion[s, 1]
