"""How many agents each agent hears, |N_i|, as the kernels of `hearing` count them: after the obstacle rule."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from equiflock.flock import FOLLOWER, OBSTACLE, Flock, Roles, Vectors
from equiflock.runtime import threads
from equiflock.runtime.jit import Array, Index, inline_kernel, kernel
from equiflock.runtime.threads import split_flocks
from equiflock.senses.cell_list import (
    list_nearby_runs,
    make_flock_buffers,
    make_out_of_range_error,
    select_neighbours,
    sort_flock,
)
from equiflock.senses.graph import Graph


def count_neighbours(
    flock: Flock,
    active: Int64[np.ndarray, " active"],
    comm_radius: float,
    graph: Graph | None = None,
    nearest_only: bool = True,
) -> Int64[np.ndarray, "B N"]:
    """|N_i| of every agent of the active flocks, (B, N); 0 for those of the others. Memory is O(N).

    Args:
        flock: the agents now.
        active: the flocks that count.
        comm_radius: R.
        graph: who hears whom, at any distance; everybody within R if left out.
        nearest_only: whether only the nearest obstacle agent is heard, rather than all.
    """
    degrees = np.zeros(flock.shape[:2], np.int64)
    parts = [active[first:last] for first, last in split_flocks(len(active), flock.shape[1])]
    if graph is not None:
        listed = flock.roles, graph.starts.view(np.uintp), graph.senders.view(np.uintp), nearest_only, degrees
        threads.run_parallel(_count_listed, [(*listed, part) for part in parts])
        return degrees
    around = flock.positions, flock.roles, comm_radius, nearest_only, degrees
    if not all(threads.run_parallel(_count_within_radius, [(*around, part) for part in parts])):
        raise make_out_of_range_error()
    return degrees


@kernel
def _count_within_radius(
    positions: Vectors, roles: Roles, comm_radius: float, nearest_only: bool, degrees: Array, active: Array
) -> bool:
    """Count whom agents of the active flocks hear within R; False if positions are out of range."""
    # Once for all flocks of this thread.
    memory = make_flock_buffers(positions.shape[1])
    (order, starts, _), sorted_positions, (runs, hits) = memory
    for b in active:
        shape = sort_flock(positions[b], comm_radius, memory)
        if shape[0] == 0:
            return False
        for c in range(shape[0] * shape[1] * shape[2]):
            count = list_nearby_runs(c, shape, starts, runs)
            for s in range(starts[c], starts[c + 1]):
                # Leaders and obstacle agents hear nobody.
                if roles[b, order[s]] != FOLLOWER:
                    continue
                heard = select_neighbours(s, sorted_positions, comm_radius * comm_radius, runs, count, hits)
                obstacle_count = np.uintp(0)
                for h in range(heard):
                    obstacle_count += np.uintp(roles[b, order[hits[h]]] == OBSTACLE)
                degrees[b, order[s]] = _count_after_rule(heard, obstacle_count, nearest_only)
    return True


@kernel
def _count_listed(
    roles: Roles, begins: Array, senders: Array, nearest_only: bool, degrees: Array, active: Array
) -> None:
    """Count whom agents of the active flocks hear if they hear the listed senders."""
    N = np.uintp(roles.shape[1])
    for b in active:
        for i in range(N):
            # Leaders and obstacle agents hear nobody, whatever they were when the list was made.
            if roles[b, i] != FOLLOWER:
                continue
            row, obstacle_count = np.uintp(b) * N + i, np.uintp(0)
            begin, end = begins[row], begins[row + np.uintp(1)]
            for e in range(begin, end):
                obstacle_count += np.uintp(roles[b, senders[e]] == OBSTACLE)
            degrees[b, i] = _count_after_rule(end - begin, obstacle_count, nearest_only)


@inline_kernel
def _count_after_rule(heard: Index, obstacle_count: Index, nearest_only: bool) -> Index:
    """|N_i| of an agent that has so many others within reach, of whom `obstacle_count` are obstacle agents."""
    # All obstacle agents but the nearest are left out.
    return heard - obstacle_count + np.uintp(1) if nearest_only and obstacle_count > np.uintp(1) else heard
