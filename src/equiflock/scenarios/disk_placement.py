"""The kernels of `RandomDisk`: placing agents one after the other, and again where they break a condition.

The grid here is not the cell list of `senses.cell_list`. That one sorts a whole flock at once, which is the fastest way to
find everybody's neighbours; this one must take single agents in and out, and find out whether a place is free after
each. So every cell of it is a linked list: `heads[cell]` is its first agent and `links[i]` the one after agent i, -1 at
the end. Its cells are `side` wide, from the corner (-radius, -radius, ..) on, `across` in each dimension.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from equiflock.runtime.jit import Array, Index, as_read_only_array, kernel
from equiflock.senses.cell_list import make_cell_list, sort_into_cells
from equiflock.senses.graph import compute_flock_connectivity, make_connectivity_buffers

MAX_PLACES_PER_AGENT = 10_000
"""The number of places that are tried for one agent before the disk counts as crowded."""
PLACED, CROWDED, SPARSE, DISCONNECTED, CANCELLED = range(5)
"""How drawing a flock ended."""


@kernel
def make_drawing_buffers(N: Index) -> Any:
    """Memory for drawing flocks: degrees, component labels and sizes, a list of agents, the survey's own, roles."""
    lists = np.empty(N, np.int64), np.empty(N, np.int64), np.empty(N, np.int64), np.empty(N, np.int64)
    return lists, make_connectivity_buffers(N), np.zeros(N, np.int8)


@kernel
def draw_positions(
    rng: Any,
    positions: Array,
    radius: float,
    comm_radius: float,
    min_separation: float,
    min_degree: Index,
    connected: bool,
    redraw_agents_only: bool,
    compute_max_attempts: Index,
    buffers: Any,
    stop: Array,
) -> tuple[Index, Index]:
    """Fill positions (N, D) of one flock.

    Args:
        rng: draws the places.
        positions: (N, D), written to.
        radius: of the disk or ball.
        comm_radius: R.
        min_separation: R_min.
        min_degree: how many others each agent must hear.
        connected: whether the communication graph must be.
        redraw_agents_only: whether only the agents that break a condition are placed again, rather than the whole flock.
        compute_max_attempts: how often the flock is drawn, or its agents placed again, before the search ends without one.
        buffers: `make_drawing_buffers`.
        stop: (1,), the search ends soon after it becomes true. It is looked at before each agent is placed, which takes
            about a millisecond at most, and so before each attempt, too.

    Returns:
        Which condition could not be met, FINE if all were, and the number that says by how much: of the agent that
        found no place, of agents with too few neighbours, or of components.
    """
    # A grid of about N cells over the disk, each at least min_separation wide; everybody is to be placed.
    N, D = positions.shape
    (degrees, labels, sizes, misplaced), survey, roles = buffers
    side = max(min_separation, 2.0 * radius / math.ceil(N ** (1.0 / D)))
    across = int(2.0 * radius / side) + 1
    heads, links = np.empty(across**D, np.int64), np.empty(N, np.int64)
    grid = radius, side, across, heads, links
    heads[:] = -1
    count = N
    for i in range(N):
        misplaced[i] = i
    failure, number = SPARSE, 0
    for _ in range(compute_max_attempts):
        # Place the agents that have no place, one after the other.
        for m in range(count):
            if stop[0]:
                return CANCELLED, 0
            if not _place_agent(rng, positions, misplaced[m], min_separation, grid):
                return CROWDED, misplaced[m]

        # List the agents that hear too few others, or are not in the largest component.
        compute_flock_connectivity(
            as_read_only_array(positions), as_read_only_array(roles), comm_radius, degrees, labels, survey
        )
        components, largest = _count_components(labels, sizes)
        count, sparse = 0, 0
        for i in range(N):
            few = degrees[i] < min_degree
            sparse += few
            if few or (connected and labels[i] != largest):
                misplaced[count] = i
                count += 1
        if count == 0:
            if redraw_agents_only:
                _renumber_by_cell(positions, comm_radius)
            return PLACED, 0
        failure, number = (SPARSE, sparse) if sparse > 0 else (DISCONNECTED, components)

        # Take these agents off the grid, or the whole flock.
        if redraw_agents_only:
            for m in range(count):
                _remove_agent(positions, misplaced[m], grid)
        else:
            heads[:] = -1
            count = N
            for i in range(N):
                misplaced[i] = i
    return failure, number


@kernel
def _count_components(labels: Array, sizes: Array) -> tuple[Index, Index]:
    """The number of components, and the label of the largest."""
    # Labels are 0, 1, .. in the order of components, so a later one of the same size is not the largest.
    sizes[:] = 0
    components, largest = 0, 0
    for label in labels:
        sizes[label] += 1
        components = max(components, label + 1)
        if sizes[label] > sizes[largest]:
            largest = label
    return components, largest


@kernel
def _find_cell(positions: Array, i: Index, grid: Any, d: Index) -> Index:
    """The cell of agent i along axis d; the rim of the disk is in the last one."""
    radius, side, across, _, _ = grid
    return min(int((positions[i, d] + radius) / side), across - 1)


@kernel
def _place_agent(rng: Any, positions: Array, i: Index, min_separation: float, grid: Any) -> bool:
    """Draw agent i uniformly in the disk or ball until it is clear of the others; False if that never happens."""
    radius, _, across, heads, links = grid
    D = positions.shape[1]
    depth = 1 if D == 3 else 0
    for _ in range(MAX_PLACES_PER_AGENT):
        # Uniform in the square or cube around, until it is in the disk or ball.
        square = math.inf
        while square > radius * radius:
            square = 0.0
            for d in range(D):
                positions[i, d] = radius * (2.0 * rng.random() - 1.0)
                square += positions[i, d] * positions[i, d]
        x, y = _find_cell(positions, i, grid, 0), _find_cell(positions, i, grid, 1)
        z = _find_cell(positions, i, grid, 2) if D == 3 else 0

        # Clear of everybody in the cells around: cells are at least min_separation wide.
        clear = True
        for zz in range(max(z - depth, 0), min(z + depth, (across - 1) * depth) + 1):
            for yy in range(max(y - 1, 0), min(y + 1, across - 1) + 1):
                for xx in range(max(x - 1, 0), min(x + 1, across - 1) + 1):
                    j = heads[(zz * across + yy) * across + xx]
                    while j >= 0 and clear:
                        square = 0.0
                        for d in range(D):
                            square += (positions[i, d] - positions[j, d]) ** 2
                        clear = square >= min_separation * min_separation
                        j = links[j]

        # If so, the agent becomes the first of its cell.
        if clear:
            cell = (z * across + y) * across + x
            links[i] = heads[cell]
            heads[cell] = i
            return True
    return False


@kernel
def _remove_agent(positions: Array, i: Index, grid: Any) -> None:
    """Take agent i off the grid."""
    _, _, across, heads, links = grid
    cell = 0
    for d in range(positions.shape[1] - 1, -1, -1):
        cell = cell * across + _find_cell(positions, i, grid, d)
    if heads[cell] == i:
        heads[cell] = links[i]
        return
    # The agent that points to i in its list points to the one after i from now on.
    j = heads[cell]
    while links[j] != i:
        j = links[j]
    links[j] = links[i]


@kernel
def _renumber_by_cell(positions: Array, comm_radius: float) -> None:
    """Renumber agents cell by cell, so that those who hear each other are near each other in memory."""
    order, starts, bucket = make_cell_list(positions.shape[0])
    sort_into_cells(as_read_only_array(positions), comm_radius, order, starts, bucket)
    before = positions.copy()
    for s in range(positions.shape[0]):
        for d in range(positions.shape[1]):
            positions[s, d] = before[order[s], d]
