"""Shapes of obstacles: rings and walls of obstacle agents, and adding one to a flock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from equiflock._runtime.checks import InputError, check_count, check_positive, shorten_repr
from equiflock._runtime.jit import Array
from equiflock.flock import NO_GROUP, Condition, Flock, FlockArrays, Role
from equiflock.observations.orbit import Orbit
from equiflock.scenarios.random_disk import RandomDisk, Stop, check_disk

Points = Float64[np.ndarray, "count 2"]


def ring(
    centre: Sequence[float] | Array,
    radius: float,
    *,
    sides: int | None = None,
    spacing: float | None = None,
    first: float = 0.0,
) -> Points:
    """Return the positions of obstacle agents around a disk: a regular polygon whose circumcircle is the disk's rim.

    Args:
        centre: centre of the disk, (2,).
        radius: radius of the disk.
        sides: number of corners, at least 3. Either this or `spacing` must be given.
        spacing: length of a side, instead of `sides`; rounded to a whole number of sides, at least 3.
        first: angle of the first agent, in radians.
    """
    check_positive("radius", radius)
    if (sides is None) == (spacing is None):
        raise InputError(f"a ring takes either sides or spacing; got sides = {sides}, spacing = {spacing}")
    if sides is None:
        # A side of length l spans the angle 2 asin(l / 2r) at the centre.
        half = math.asin(min(check_positive("spacing", spacing or 0.0) / (2.0 * radius), 1.0))
        sides = max(round(math.pi / half), 3)
    check_count("sides", sides, least=3)
    angles = first + 2.0 * math.pi * np.arange(sides) / sides
    return np.asarray(centre) + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def polygon_radius(sides: int, length: float) -> float:
    """Return the circumradius of a regular polygon with sides of that length: length / (2 sin(pi / sides))."""
    return length / (2.0 * math.sin(math.pi / sides))


def wall(begin: Sequence[float] | Array, end: Sequence[float] | Array, spacing: float) -> Points:
    """Return positions (count, 2) of obstacle agents along a wall: even, with both ends, at most `spacing` apart."""
    check_positive("spacing", spacing)
    begin, end = np.asarray(begin, np.float64), np.asarray(end, np.float64)
    # Rounding must not add a segment to a wall that is a whole number of spacings long.
    segments = max(math.ceil(math.hypot(*(end - begin)) / spacing - 1e-9), 1)
    points: Points = begin + np.arange(segments + 1)[:, None] / segments * (end - begin)
    return points


def add_obstacle(flock: Flock, points: Float64[np.ndarray, "*B count 2"]) -> Flock:
    """Return a new flock with one more obstacle, with the next number, whose agents come after all others.

    Args:
        flock: B flocks in the plane, with obstacles or without.
        points: positions of the new obstacle agents, (count, 2) for all flocks, or (B, count, 2) for each.
    """
    B, _, D = flock.shape
    points = np.asarray(points, np.float64)
    if D != 2 or points.ndim not in (2, 3) or points.shape[-1] != 2 or (points.ndim == 3 and len(points) != B):
        raise InputError(
            f"an obstacle is points (count, 2) or ({B}, count, 2) for flocks in the plane; got {shorten_repr(points)}"
        )
    # The number of the new obstacle follows the largest so far, which is -1 in a flock without obstacles.
    points = np.broadcast_to(points, (B, *points.shape[-2:]))
    number = int(flock.obstacles.max()) + 1
    codes = (np.full(points.shape[:2], code) for code in (Role.OBSTACLE, number, NO_GROUP, Condition.WORKING))
    obstacle = FlockArrays(points, np.zeros_like(points), *codes)
    joined = (np.concatenate(arrays, axis=1) for arrays in zip(flock.arrays, obstacle, strict=True))
    return Flock(*joined, comm_radius=flock.comm_radius)


# Setup of obstacle courses: agents that can lead, redrawing flocks with too few of them, and checks.

MAX_REDRAWS = 100
"""Most flocks drawn until one has enough agents that can lead."""

Point = Float64[np.ndarray, "2"]


def find_possible_leaders(
    positions: Array, heading: Point, centres: Points, clearance: float
) -> Int64[np.ndarray, " candidates"]:
    """Return the indices of agents whose straight path stays at least `clearance` from all centres (count, 2).

    The path is the whole line along the heading, a unit vector, ahead of the agent and behind.
    """
    # The distance of a centre from an agent's path is the offset perpendicular to the heading.
    candidates: Int64[np.ndarray, " candidates"] = np.flatnonzero(
        np.all([np.abs(compute_lateral_offset(heading, positions - centre)) >= clearance for centre in centres], axis=0)
    )
    return candidates


def redraw_positions(disk: RandomDisk, b: int, attempt: int, stop: Stop) -> Array:
    """Draw the positions (N, 2) of another flock in place of flock b; they depend on b and `attempt`."""
    # A separate split gives a separate random stream, so that other flocks do not depend on this redraw.
    redraw = replace(disk, flocks=1, split=f"{disk.split}, flock {b} again {attempt}")
    return np.asarray(redraw.draw(stop).positions[0])


def check_course(disk: RandomDisk, sides: int, leaders: int, orbit: Orbit | None) -> None:
    """Raise InputError if options of an obstacle course are invalid.

    It needs D = 2, R_min above 0, at least 3 agents, 3 sides and 1 leader, and an `Orbit` or None.
    """
    check_disk(disk)
    check_count("sides", sides, least=3)
    check_count("leaders", leaders)
    if orbit is not None and not isinstance(orbit, Orbit):
        raise InputError(f"orbit must be an equiflock.Orbit, or None; got {shorten_repr(orbit)}")
    if disk.dimensions != 2:
        raise InputError(f"an obstacle course needs dimensions = 2; got {disk.dimensions}")
    if disk.min_separation == 0 or disk.agents < 3:
        raise InputError(
            "an obstacle course needs min_separation above 0, the length of an obstacle's sides, and at least 3 "
            f"agents; got min_separation = {disk.min_separation:g}, agents = {disk.agents}"
        )


def compute_lateral_offset(heading: Point, vectors: Array) -> Any:
    """Return the component (n,) of vectors (n, 2) to the left of the heading, a unit vector; negative to the right."""
    return heading[0] * vectors[:, 1] - heading[1] * vectors[:, 0]
