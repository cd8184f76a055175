"""Downwash: the air that the rotors of drones blow onto the drones below them.

Far below a drone, the flow of all its rotors together is a turbulent jet (Bauersfeld, Muller, Ziegler, Coletti and
Scaramuzza, Robotics meets fluid dynamics, IEEE Robotics and Automation Letters 10(2), 2025). At a depth s below the
drone and a distance p from its axis, the air flows downwards with the speed

    u(s, p) = U b_0 / b e^(-(p / b)^2),    b = max(b_0, SPREAD s),    b_0 = 2 x rotor radius,

the Gaussian profile of a jet whose flow of momentum is constant and equals the weight m g: U = sqrt(m g / (2 pi rho))
/ rotor radius, twice the speed that the rotors induce in hover. SPREAD follows from the spreading rate 0.094 of the
half-width (Pope, Turbulent flows, 2000, section 5.1). The speeds of several jets add up. A drone feels the air through
its drag. Jets are vertical, whatever the attitude and the velocity of the drones.
"""

from __future__ import annotations

import math

import numpy as np

from equiflock._runtime import threads
from equiflock._runtime.jit import Array, kernel
from equiflock.flock import OBSTACLE
from equiflock.graph.cell_list import (
    list_nearby_runs,
    make_flock_buffers,
    make_out_of_range_error,
    select_neighbours,
    sort_by_agent_id,
    sort_into_cells,
)

AIR_DENSITY = 1.2
"""rho, in kg/m^3."""
SPREAD = 0.094 / math.sqrt(math.log(2.0))
"""Width b of the jet per depth."""
MAX_DEPTH, MAX_OFFSET = 4.0, 1.0
"""Reach of a jet, in m: pairs of drones count within an ellipsoid of these half-axes, along z and across."""


def compute_downwash(
    points: Array,
    roles: Array,
    crashed: Array,
    active: Array,
    agent_ids: Array | None,
    weight: float,
    rotor_radius: float,
) -> Array:
    """Return the speed of the air downwards, (B, N) in m/s, at each drone of the active flocks; 0 for other flocks.

    Raise NumericRangeError if a position is not finite or too far from the origin.

    Args:
        points: positions of all drones in space, (B, N, 3).
        roles: (B, N). Leaders blow like followers; obstacle agents do not.
        crashed: (B, N), mask of drones that do not blow.
        active: indices of flocks.
        agent_ids: (N,), the caller's id of each agent, which fixes the order of sums; None for 0 .. N - 1.
        weight: m g, in N.
        rotor_radius: in m.
    """
    speeds = np.zeros(points.shape[:2])
    # Along z, distances count less: the ellipsoid becomes a ball, and cells hold few drones that are out of reach.
    scaled = points * np.array([1.0, 1.0, MAX_OFFSET / MAX_DEPTH])
    blows = (roles != OBSTACLE) & ~crashed
    exit_speed = math.sqrt(weight / (2.0 * math.pi * AIR_DENSITY)) / rotor_radius
    ids = np.empty(0, np.int64) if agent_ids is None else agent_ids
    arguments = scaled, blows, ids, exit_speed, 2.0 * rotor_radius, speeds
    least = -(-threads.AGENTS_PER_THREAD // points.shape[1])
    parts = [(*arguments, active[first:last]) for first, last in threads.split_range(len(active), least)]
    if not all(threads.run_parallel(_sum_jets, parts)):
        raise make_out_of_range_error()
    return speeds


@kernel
def compute_jet_speed(depth: float, offset_squared: float, exit_speed: float, exit_width: float) -> float:
    """Return u(s, p) at a depth s below a drone, at a squared distance p^2 from its axis; 0 above it."""
    if depth <= 0.0:
        return 0.0
    width = max(exit_width, SPREAD * depth)
    return exit_speed * exit_width / width * math.exp(-offset_squared / (width * width))


@kernel
def _sum_jets(
    scaled: Array, blows: Array, agent_ids: Array, exit_speed: float, exit_width: float, speeds: Array, active: Array
) -> bool:
    """Write the sums of jets at the drones of the active flocks; return False if a position is out of range."""
    N = scaled.shape[1]
    buffers = make_flock_buffers(N)
    (order, starts, _), sorted_points, runs, neighbours = buffers
    for b in active:
        shape = sort_into_cells(scaled[b], MAX_OFFSET, buffers.cells)
        if shape[0] == 0:
            return False
        buckets = shape[0] * shape[1] * shape[2]
        # Sums must not depend on the order of agents in memory.
        if agent_ids.size > 0:
            sort_by_agent_id(order, starts, agent_ids, 0, buckets)
        for s in range(np.uintp(N)):
            for d in range(3):
                sorted_points[s, d] = scaled[b, order[s], d]
        # The sum of u(s, p) over the drones j above i.
        for c in range(buckets):
            count = list_nearby_runs(c, shape, starts, runs)
            for s in range(starts[c], starts[c + 1]):
                total = 0.0
                degree = select_neighbours(s, sorted_points, MAX_OFFSET * MAX_OFFSET, runs, count, neighbours)
                for n in range(degree):
                    j = neighbours[n]
                    if blows[b, order[j]]:
                        depth = (sorted_points[j, 2] - sorted_points[s, 2]) * (MAX_DEPTH / MAX_OFFSET)
                        x, y = sorted_points[j, 0] - sorted_points[s, 0], sorted_points[j, 1] - sorted_points[s, 1]
                        total += compute_jet_speed(depth, x * x + y * y, exit_speed, exit_width)
                speeds[b, order[s]] = total
    return True
