"""What courses past obstacles share: which agents can lead, redrawing flocks with too few of these, and checks."""

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
"""How many flocks are drawn, at most, until enough agents of one can lead."""

Point = Float64[np.ndarray, "2"]


def find_possible_leaders(
    positions: Array, heading: Point, centres: Points, clearance: float
) -> Int64[np.ndarray, " able"]:
    """The agents whose straight path along the heading, a unit vector, keeps that distance from all centres."""
    # The distance of a centre from an agent's path is the part of the offset across the heading.
    able: Int64[np.ndarray, " able"] = np.flatnonzero(
        np.all([np.abs(compute_lateral_offset(heading, positions - centre)) >= clearance for centre in centres], axis=0)
    )
    return able


def redraw_positions(disk: RandomDisk, b: int, attempt: int, stop: Stop) -> Array:
    """The positions of another flock in place of flock b, in which too few agents could lead."""
    # A split of its own gives a stream of its own, so that other flocks do not depend on this one being redrawn.
    other = replace(disk, flocks=1, split=f"{disk.split}, flock {b} again {attempt}")
    return np.asarray(other.draw(stop).positions[0])


def check_course(disk: RandomDisk, sides: int, leaders: int, orbit: Orbit | None) -> None:
    """Raise a clear error unless flocks of this disk can be led past polygons of obstacle agents."""
    check_disk(disk)
    check_count("sides", sides, least=3)
    check_count("leaders", leaders)
    if orbit is not None and not isinstance(orbit, Orbit):
        raise InputError(f"orbit must be an equiflock.Orbit, or None; got {shorten_repr(orbit)}")
    if disk.dimensions != 2:
        raise InputError(f"an obstacle course is in the plane; got dimensions = {disk.dimensions}")
    if disk.min_separation == 0 or disk.agents < 3:
        raise InputError("an obstacle course needs min_separation above 0, its sides' length, and 3 agents")


def compute_lateral_offset(heading: Point, vectors: Array) -> Any:
    """The component of vectors (n, 2) to the left of the heading, a unit vector."""
    return heading[0] * vectors[:, 1] - heading[1] * vectors[:, 0]
