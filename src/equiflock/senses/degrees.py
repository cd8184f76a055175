"""The number of neighbours |N_i| after the obstacle rule, as the kernels of `aggregation_kernels` count it."""

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
    """Return |N_i| of the followers of the active flocks, (B, N); 0 for all other agents and flocks. Memory is O(N).

    Conditions of agents are ignored. Raise NumericRangeError if a position is out of range.

    Args:
        flock: the agents now.
        active: indices of the flocks to count.
        comm_radius: R.
        graph: the neighbours of each agent, at any distance; default: all agents within R.
        nearest_only: whether only the nearest obstacle agent counts, rather than all.
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
    """Write degrees[b, i] of the followers of the active flocks; return False if positions are out of range."""
    # Once for all flocks of this thread.
    buffers = make_flock_buffers(positions.shape[1])
    order, starts, sorted_positions = buffers.cells.order, buffers.cells.starts, buffers.positions
    runs, neighbours = buffers.workspace.runs, buffers.workspace.neighbours
    for b in active:
        shape = sort_flock(positions[b], comm_radius, buffers)
        if shape[0] == 0:
            return False
        for c in range(shape[0] * shape[1] * shape[2]):
            count = list_nearby_runs(c, shape, starts, runs)
            for s in range(starts[c], starts[c + 1]):
                # Leaders and obstacle agents receive nothing.
                if roles[b, order[s]] != FOLLOWER:
                    continue
                degree = select_neighbours(s, sorted_positions, comm_radius * comm_radius, runs, count, neighbours)
                obstacle_count = np.uintp(0)
                for n in range(degree):
                    obstacle_count += np.uintp(roles[b, order[neighbours[n]]] == OBSTACLE)
                degrees[b, order[s]] = _count_after_rule(degree, obstacle_count, nearest_only)
    return True


@kernel
def _count_listed(
    roles: Roles, begins: Array, senders: Array, nearest_only: bool, degrees: Array, active: Array
) -> None:
    """Write degrees[b, i], the number of listed senders, of the followers of the active flocks."""
    N = np.uintp(roles.shape[1])
    for b in active:
        for i in range(N):
            # Leaders and obstacle agents receive nothing, even if they were followers when the list was built.
            if roles[b, i] != FOLLOWER:
                continue
            row, obstacle_count = np.uintp(b) * N + i, np.uintp(0)
            begin, end = begins[row], begins[row + np.uintp(1)]
            for e in range(begin, end):
                obstacle_count += np.uintp(roles[b, senders[e]] == OBSTACLE)
            degrees[b, i] = _count_after_rule(end - begin, obstacle_count, nearest_only)


@inline_kernel
def _count_after_rule(degree: Index, obstacle_count: Index, nearest_only: bool) -> Index:
    """Return |N_i| of an agent with `degree` others within reach, of which `obstacle_count` are obstacle agents."""
    # Of several obstacle agents only the nearest counts.
    return degree - obstacle_count + np.uintp(1) if nearest_only and obstacle_count > np.uintp(1) else degree
