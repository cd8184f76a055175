"""The kernels that `RandomDisk` is made of: placing agents one after the other, and anew where they offend."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from equiflock.runtime.jit import Array, Index, kernel
from equiflock.senses.cells import cell_list, sort_into_cells
from equiflock.senses.graph import survey_flock, survey_memory

PLACES_PER_AGENT = 10_000
"""How many places are tried for one agent."""
AGENTS_PER_FLOCK = 10_000_000
"""How many agents are drawn in all for one flock that is accepted (but 200 attempts are always made)."""

FINE, CROWDED, SPARSE, SPLIT, STOPPED = range(5)
"""How drawing a flock ended."""


@kernel
def attempts(N: Index) -> Index:
    """How often a flock of N agents is drawn, or mended, before that is given up."""
    return max(200, AGENTS_PER_FLOCK // N)


@kernel
def drawing_memory(N: Index) -> Any:
    """Memory for drawing flocks: degrees, component labels and sizes, a list of agents, the survey's own, roles."""
    lists = np.empty(N, np.int64), np.empty(N, np.int64), np.empty(N, np.int64), np.empty(N, np.int64)
    return lists, survey_memory(N), np.zeros(N, np.int8)


@kernel
def draw_positions(
    rng: Any,
    positions: Array,
    radius: float,
    comm_radius: float,
    min_separation: float,
    min_degree: Index,
    connected: bool,
    anew: bool,
    memory: Any,
    stop: Array,
) -> tuple[Index, Index]:
    """Fill positions (N, D) of one flock; returns which condition failed, if any, and a number that tells how.

    It ends soon after `stop[0]` becomes true: that is looked at before each agent is placed, which takes about a
    millisecond at most, and so before each attempt, too.
    """
    N, D = positions.shape
    (degrees, labels, sizes, misplaced), survey, roles = memory
    # A grid of about N cells over the disk, each at least min_separation wide, with a list of its agents.
    side = max(min_separation, 2.0 * radius / math.ceil(N ** (1.0 / D)))
    across = int(2.0 * radius / side) + 1
    heads = np.empty(across**D, np.int64)
    links = np.empty(N, np.int64)
    heads[:] = -1
    count = N
    for i in range(N):
        misplaced[i] = i
    failure, number = SPARSE, 0
    for _ in range(attempts(N)):
        for m in range(count):
            if stop[0]:
                return STOPPED, 0
            if not _place(rng, positions, misplaced[m], radius, min_separation, side, across, heads, links):
                return CROWDED, misplaced[m]
        survey_flock(positions, roles, comm_radius, degrees, labels, survey)
        components, largest = _count_components(labels, sizes)
        count, sparse = 0, 0
        for i in range(N):
            few = degrees[i] < min_degree
            sparse += few
            if few or (connected and labels[i] != largest):
                misplaced[count] = i
                count += 1
        if count == 0:
            if anew:
                _number_by_cell(positions, comm_radius)
            return FINE, 0
        failure, number = (SPARSE, sparse) if sparse > 0 else (SPLIT, components)
        if anew:
            for m in range(count):
                _remove(positions, misplaced[m], radius, side, across, heads, links)
        else:
            heads[:] = -1
            count = N
            for i in range(N):
                misplaced[i] = i
    return failure, number


@kernel
def _count_components(labels: Array, sizes: Array) -> tuple[Index, Index]:
    """The number of components, and the label of the largest."""
    sizes[:] = 0
    components, largest = 0, 0
    for label in labels:
        sizes[label] += 1
        components = max(components, label + 1)
        if sizes[label] > sizes[largest]:
            largest = label
    return components, largest


@kernel
def _cell(positions: Array, i: Index, radius: float, side: float, across: Index, d: Index) -> Index:
    return min(int((positions[i, d] + radius) / side), across - 1)


@kernel
def _place(
    rng: Any,
    positions: Array,
    i: Index,
    radius: float,
    min_separation: float,
    side: float,
    across: Index,
    heads: Array,
    links: Array,
) -> bool:
    """Draw agent i uniformly in the disk or ball until it is clear of the others; False if that never happens."""
    D = positions.shape[1]
    depth = 1 if D == 3 else 0
    for _ in range(PLACES_PER_AGENT):
        square = math.inf
        while square > radius * radius:
            square = 0.0
            for d in range(D):
                positions[i, d] = radius * (2.0 * rng.random() - 1.0)
                square += positions[i, d] * positions[i, d]
        x = _cell(positions, i, radius, side, across, 0)
        y = _cell(positions, i, radius, side, across, 1)
        z = _cell(positions, i, radius, side, across, 2) if D == 3 else 0
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
        if clear:
            cell = (z * across + y) * across + x
            links[i] = heads[cell]
            heads[cell] = i
            return True
    return False


@kernel
def _remove(positions: Array, i: Index, radius: float, side: float, across: Index, heads: Array, links: Array) -> None:
    """Take agent i off the grid."""
    cell = 0
    for d in range(positions.shape[1] - 1, -1, -1):
        cell = cell * across + _cell(positions, i, radius, side, across, d)
    if heads[cell] == i:
        heads[cell] = links[i]
        return
    j = heads[cell]
    while links[j] != i:
        j = links[j]
    links[j] = links[i]


@kernel
def _number_by_cell(positions: Array, comm_radius: float) -> None:
    """Renumber agents cell by cell, so that those who hear each other are near each other in memory."""
    order, starts, bucket = cell_list(positions.shape[0])
    sort_into_cells(positions, comm_radius, order, starts, bucket)
    before = positions.copy()
    for s in range(positions.shape[0]):
        for d in range(positions.shape[1]):
            positions[s, d] = before[order[s], d]
