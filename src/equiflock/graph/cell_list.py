"""Cell lists: the neighbour search of the graph, the observations and the initial conditions.

Agents are sorted into cells of side R counted from the origin, so all neighbours of an agent are in its cell or in one
that touches it. The cells lie on a torus of at most 2 N + 64 buckets: a flock spread over any area needs O(N) memory,
and the distance tells agents of far cells that share a bucket apart. Neighbours are visited in the order (cell, index),
which does not depend on agents out of reach.

In cell order, `order[s]` is the s-th agent of a flock, `sorted_positions[s]` its position padded to three coordinates,
and bucket c holds the s in range(starts[c], starts[c + 1]). A kernel visits neighbours like this:

    for c in range(buckets):
        count = list_nearby_runs(c, shape, starts, runs)
        for s in range(starts[c], starts[c + 1]):
            degree = select_neighbours(s, sorted_positions, comm_radius * comm_radius, runs, count, neighbours)
            # neighbours[:degree]

Each such kernel repeats these lines on purpose. As a function that calls another for every agent, as a generator, or
with the loops over c and s merged, Numba counts references to arrays for every agent, which costs 10 to 40%.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import numpy as np

from equiflock._runtime.checks import NumericRangeError
from equiflock._runtime.jit import Array, Index, inline_kernel, kernel
from equiflock.flock import MAX_MAGNITUDE, Vectors

MAX_CELL_INDEX = 2.0**31
"""The largest distance from the origin, in R: beyond it float64 cannot reliably decide which agents are within R."""

CELL_MARGIN = 1.0 + 2.0**-20
"""The side of a cell in R: above 1, so that rounding never puts an agent and its neighbour two cells apart."""

TorusShape: TypeAlias = tuple[Index, Index, Index]
"""The number of cells of the torus along x, y and z; nz = 1 in the plane, all are 0 if positions are out of range."""


class CellList(NamedTuple):
    """The agents of one flock sorted by cells."""

    order: Array
    """(N,) uintp: the agents, bucket by bucket."""
    starts: Array
    """(2 N + 65,) uintp: bucket c holds order[starts[c] : starts[c + 1]]."""
    buckets: Array
    """(N,) uintp: the bucket of each agent."""


class FlockBuffers(NamedTuple):
    """Memory of one thread for `sort_flock` and the search after it."""

    cells: CellList
    positions: Array
    """(N, 3) float64: positions in cell order, padded to three coordinates by zero."""
    runs: Array
    """(27, 2) uintp: first and last + 1 of each run of agents in the cells around; there are at most 27 cells."""
    neighbours: Array
    """(N,) uintp: the neighbours of an agent, as indices in cell order."""


class Extent(NamedTuple):
    """The bounding box of a flock."""

    is_number: bool
    """Whether no coordinate is NaN."""
    low: tuple[float, float, float]
    high: tuple[float, float, float]


def make_out_of_range_error() -> NumericRangeError:
    """Return the error for positions or velocities beyond the range in which the kernels are exact."""
    return NumericRangeError(
        f"positions must be finite and within {MAX_CELL_INDEX:.0e} radii of the origin, "
        f"velocities finite and below {MAX_MAGNITUDE:.0e}: the flock is off the scale of float64"
    )


@kernel
def make_cell_list(N: Index) -> CellList:
    """Allocate the cell list of a flock of N agents."""
    return CellList(np.empty(N, np.uintp), np.empty(2 * N + 65, np.uintp), np.empty(N, np.uintp))


@kernel
def make_flock_buffers(N: Index) -> FlockBuffers:
    """Allocate a thread's buffers for a flock of N agents."""
    return FlockBuffers(
        make_cell_list(N), np.empty((N, 3), np.float64), np.empty((27, 2), np.uintp), np.empty(N, np.uintp)
    )


@kernel
def sort_flock(positions: Array, comm_radius: float, buffers: FlockBuffers) -> TorusShape:
    """Sort one flock, positions (N, D), into cells, copy its positions in cell order, and return the torus's shape.

    The shape is (0, 0, 0) if a position is out of range, as for `sort_into_cells`.
    """
    shape = sort_into_cells(positions, comm_radius, buffers.cells)
    order, sorted_positions, D = buffers.cells.order, buffers.positions, positions.shape[1]
    for s in range(np.uintp(order.size if shape[0] > 0 else 0)):
        i = order[s]
        sorted_positions[s, 0] = positions[i, 0]
        sorted_positions[s, 1] = positions[i, 1]
        sorted_positions[s, 2] = positions[i, 2] if D == 3 else 0.0
    return shape


@kernel
def _compute_extent(positions: Vectors) -> Extent:
    """Return the bounding box of one flock's positions (N, D); z is 0 in the plane."""
    is_number, D = True, positions.shape[1]
    x, y, z, X, Y, Z = math.inf, math.inf, math.inf, -math.inf, -math.inf, -math.inf
    for i in range(np.uintp(positions.shape[0])):
        a, b, c = positions[i, 0], positions[i, 1], positions[i, 2] if D == 3 else 0.0
        is_number &= (a == a) & (b == b) & (c == c)
        # Conditions rather than min and max, which would check for NaN again.
        x, y, z = a if a < x else x, b if b < y else y, c if c < z else z
        X, Y, Z = a if a > X else X, b if b > Y else Y, c if c > Z else Z
    return Extent(is_number, (x, y, z), (X, Y, Z))


@kernel
def sort_into_cells(positions: Vectors, comm_radius: float, cells: CellList) -> TorusShape:
    """Sort one flock, positions (N, D), into cells by a counting sort; write `cells` and return the torus's shape.

    The shape is (0, 0, 0) if a position is not finite or more than `MAX_CELL_INDEX` R from the origin. Within a bucket,
    agents stay in the order of their indices.
    """
    order, starts, buckets = cells
    # The box of cells that the flock fills: from the cells of its least coordinates to those of its largest.
    N, D = positions.shape
    per_side = 1.0 / (comm_radius * CELL_MARGIN)
    low = np.zeros(3, np.int64)
    shape = np.ones(3, np.int64)
    capacity = starts.size - 1
    extent = _compute_extent(positions)
    for d in range(D):
        smallest, largest = np.floor(extent.low[d] * per_side), np.floor(extent.high[d] * per_side)
        # Comparisons with NaN fail, and the index of a far cell would overflow an integer.
        if not (extent.is_number and abs(smallest) <= MAX_CELL_INDEX and abs(largest) <= MAX_CELL_INDEX):
            return 0, 0, 0
        # An empty cell on either side, so that no range of three cells wraps around in a compact flock.
        low[d] = np.int64(smallest) - 1
        shape[d] = min(int(largest - smallest) + 3, capacity)

    # If the box has more cells than memory allows, halve the torus along its longest side until it fits.
    while float(shape[0]) * float(shape[1]) * float(shape[2]) > capacity:
        widest = np.argmax(shape)
        shape[widest] = max(shape[widest] // 2, 3)

    # The bucket of each agent: its cell's indices modulo the torus.
    nx, ny, nz = shape
    bucket_count = nx * ny * nz
    lx, ly, lz = low
    for i in range(np.uintp(N)):
        x = np.int64(np.floor(positions[i, 0] * per_side)) - lx
        y = np.int64(np.floor(positions[i, 1] * per_side)) - ly
        z = np.int64(np.floor(positions[i, 2] * per_side)) - lz if D == 3 else 0
        row = (z if z < nz else z % nz) * ny + (y if y < ny else y % ny)
        buckets[i] = row * nx + (x if x < nx else x % nx)

    # starts[c + 1] counts the agents of bucket c; the cumulative sums are where buckets start. Each start advances as
    # agents are inserted, and is restored afterwards.
    starts[: bucket_count + 1] = 0
    for i in range(np.uintp(N)):
        starts[buckets[i] + np.uintp(1)] += np.uintp(1)
    for c in range(bucket_count):
        starts[c + 1] += starts[c]
    for i in range(np.uintp(N)):
        c = buckets[i]
        order[starts[c]] = i
        starts[c] += np.uintp(1)
    for c in range(bucket_count, 0, -1):
        starts[c] = starts[c - 1]
    starts[0] = 0
    return nx, ny, nz


@kernel
def sort_by_agent_id(order: Array, starts: Array, agent_ids: Array, first: Index, last: Index) -> None:
    """Sort `order` in place by agent ids within each of the buckets first .. last - 1."""
    # Insertion sort: agents are nearly in order, for which it takes linear time.
    for c in range(first, last):
        highest = np.int64(-1)
        for s in range(starts[c], starts[c + 1]):
            i = order[s]
            agent_id = agent_ids[i]
            if agent_id > highest:
                highest = agent_id
                continue
            t = np.uintp(s)
            while t > starts[c] and agent_ids[order[t - np.uintp(1)]] > agent_id:
                order[t] = order[t - np.uintp(1)]
                t -= np.uintp(1)
            order[t] = i


@inline_kernel
def wrap_index(cell: Index, cells: Index) -> Index:
    """Return `cell` modulo `cells` for -1 <= cell <= cells, without a division."""
    return cell + cells if cell < 0 else (cell - cells if cell >= cells else cell)


@kernel
def list_nearby_runs(c: Index, shape: TorusShape, starts: Array, runs: Array) -> Index:
    """List in runs (27, 2) the runs of agents in and around bucket c, in the order of their cells; return their number.

    A run is a half-open range of indices in cell order. The number is 0 if bucket c is empty.
    """
    if starts[c] == starts[c + 1]:
        return np.uintp(0)
    nx, ny, nz = shape
    # The place of the bucket on the torus.
    x, y, z = c % nx, (c // nx) % ny, c // (nx * ny)
    count = np.uintp(0)
    # The plane has a single layer of cells.
    for dz in range(-1 if nz > 1 else 0, 2 if nz > 1 else 1):
        for dy in range(-1, 2):
            row = (wrap_index(z + dz, nz) * ny + wrap_index(y + dy, ny)) * nx
            # Three adjacent cells of a row are one run of agents, except where the row wraps around.
            whole = 0 < x < nx - 1
            for dx in range(-1, 0 if whole else 2):
                first = row + wrap_index(x + dx, nx)
                runs[count, 0] = starts[first]
                runs[count, 1] = starts[first + (3 if whole else 1)]
                count += np.uintp(1)
    return count


@inline_kernel
def select_neighbours(
    s: Index, sorted_positions: Array, radius_squared: float, runs: Array, count: Index, neighbours: Array
) -> Index:
    """List in `neighbours` the agents within R of agent s among the first `count` runs, and return their number.

    Agents are indices in cell order; s itself is left out.
    """
    # |r_ij|^2 <= R^2 for every j in the cells around.
    x, y, z = sorted_positions[s, 0], sorted_positions[s, 1], sorted_positions[s, 2]
    degree = np.uintp(0)
    for run in range(count):
        for j in range(runs[run, 0], runs[run, 1]):
            dx, dy, dz = x - sorted_positions[j, 0], y - sorted_positions[j, 1], z - sorted_positions[j, 2]
            neighbours[degree] = j  # always written, kept if within R: no branch to mispredict
            degree += np.uintp((dx * dx + dy * dy + dz * dz <= radius_squared) & (j != s))
    return degree
