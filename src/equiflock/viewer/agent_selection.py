"""Masks that select agents of a live flock (a batch of one) by role, position or obstacle."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float64

from equiflock.flock import NO_OBSTACLE, Flock, Role
from equiflock.runtime.checks import InputError
from equiflock.scenarios.until_passed import obstacle_disks

Mask = Bool[np.ndarray, " N"]


def select_role(flock: Flock, role: Role) -> Mask:
    """Return the mask of the agents with a role, whether they work or have failed."""
    return np.asarray(flock.roles[0] == role)


def select_controlled(flock: Flock) -> Mask:
    """Return the mask of the agents that the controller commands: working and silent followers."""
    return np.asarray(flock.effective_roles[0] == Role.FOLLOWER)


def compute_distances(flock: Flock, position: tuple[float, float]) -> Float64[np.ndarray, " N"]:
    """Return the distance of each agent, obstacle agents included, to a point in world coordinates."""
    return np.asarray(np.hypot(*(flock.positions[0] - position).T))


def select_obstacle(flock: Flock, index: int) -> Mask:
    """Return the mask of the agents on the rim of one disk obstacle; raise InputError if there is no such disk.

    Args:
        flock: a batch of one.
        index: row of `obstacle_disks(flock)`, which omits walls; not the number in `flock.obstacles`.
    """
    obstacles = flock.obstacles[0]
    # An obstacle is a disk, not a wall, if it yields a disk together with the flock.
    masks = [obstacles == obstacle for obstacle in np.unique(obstacles[obstacles != NO_OBSTACLE])]
    disks = [mask for mask in masks if len(obstacle_disks(keep_agents(flock, mask | (obstacles == NO_OBSTACLE))))]
    if index >= len(disks):
        raise InputError(f"obstacle index must be below {len(disks)}; got {index}")
    return np.asarray(disks[index])


def keep_agents(flock: Flock, keep: Mask) -> Flock:
    """Return a flock with only the agents where `keep` is True, in the same order."""
    return Flock(*(array[:, keep] for array in flock.arrays), comm_radius=flock.comm_radius)
