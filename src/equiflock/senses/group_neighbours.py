"""Who stands among its own: the groups of an agent's nearest neighbours within R."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool

from equiflock.flock import NO_GROUP, Flock
from equiflock.runtime.jit import Array, Index, kernel
from equiflock.senses.cell_list import list_nearby_runs, make_flock_buffers, select_neighbours, sort_flock
from equiflock.senses.graph import run_over_flocks


def has_own_group_majority(flock: Flock, nearest: int) -> Bool[np.ndarray, "B N"]:
    """Which agents, (B, N), have nearest neighbours of whom more than half are of their own group.

    The nearest are so many of those within R, or all of these if they are fewer; of two at the same distance, either.
    Obstacle agents and agents that have failed are neighbours of nobody. False for them, and for whoever has none.
    """
    found = np.zeros(flock.shape[:2], bool)
    # Those who do not count are in no group, as obstacle agents are.
    groups = np.where(flock.working, flock.groups, np.int32(NO_GROUP))
    run_over_flocks(_compare_groups, flock, flock.positions, groups, flock.comm_radius, np.intp(nearest), found)
    return found


@kernel
def _compare_groups(
    positions: Array, groups: Array, comm_radius: float, nearest: Index, found: Array, first: Index, last: Index
) -> bool:
    """Write into `found` who of the flocks first .. last is among its own group; False if one is out of range."""
    _, N, D = positions.shape
    memory = make_flock_buffers(N)
    (order, starts, _), sorted_positions, (runs, hits) = memory
    squares, theirs = np.empty(nearest), np.empty(nearest, np.int32)
    for b in range(first, last):
        shape = sort_flock(positions[b], comm_radius, memory)
        if shape[0] == 0:
            return False
        for c in range(shape[0] * shape[1] * shape[2]):
            count = list_nearby_runs(c, shape, starts, runs)
            for s in range(starts[c], starts[c + 1]):
                i = order[s]
                if groups[b, i] == NO_GROUP:
                    continue
                # The nearest so far, in the order of their distances, into which each candidate is inserted.
                kept = 0
                for h in range(select_neighbours(s, sorted_positions, comm_radius * comm_radius, runs, count, hits)):
                    j = order[hits[h]]
                    if groups[b, j] == NO_GROUP:
                        continue
                    square = 0.0
                    for d in range(D):
                        square += (positions[b, i, d] - positions[b, j, d]) ** 2
                    at = kept
                    while at > 0 and squares[at - 1] > square:
                        if at < nearest:
                            squares[at], theirs[at] = squares[at - 1], theirs[at - 1]
                        at -= 1
                    if at < nearest:
                        squares[at], theirs[at] = square, groups[b, j]
                        kept = min(kept + 1, nearest)
                # More than half of them of one's own group.
                own = 0
                for n in range(kept):
                    own += theirs[n] == groups[b, i]
                found[b, i] = 2 * own > kept
    return True
