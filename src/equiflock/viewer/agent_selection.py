"""Which agents of a live flock are meant: by their role, by a place, or by the obstacle that they stand around."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float64

from equiflock.flock import NO_OBSTACLE, Flock, Role
from equiflock.runtime.checks import InputError
from equiflock.scenarios.until_passed import obstacle_disks

Mask = Bool[np.ndarray, " N"]


def select_role(flock: Flock, role: Role) -> Mask:
    """Which agents have this role."""
    return np.asarray(flock.roles[0] == role)


def select_controlled(flock: Flock) -> Mask:
    """Which agents fly as their controller says: followers, but those that stopped or drift."""
    return np.asarray(flock.effective_roles[0] == Role.FOLLOWER)


def compute_distances(flock: Flock, position: tuple[float, float]) -> Float64[np.ndarray, " N"]:
    """How far each agent is from a place."""
    return np.asarray(np.hypot(*(flock.positions[0] - position).T))


def select_obstacle(flock: Flock, number: int) -> Mask:
    """Which agents belong to the obstacle of a disk, counted as by `obstacle_disks`: walls are not counted."""
    obstacles = flock.obstacles[0]
    # Numbers are counted over disks, so an obstacle counts if it makes a disk together with the flock.
    members = [obstacles == each for each in np.unique(obstacles[obstacles != NO_OBSTACLE])]
    around = [mask for mask in members if len(obstacle_disks(keep_agents(flock, mask | (obstacles == NO_OBSTACLE))))]
    if number >= len(around):
        raise InputError(f"there is no obstacle number {number}")
    return np.asarray(around[number])


def keep_agents(flock: Flock, keep: Mask) -> Flock:
    """The flock of these agents."""
    return Flock(*(array[:, keep] for array in flock.arrays), comm_radius=flock.comm_radius)
