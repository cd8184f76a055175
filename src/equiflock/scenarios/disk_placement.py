"""Kernels of `RandomDisk`: place agents one after the other, and again where they violate a condition.

The grid here is not the cell list of `graph.cell_list`. That one sorts a whole flock at once, which is the fastest way
to find all neighbours; this one adds and removes single agents, so each of its cells is a linked list.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from equiflock._runtime.jit import Array, Index, as_read_only_array, kernel
from equiflock.graph.cell_list import make_cell_list, sort_into_cells
from equiflock.graph.radius_graph import compute_flock_connectivity, make_connectivity_buffers

MAX_PLACES_PER_AGENT = 10_000
"""Places tried for one agent before the disk counts as crowded."""
PLACED, CROWDED, SPARSE, DISCONNECTED, CANCELLED = range(5)
"""Statuses of a placement: success, or the condition that could not be met, or a search that was stopped."""


class DrawingBuffers(NamedTuple):
    """Scratch memory for drawing flocks of N agents: int64 arrays (N,), and buffers of the connectivity."""

    degrees: Array
    labels: Array
    """Component of each agent."""
    sizes: Array
    """Agents of each component."""
    misplaced: Array
    """Indices of the agents to place."""
    connectivity: Any
    """Cell list and union-find forest, from `make_connectivity_buffers`."""
    roles: Array
    """(N,) int8, all followers."""


class PlacementGrid(NamedTuple):
    """A grid over the square or cube around the disk or ball, from the corner (-radius, -radius, ..) on."""

    radius: float
    """Radius of the disk or ball."""
    cell_size: float
    """Width of a cell, at least min_separation."""
    cells_per_axis: int
    """Number of cells in each dimension."""
    heads: Array
    """(cells_per_axis^D,) int64, first agent of each cell, -1 if the cell is empty."""
    links: Array
    """(N,) int64, the agent after agent i in its cell, -1 at the end."""


class PlacementResult(NamedTuple):
    """The end of the search for one flock's positions."""

    status: int
    """PLACED, or the condition that could not be met."""
    number: int
    """CROWDED: index of the agent without a place. SPARSE: agents with too few neighbours. DISCONNECTED: components."""


@kernel
def make_drawing_buffers(N: Index) -> DrawingBuffers:
    """Allocate scratch memory for drawing flocks of N agents."""
    degrees, labels, sizes = np.empty(N, np.int64), np.empty(N, np.int64), np.empty(N, np.int64)
    roles = np.zeros(N, np.int8)
    return DrawingBuffers(degrees, labels, sizes, np.empty(N, np.int64), make_connectivity_buffers(N), roles)


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
    max_attempts: Index,
    buffers: DrawingBuffers,
    stop: Array,
) -> PlacementResult:
    """Draw the positions (N, D) of one flock; return the status PLACED, or the reason why the search failed.

    With `redraw_agents_only`, only the agents that violate a condition are placed again, rather than the whole flock,
    and agents are numbered cell by cell in the end. The search gives up after `max_attempts`, and ends soon after
    stop[0] becomes true: it is read before each agent is placed, which takes about a millisecond at most.
    """
    # A grid of about N cells over the disk, each at least min_separation wide. At first all agents need a place.
    N, D = positions.shape
    degrees, labels, misplaced = buffers.degrees, buffers.labels, buffers.misplaced
    cell_size = max(min_separation, 2.0 * radius / math.ceil(N ** (1.0 / D)))
    cells_per_axis = int(2.0 * radius / cell_size) + 1
    heads, links = np.empty(cells_per_axis**D, np.int64), np.empty(N, np.int64)
    grid = PlacementGrid(radius, cell_size, cells_per_axis, heads, links)
    heads[:] = -1
    count = N
    for i in range(N):
        misplaced[i] = i
    status, number = SPARSE, 0
    for _ in range(max_attempts):
        # Place the agents without a place, one after the other.
        for m in range(count):
            if stop[0]:
                return PlacementResult(CANCELLED, 0)
            if not _place_agent(rng, positions, misplaced[m], min_separation, grid):
                return PlacementResult(CROWDED, misplaced[m])

        # List the agents with too few neighbours, or outside the largest component.
        arrays = as_read_only_array(positions), as_read_only_array(buffers.roles)
        compute_flock_connectivity(arrays[0], arrays[1], comm_radius, degrees, labels, buffers.connectivity)
        components, largest = _count_components(labels, buffers.sizes)
        count, sparse = 0, 0
        for i in range(N):
            is_sparse = degrees[i] < min_degree
            sparse += is_sparse
            if is_sparse or (connected and labels[i] != largest):
                misplaced[count] = i
                count += 1
        if count == 0:
            if redraw_agents_only:
                _renumber_by_cell(positions, comm_radius)
            return PlacementResult(PLACED, 0)
        status, number = (SPARSE, sparse) if sparse > 0 else (DISCONNECTED, components)

        # Remove these agents, or the whole flock, from the grid.
        if redraw_agents_only:
            for m in range(count):
                _remove_agent(positions, misplaced[m], grid)
        else:
            heads[:] = -1
            count = N
            for i in range(N):
                misplaced[i] = i
    return PlacementResult(status, number)


@kernel
def _count_components(labels: Array, sizes: Array) -> tuple[Index, Index]:
    """Return the number of components, and the label of the largest, for labels (N,) from 0 on.

    If several are largest, it is the one that reaches this size first in the order of agents. `sizes` (N,) is scratch.
    """
    sizes[:] = 0
    components, largest = 0, 0
    for label in labels:
        sizes[label] += 1
        components = max(components, label + 1)
        if sizes[label] > sizes[largest]:
            largest = label
    return components, largest


@kernel
def _find_cell(positions: Array, i: Index, grid: PlacementGrid, d: Index) -> Index:
    """Return the cell index of agent i along axis d; the far rim of the disk belongs to the last cell."""
    return min(int((positions[i, d] + grid.radius) / grid.cell_size), grid.cells_per_axis - 1)


@kernel
def _place_agent(rng: Any, positions: Array, i: Index, min_separation: float, grid: PlacementGrid) -> bool:
    """Draw agent i uniformly in the disk or ball until it is at least min_separation from all agents in the grid.

    Write its position, add it to the grid and return True; return False after MAX_PLACES_PER_AGENT failures.
    """
    radius, cells_per_axis, heads, links = grid.radius, grid.cells_per_axis, grid.heads, grid.links
    D = positions.shape[1]
    depth = 1 if D == 3 else 0
    for _ in range(MAX_PLACES_PER_AGENT):
        # Draw uniformly in the square or cube around, until the point is in the disk or ball.
        square = math.inf
        while square > radius * radius:
            square = 0.0
            for d in range(D):
                positions[i, d] = radius * (2.0 * rng.random() - 1.0)
                square += positions[i, d] * positions[i, d]
        x, y = _find_cell(positions, i, grid, 0), _find_cell(positions, i, grid, 1)
        z = _find_cell(positions, i, grid, 2) if D == 3 else 0

        # Compare with the agents of the adjacent cells, which are at least min_separation wide.
        clear = True
        for zz in range(max(z - depth, 0), min(z + depth, (cells_per_axis - 1) * depth) + 1):
            for yy in range(max(y - 1, 0), min(y + 1, cells_per_axis - 1) + 1):
                for xx in range(max(x - 1, 0), min(x + 1, cells_per_axis - 1) + 1):
                    j = heads[(zz * cells_per_axis + yy) * cells_per_axis + xx]
                    while j >= 0 and clear:
                        square = 0.0
                        for d in range(D):
                            square += (positions[i, d] - positions[j, d]) ** 2
                        clear = square >= min_separation * min_separation
                        j = links[j]

        # Insert the agent as the first of its cell.
        if clear:
            cell = (z * cells_per_axis + y) * cells_per_axis + x
            links[i] = heads[cell]
            heads[cell] = i
            return True
    return False


@kernel
def _remove_agent(positions: Array, i: Index, grid: PlacementGrid) -> None:
    """Remove agent i, which must be in the grid at its present position, from the grid."""
    heads, links = grid.heads, grid.links
    cell = 0
    for d in range(positions.shape[1] - 1, -1, -1):
        cell = cell * grid.cells_per_axis + _find_cell(positions, i, grid, d)
    if heads[cell] == i:
        heads[cell] = links[i]
        return
    # Let the agent before i in the list point to the one after i.
    j = heads[cell]
    while links[j] != i:
        j = links[j]
    links[j] = links[i]


@kernel
def _renumber_by_cell(positions: Array, comm_radius: float) -> None:
    """Sort positions in place, cell by cell of width R, so that neighbours are near each other in memory."""
    cells = make_cell_list(positions.shape[0])
    sort_into_cells(as_read_only_array(positions), comm_radius, cells)
    before, order = positions.copy(), cells.order
    for s in range(positions.shape[0]):
        for d in range(positions.shape[1]):
            positions[s, d] = before[order[s], d]
