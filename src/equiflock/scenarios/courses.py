"""What courses past obstacles share: who can lead, flocks in which too few can, and what a course needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from equiflock.runtime.checks import InputError, check_count, short
from equiflock.runtime.jit import Array
from equiflock.scenarios.random_disk import RandomDisk, check_disk
from equiflock.scenarios.search import Stop
from equiflock.scenarios.shapes import Points
from equiflock.senses.orbit import Orbit

REDRAWS = 100
"""How many flocks are tried for one in which enough agents can lead."""

Point = Float64[np.ndarray, "2"]


def able_to_lead(positions: Array, heading: Point, centres: Points, clearance: float) -> Int64[np.ndarray, " able"]:
    """The agents whose straight way along the heading, a unit vector, keeps that clear of all centres before them."""
    able: Int64[np.ndarray, " able"] = np.flatnonzero(
        np.all([np.abs(cross(heading, positions - centre)) >= clearance for centre in centres], axis=0)
    )
    return able


def drawn_again(disk: RandomDisk, b: int, attempt: int, stop: Stop) -> Array:
    """The positions of another flock in place of flock b, in which too few could lead."""
    other = replace(disk, flocks=1, split=f"{disk.split}, flock {b} again {attempt}")
    return np.asarray(other.draw(stop).positions[0])


def check_course(disk: RandomDisk, sides: int, leaders: int, orbit: Orbit | None) -> None:
    """Raise a clear error unless flocks of this disk can be led past polygons of obstacle agents."""
    check_disk(disk)
    check_count("sides", sides, least=3)
    check_count("leaders", leaders)
    if orbit is not None and not isinstance(orbit, Orbit):
        raise InputError(f"orbit must be an equiflock.Orbit, or None; got {short(orbit)}")
    if disk.dimensions != 2:
        raise InputError(f"an obstacle course is in the plane; got dimensions = {disk.dimensions}")
    if disk.min_separation == 0 or disk.agents < 3:
        raise InputError("an obstacle course needs min_separation above 0, its sides' length, and 3 agents")


def cross(heading: Point, vectors: Array) -> Any:
    """How far vectors reach to the left of the heading, a unit vector."""
    return heading[0] * vectors[:, 1] - heading[1] * vectors[:, 0]
