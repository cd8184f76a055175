"""Shapes of obstacles: rings and walls of obstacle agents, and adding one to a flock with its own number."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from equiflock.flock import NO_GROUP, Condition, Flock, Role
from equiflock.runtime.checks import InputError, check_count, check_positive, shorten_repr
from equiflock.runtime.jit import Array

Points = Float64[np.ndarray, "count 2"]


def ring(
    centre: Sequence[float] | Array,
    radius: float,
    *,
    sides: int | None = None,
    spacing: float | None = None,
    first: float = 0.0,
) -> Points:
    """Where the agents around a disk stand: on the corners of a regular polygon whose circumcircle is the disk's rim.

    Args:
        centre: the disk's centre, (2,).
        radius: the disk's radius.
        sides: the number of corners, at least 3.
        spacing: in place of `sides`, the length of a side, which is met as nearly as possible.
        first: the angle at which the first agent stands, in radians.
    """
    check_positive("radius", radius)
    if (sides is None) == (spacing is None):
        raise InputError("a ring takes either sides or spacing")
    if sides is None:
        # A side of length l spans the angle 2 asin(l / 2r) at the centre.
        half = math.asin(min(check_positive("spacing", spacing or 0.0) / (2.0 * radius), 1.0))
        sides = max(round(math.pi / half), 3)
    check_count("sides", sides, least=3)
    angles = first + 2.0 * math.pi * np.arange(sides) / sides
    return np.asarray(centre) + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def polygon_radius(sides: int, length: float) -> float:
    """The circumradius of a regular polygon with so many sides of that length: length / (2 sin(pi / sides))."""
    return length / (2.0 * math.sin(math.pi / sides))


def wall(begin: Sequence[float] | Array, end: Sequence[float] | Array, spacing: float) -> Points:
    """Where the agents of a straight wall stand: at both ends, and between them at most `spacing` apart."""
    check_positive("spacing", spacing)
    begin, end = np.asarray(begin, np.float64), np.asarray(end, np.float64)
    # Rounding must not add a piece to a wall that is a whole number of spacings long.
    pieces = max(math.ceil(math.hypot(*(end - begin)) / spacing - 1e-9), 1)
    points: Points = begin + np.arange(pieces + 1)[:, None] / pieces * (end - begin)
    return points


def add_obstacle(flock: Flock, points: Float64[np.ndarray, "*B count 2"]) -> Flock:
    """The flock with one more obstacle, whose agents come after all others.

    Args:
        flock: B flocks in the plane, with obstacles or without.
        points: where the agents of the new obstacle stand, (count, 2) for all flocks, or (B, count, 2) for each.
    """
    B, _, D = flock.shape
    points = np.asarray(points, np.float64)
    if D != 2 or points.ndim not in (2, 3) or points.shape[-1] != 2 or (points.ndim == 3 and len(points) != B):
        raise InputError(
            f"an obstacle is points (count, 2) or ({B}, count, 2) for flocks in the plane; got {shorten_repr(points)}"
        )
    # The number after the largest one so far; in a flock without obstacles all are -1.
    points = np.broadcast_to(points, (B, *points.shape[-2:]))
    number = int(flock.obstacles.max()) + 1
    crew = (np.full(points.shape[:2], code) for code in (Role.OBSTACLE, number, NO_GROUP, Condition.WORKING))
    added = points, np.zeros_like(points), *crew
    joined = (np.concatenate(arrays, axis=1) for arrays in zip(flock.arrays, added, strict=True))
    return Flock(*joined, comm_radius=flock.comm_radius)
