"""Shapes of obstacles: rings and walls of obstacle agents, adding one to a flock, and finding the disks of a flock."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from equiflock._runtime.checks import InputError, check_count, check_positive, shorten_repr
from equiflock._runtime.jit import Array
from equiflock.flock import NO_GROUP, NO_OBSTACLE, Condition, Flock, FlockArrays, Role
from equiflock.scenarios.course_survey import WALL_TOLERANCE

Points = Float64[np.ndarray, "count 2"]
MAX_OBSTACLE_AGENTS = 1_000_000
"""Most agents of one obstacle."""


def ring(
    centre: Sequence[float] | Array,
    radius: float,
    *,
    sides: int | None = None,
    spacing: float | None = None,
    first: float = 0.0,
) -> Points:
    """Return the positions of obstacle agents around a disk: a regular polygon whose circumcircle is the disk's rim.

    Give either the number of `sides`, at least 3, or their length, `spacing`, which is rounded to a whole number of
    sides. `first` is the angle of the first agent, in radians.
    """
    check_positive("radius", radius)
    if (sides is None) == (spacing is None):
        raise InputError(f"a ring takes either sides or spacing; got sides = {sides}, spacing = {spacing}")
    if sides is None:
        sides = count_sides(radius, spacing or 0.0)
    check_obstacle_size(check_count("sides", sides, least=3))
    angles = first + 2.0 * math.pi * np.arange(sides) / sides
    return np.asarray(centre) + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def count_sides(radius: float, spacing: float) -> int:
    """Return the number of sides, at least 3, of a ring whose sides are about `spacing` long.

    Raise InputError if there are more than MAX_OBSTACLE_AGENTS.
    """
    # A side of length l spans the angle 2 asin(l / 2r) at the centre.
    half = math.asin(min(check_positive("spacing", spacing) / (2.0 * check_positive("radius", radius)), 1.0))
    exact_sides = math.pi / half if half > 0.0 else math.inf
    check_obstacle_size(exact_sides)
    return max(round(exact_sides), 3)


def check_obstacle_size(agents: float) -> None:
    """Raise InputError if an obstacle would have more than MAX_OBSTACLE_AGENTS agents."""
    if agents > MAX_OBSTACLE_AGENTS:
        raise InputError(
            f"an obstacle must have at most {MAX_OBSTACLE_AGENTS:,} agents; got {agents:.4g}: choose fewer sides, a "
            "smaller obstacle, or a larger distance between its agents (min_separation, spacing)"
        )


def polygon_radius(sides: int, length: float) -> float:
    """Return the circumradius of a regular polygon with sides of that length: length / (2 sin(pi / sides))."""
    return length / (2.0 * math.sin(math.pi / sides))


def wall(begin: Sequence[float] | Array, end: Sequence[float] | Array, spacing: float) -> Points:
    """Return positions (count, 2) of obstacle agents along a wall: even, with both ends, at most `spacing` apart."""
    check_positive("spacing", spacing)
    begin, end = np.asarray(begin, np.float64), np.asarray(end, np.float64)
    # Rounding must not add a segment to a wall that is a whole number of spacings long.
    exact_segments = math.hypot(*(end - begin)) / spacing - 1e-9
    check_obstacle_size(exact_segments)
    segments = max(math.ceil(exact_segments), 1)
    points: Points = begin + np.arange(segments + 1)[:, None] / segments * (end - begin)
    return points


def add_obstacle(flock: Flock, points: Float64[np.ndarray, "*B count 2"]) -> Flock:
    """Return flocks in the plane with one more obstacle, with the next number, whose agents come after all others.

    `points` are the positions of the new obstacle agents, (count, 2) for all flocks, or (B, count, 2) for each.
    """
    B, _, D = flock.shape
    points = np.asarray(points, np.float64)
    if D != 2 or points.ndim not in (2, 3) or points.shape[-1] != 2 or (points.ndim == 3 and len(points) != B):
        raise InputError(
            f"an obstacle is points (count, 2) or ({B}, count, 2) for flocks in the plane; got {shorten_repr(points)}"
        )
    return add_obstacles(flock, np.broadcast_to(points, (B, *points.shape[-2:]))[:, None])


def add_obstacles(flock: Flock, points: Float64[np.ndarray, "B M count 2"]) -> Flock:
    """Return flocks in the plane with M more obstacles of `count` agents each, as `add_obstacle` adds one."""
    B, M, count, _ = points.shape
    # The numbers of the new obstacles follow the largest so far, which is -1 in a flock without obstacles.
    numbers = np.repeat(np.arange(M) + int(flock.obstacles.max()) + 1, count)
    positions = points.reshape(B, M * count, 2)
    codes = (np.broadcast_to(code, (B, M * count)) for code in (Role.OBSTACLE, numbers, NO_GROUP, Condition.WORKING))
    obstacle = FlockArrays(positions, np.zeros_like(positions), *codes)
    joined = (np.concatenate(arrays, axis=1) for arrays in zip(flock.arrays, obstacle, strict=True))
    return Flock(*joined, comm_radius=flock.comm_radius)


def obstacle_disks(flock: Flock) -> Float64[np.ndarray, "M 3"]:
    """Return centre x, y and radius of the circle around each obstacle of a single flock, in order of their numbers.

    Walls, whose agents stand in one straight row, are omitted.
    """
    disks = []
    for points in _list_obstacles(flock):
        # The circle around the mean of the obstacle's agents, through the farthest of them.
        centre = points.mean(axis=0)
        if not _is_wall(points):
            disks.append([*centre, np.hypot(*(points - centre).T).max()])
    return np.array(disks).reshape(-1, 3)


def obstacle_walls(flock: Flock) -> Float64[np.ndarray, "M 4"]:
    """Return x, y of both ends of each wall of a single flock, in order of their numbers; single agents are omitted."""
    walls = []
    for points in _list_obstacles(flock):
        if len(points) > 1 and _is_wall(points):
            # Along the line, the ends come first and last: x decides, or y for a vertical wall.
            order = np.lexsort(points.T[::-1] if np.ptp(points[:, 0]) > np.ptp(points[:, 1]) else points.T)
            walls.append([*points[order[0]], *points[order[-1]]])
    return np.array(walls).reshape(-1, 4)


def _list_obstacles(flock: Flock) -> list[Points]:
    """Return the positions of the agents of each obstacle of a single flock, in order of their numbers."""
    (positions,), (numbers,) = flock.positions[:, :, :2], flock.obstacles
    return [positions[numbers == number] for number in np.unique(numbers[numbers != NO_OBSTACLE])]


def _is_wall(points: Points) -> bool:
    """Return whether an obstacle's agents stand in one straight row."""
    offsets = points - points.mean(axis=0)
    squares = np.square(offsets).sum(axis=1)
    # All agents are on the line through the centre and the farthest one: their cross products are zero.
    x, y = offsets[squares.argmax()]
    return bool(np.abs(x * offsets[:, 1] - y * offsets[:, 0]).max() <= WALL_TOLERANCE * squares.max())
