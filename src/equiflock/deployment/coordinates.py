"""Coordinates of robots: vectors of a robot's own frame in the flock's, by its orientation, and north-east-down."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

Vector: TypeAlias = tuple[float, float, float]
UNIT_TOLERANCE = 0.01
"""Largest deviation of a quaternion's norm from 1."""


def rotate_by_quaternion(vector: Sequence[float], quaternion: Sequence[float]) -> Vector:
    """Return a vector (x, y, z) of a robot's own frame in the frame in which the robot has this orientation.

    The quaternion (x, y, z, w) has a norm near 1 (see `is_orientation`) and is normalized. With q = (x, y, z) the
    result is v + 2 w (q x v) + 2 q x (q x v).
    """
    norm = math.hypot(*quaternion)
    q, w = tuple(number / norm for number in quaternion[:3]), quaternion[3] / norm
    first = _cross(q, vector)
    second = _cross(q, first)
    x, y, z = (v + 2.0 * (w * a + b) for v, a, b in zip(vector, first, second, strict=True))
    return x, y, z


def is_orientation(quaternion: Sequence[float]) -> bool:
    """Return whether a quaternion is finite and has a norm of 1, within UNIT_TOLERANCE."""
    norm = math.hypot(*quaternion)
    return math.isfinite(norm) and abs(norm - 1.0) <= UNIT_TOLERANCE


def swap_ned_and_enu(vector: Sequence[float]) -> Vector:
    """Return a vector (north, east, down) as (east, north, up), or the other way round."""
    return float(vector[1]), float(vector[0]), -float(vector[2])


def _cross(a: Sequence[float], b: Sequence[float]) -> Vector:
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]
