"""The groups of an agent's nearest neighbours within R."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool

from equiflock.flock import NO_GROUP, Flock
from equiflock.runtime.jit import Array, Index, kernel
from equiflock.senses.cell_list import list_nearby_runs, make_flock_buffers, select_neighbours, sort_flock
from equiflock.senses.graph import run_over_flocks


def has_own_group_majority(flock: Flock, nearest: int) -> Bool[np.ndarray, "B N"]:
    """Return whether more than half of each agent's nearest neighbours are of its group, (B, N).

    Up to `nearest` agents within R count; ties in distance are broken arbitrarily. Obstacle agents and failed agents do
    not count. False for them, and for agents without neighbours.
    """
    has_majority = np.zeros(flock.shape[:2], bool)
    # Failed agents are in no group, as obstacle agents are.
    groups = np.where(flock.working, flock.groups, np.int32(NO_GROUP))
    run_over_flocks(_compare_groups, flock, flock.positions, groups, flock.comm_radius, np.intp(nearest), has_majority)
    return has_majority


@kernel
def _compare_groups(
    positions: Array, groups: Array, comm_radius: float, nearest: Index, has_majority: Array, first: Index, last: Index
) -> bool:
    """Write `has_majority` of agents with a group in flocks first .. last - 1; return False if one is out of range."""
    _, N, D = positions.shape
    buffers = make_flock_buffers(N)
    order, starts, sorted_positions = buffers.cells.order, buffers.cells.starts, buffers.positions
    runs, neighbours = buffers.workspace.runs, buffers.workspace.neighbours
    squares, nearest_groups = np.empty(nearest), np.empty(nearest, np.int32)
    for b in range(first, last):
        shape = sort_flock(positions[b], comm_radius, buffers)
        if shape[0] == 0:
            return False
        for c in range(shape[0] * shape[1] * shape[2]):
            count = list_nearby_runs(c, shape, starts, runs)
            for s in range(starts[c], starts[c + 1]):
                i = order[s]
                if groups[b, i] == NO_GROUP:
                    continue
                # Insert each candidate into the nearest so far, sorted by distance.
                kept = 0
                degree = select_neighbours(s, sorted_positions, comm_radius * comm_radius, runs, count, neighbours)
                for h in range(degree):
                    j = order[neighbours[h]]
                    if groups[b, j] == NO_GROUP:
                        continue
                    square = 0.0
                    for d in range(D):
                        square += (positions[b, i, d] - positions[b, j, d]) ** 2
                    at = kept
                    while at > 0 and squares[at - 1] > square:
                        if at < nearest:
                            squares[at], nearest_groups[at] = squares[at - 1], nearest_groups[at - 1]
                        at -= 1
                    if at < nearest:
                        squares[at], nearest_groups[at] = square, groups[b, j]
                        kept = min(kept + 1, nearest)
                # More than half of them must be of the agent's group.
                own = 0
                for n in range(kept):
                    own += nearest_groups[n] == groups[b, i]
                has_majority[b, i] = 2 * own > kept
    return True
