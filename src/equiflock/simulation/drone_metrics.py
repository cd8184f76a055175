"""Metrics of drones, from the body state of `quadrotor` and `crazyflow`: tilt, thrust margin, height and collisions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError
from equiflock.bodies.quadrotor import Quadrotor
from equiflock.bodies.quadrotor_kernels import GRAVITY
from equiflock.flock import Flock
from equiflock.graph.radius_graph import radius_graph
from equiflock.protocols import Moment


def largest_tilt(moment: Moment) -> Float64[np.ndarray, " B"]:
    """Largest angle between a drone's thrust and the vertical in each flock, in degrees, (B,)."""
    x, y = _get_state(moment, "quaternion")[..., :2].T
    # The cosine of the tilt is the entry (3, 3) of the rotation matrix.
    cosines = 1.0 - 2.0 * (x * x + y * y)
    return np.asarray(np.degrees(np.arccos(np.clip(cosines.min(axis=0), -1.0, 1.0))))


def thrust_margin(moment: Moment, drone: Quadrotor | None = None) -> Float64[np.ndarray, " B"]:
    """Smallest distance of a motor's thrust from its maximum in each flock, as a share of the maximum, (B,).

    0: a motor is at its limit. `drone` has the thrust curve; default: that of a Crazyflie.
    """
    drone = Quadrotor() if drone is None else drone
    fastest = _get_state(moment, "motor_speeds").max(axis=(1, 2))
    margin = 1.0 - drone.thrust_coefficient * fastest**2 / drone.max_motor_thrust
    return np.asarray(margin.clip(0.0))


def lowest_height(moment: Moment) -> Float64[np.ndarray, " B"]:
    """Height of the lowest drone of each flock above the ground, z = 0, in m, (B,)."""
    positions = moment.flock.positions
    heights = positions[..., 2] if positions.shape[2] == 3 else _get_state(moment, "height")
    return np.asarray(heights.min(axis=1))


def find_close_pairs(flock: Flock, distance: float) -> set[tuple[int, int, int]]:
    """Return the pairs of agents that are at most `distance` apart, as (flock, first agent, second agent).

    Two leaders, and agents that do not send, form no pair.
    """
    graph, N = radius_graph(flock, distance), flock.shape[1]
    b, i = np.divmod(graph.rows, N)
    pairs = zip(b.tolist(), i.tolist(), graph.senders.tolist(), strict=True)
    return {(k, min(m, n), max(m, n)) for k, m, n in pairs}


def compute_max_acceleration(drone: Quadrotor, dimensions: int) -> float:
    """Return the acceleration that a drone reaches in every direction from hover, in m/s^2, by its tilt and thrust.

    In the plane it is g tan(max_tilt), or what the motors leave beside the weight; in space it is also at most what
    they leave upwards, and what their least thrust leaves downwards.
    """
    most, least = 4.0 * drone.max_motor_thrust / drone.mass, 4.0 * drone.min_motor_thrust / drone.mass
    horizontal = min(GRAVITY * math.tan(math.radians(drone.max_tilt)), math.sqrt(most**2 - GRAVITY**2))
    return horizontal if dimensions == 2 else min(horizontal, most - GRAVITY, GRAVITY - least)


def _get_state(moment: Moment, name: str) -> NDArray[Any]:
    """Return an array of the body state; raise InputError if the body is no drone."""
    if name not in moment.body_state:
        raise InputError(f"metrics of drones need a body with {name!r} in its state, such as Quadrotor")
    return np.asarray(moment.body_state[name])
