"""Setup of obstacle courses: agents that can lead, redrawing flocks with too few of them, and checks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from equiflock.runtime.checks import InputError, check_count, shorten_repr
from equiflock.runtime.jit import Array
from equiflock.scenarios.obstacle_shapes import Points
from equiflock.scenarios.random_disk import RandomDisk, check_disk
from equiflock.scenarios.search_control import Stop
from equiflock.senses.orbit import Orbit

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
