"""Random flocks of drones at the start of a flight, in metres and seconds: connected, apart and above the ground."""

from __future__ import annotations

import numpy as np

from equiflock._runtime.checks import InputError
from equiflock._runtime.randomness import make_rng
from equiflock.flock import Flock
from equiflock.scenarios.random_disk import NoStartError, RandomDisk

DENSE_FLOCK = 100
"""Number of drones up to which the disk grows with the fourth root of their number, and beyond with the square root:
larger flocks would become ever denser."""


def draw_drones(
    flocks: int = 1,
    drones: int = 100,
    seed: int = 0,
    *,
    dimensions: int = 3,
    comm_radius: float = 5.0,
    min_separation: float = 0.5,
    initial_speed: float = 1.0,
    cruise_speed: float = 0.0,
    height: float = 3.0,
    split: str = "drones",
) -> Flock:
    """Draw connected random flocks above the ground; raise InputError if an option is invalid or there is no room.

    Positions are those of `RandomDisk`. For D = 3 each flock is lifted until its lowest drone is at `height`; for D = 2
    the body holds a height. Velocities are uniform in the ball of radius `initial_speed`, around a horizontal velocity
    of random direction; a flock whose mean velocity points down is mirrored, so that it does not sink to the ground.

    Args:
        flocks: number of flocks, B.
        drones: number of drones in each flock, N.
        seed: random seed; the same seed gives the same flocks.
        dimensions: D, 2 or 3.
        comm_radius: communication radius R, in m.
        min_separation: least distance between two drones, in m.
        initial_speed: largest speed of a drone relative to the flock's common velocity, in m/s.
        cruise_speed: speed of the common velocity, in m/s.
        height: of the lowest drone if D = 3, in m.
        split: name of a set of flocks; sets are independent.
    """
    disk = RandomDisk(
        flocks,
        drones,
        seed,
        split,
        dimensions=2 if dimensions == 2 else 3,
        radius_rule="quarter-power" if drones <= DENSE_FLOCK else "constant-density",
        comm_radius=comm_radius,
        min_separation=min_separation,
        min_degree=min(2, drones - 1),
        max_speed=initial_speed,
        velocities="disc",
    )
    try:
        positions = disk.draw().positions.copy()
    except NoStartError:
        raise InputError(
            f"found no connected start of {drones} drones at least {min_separation:g} m apart with comm_radius = "
            f"{comm_radius:g} m: lower min_separation, or change comm_radius or the number of drones"
        ) from None
    velocities = np.empty_like(positions)
    for b in range(flocks):
        rng = make_rng(seed, "drone_velocities", split, b)
        velocities[b] = disk.draw_velocities(rng, drones)
        angle = 2.0 * np.pi * rng.random()
        velocities[b, :, :2] += cruise_speed * np.array([np.cos(angle), np.sin(angle)])
    if dimensions == 3:
        positions[..., 2] += height - positions[..., 2].min(axis=1, keepdims=True)
        velocities[velocities[..., 2].mean(axis=1) < 0.0, :, 2] *= -1.0
    return Flock(positions, velocities, comm_radius=comm_radius)
