"""Start of an obstacle course: flocks that fly towards obstacles, with leaders whose path is clear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from equiflock._runtime.checks import InputError, check_count, shorten_repr
from equiflock._runtime.jit import Array
from equiflock._runtime.randomness import make_rng
from equiflock.flock import Flock, Role
from equiflock.observations.orbit import Orbit
from equiflock.scenarios.obstacle_shapes import Points, check_obstacle_size
from equiflock.scenarios.random_disk import MAX_AGENTS, RandomDisk, Stop, check_disk
from equiflock.scenarios.success_measure import compute_working_share

MAX_REDRAWS = 100
"""Most flocks drawn until one has enough agents that can lead."""
Point = Float64[np.ndarray, "2"]


COURSE_REQUIREMENT = "stays connected past obstacles"


class CourseStart(NamedTuple):
    """Flocks before obstacles. The velocity of all agents is the flock's heading, a unit vector."""

    flock: Flock
    headings: Float64[np.ndarray, "B 2"]
    centres: Float64[np.ndarray, "B obstacles 2"]
    """Centres of the obstacles of each flock."""


def draw_course(
    disk: RandomDisk,
    leaders: int,
    clearance: float,
    place_obstacles: Callable[[Array, np.random.Generator], tuple[Point, Points]],
    stream: str,
    obstacles: str,
    stop: Stop | None,
) -> CourseStart:
    """Draw flocks of `disk`, place obstacles before them, and draw leaders among the agents with a clear path.

    A flock with too few such agents, whose straight path stays at least `clearance` from all centres, is drawn again.
    `place_obstacles` returns heading and centres (count, 2) for positions (N, 2) and random numbers of the named
    `stream`. Raise InputError, with the description `obstacles`, if too few agents can lead in `MAX_REDRAWS` draws.
    """
    stop = stop or Stop()
    starts = []
    for b, positions in enumerate(disk.draw(stop).positions):
        rng = make_rng(disk.seed, stream, disk.split, b)
        for attempt in range(MAX_REDRAWS):
            stop.check()
            heading, centres = place_obstacles(positions, rng)
            candidates = _find_possible_leaders(positions, heading, centres, clearance)
            if len(candidates) >= leaders:
                break
            # A separate split gives a separate random stream, so that other flocks do not depend on this redraw.
            redraw = replace(disk, flocks=1, split=f"{disk.split}, flock {b} again {attempt}")
            positions = redraw.draw(stop).positions[0]
        else:
            raise InputError(
                f"none of {MAX_REDRAWS} flocks has {leaders} agents that can lead past {obstacles}: choose fewer sides "
                "or leaders, or more agents"
            )
        roles = np.full(len(positions), Role.FOLLOWER, np.int8)
        roles[rng.choice(candidates, leaders, replace=False)] = Role.LEADER
        starts.append((positions, np.broadcast_to(heading, positions.shape), roles, heading, centres))
    positions, velocities, roles, headings, centres = (np.stack(part) for part in zip(*starts, strict=True))
    return CourseStart(Flock(positions, velocities, roles, comm_radius=disk.comm_radius), headings, centres)


def _find_possible_leaders(positions: Array, heading: Point, centres: Points, clearance: float) -> Any:
    """Return the indices of agents whose path, the whole line along the heading, is `clearance` from all centres."""
    is_clear = np.ones(len(positions), bool)
    for centre in centres:  # one after the other, as there may be thousands of both
        is_clear &= np.abs(compute_lateral_offset(heading, positions - centre)) >= clearance
    return np.flatnonzero(is_clear)


def compute_lateral_offset(heading: Point, vectors: Array) -> Any:
    """Return the component (n,) of vectors (n, 2) to the left of the heading, a unit vector; negative to the right."""
    return heading[0] * vectors[:, 1] - heading[1] * vectors[:, 0]


def check_course(disk: RandomDisk, sides: int, leaders: int, orbit: Orbit | None, obstacles: int = 1) -> None:
    """Raise InputError if options of a course are invalid: it needs D = 2, R_min above 0, and at least 3 agents.

    There are `obstacles` obstacles of `sides` agents each.
    """
    check_disk(disk)
    check_obstacle_size(check_count("sides", sides, least=3))
    if (total := disk.flocks * (disk.agents + obstacles * sides)) > MAX_AGENTS:
        raise InputError(f"flocks x agents, obstacle agents included, must be at most {MAX_AGENTS:,}; got {total:,}")
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


def compute_share_past_obstacles(flock: Flock) -> Float64[np.ndarray, " B"]:
    """Return the share of working agents that are beyond all obstacle agents along the flock's heading, (B,).

    The heading is that of the working leaders or, without any, of all working agents. NaN for a flock at rest, without
    working agents, or without obstacles.
    """
    leads = flock.working & (flock.roles == Role.LEADER)
    guides = np.where(leads.any(axis=1, keepdims=True), leads, flock.working)
    heading = flock.velocities.sum(axis=1, where=guides[..., None])
    along = np.einsum("bnd,bd->bn", flock.positions, heading)
    is_obstacle = flock.roles == Role.OBSTACLE
    rim = along.max(axis=1, where=is_obstacle, initial=-np.inf)
    is_defined = is_obstacle.any(axis=1) & heading.any(axis=1)
    return np.where(is_defined, compute_working_share(flock, along > rim[:, None]), np.nan)
