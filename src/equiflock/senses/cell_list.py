"""Near neighbours by a cell list: the kernels under the graph, the observations and the initial conditions.

Agents are sorted into cells of side R counted from the origin, so whoever an agent hears is in its own cell or one that
touches it. The cells lie on a torus of at most 2 N + 64 buckets: a flock spread over any area needs O(N) memory, and
agents of far cells that share a bucket are told apart by their distance. Neighbours are visited in the order (cell,
index), which does not depend on anything out of reach.

One flock's agents in cell order: `order[s]` is the s-th agent, `sorted_positions[s]` its position padded to three coordinates, and
bucket c holds s = starts[c] .. starts[c + 1]. A kernel that visits neighbours goes through them like this:

    for c in range(buckets):
        count = runs_around(c, shape, starts, runs)
        for s in range(starts[c], starts[c + 1]):
            heard = select_heard(s, place, comm_radius * comm_radius, runs, count, hits)    # hits[:heard]

These four lines are in each such kernel, on purpose. As a function that calls another for every agent, as a generator,
or with the loops over c and s made one, Numba counts references to arrays for every agent, which costs 10 to 40%.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from equiflock.flock import Vectors
from equiflock.runtime.checks import NumericRangeError
from equiflock.runtime.jit import Array, Index, inline_kernel, kernel

MAX_CELL_INDEX = 2.0**31
"""Beyond so many radii from the origin float64 cannot tell reliably which agents are within R."""

MAX_MAGNITUDE = 1e20
"""Velocities beyond this could overflow float32 in an observation, a sum of sums over neighbours."""

CELL_MARGIN = 1.0 + 2.0**-20
"""Cells are wider than R by this factor, so rounding never puts an agent and its neighbour two cells apart."""


def make_out_of_range_error() -> NumericRangeError:
    """The error for positions or velocities beyond the range in which the kernels are exact."""
    return NumericRangeError(
        f"positions must be finite and within {MAX_CELL_INDEX:.0e} radii of the origin, "
        f"velocities finite and below {MAX_MAGNITUDE:.0e}: the flock has flown off the scale of float64"
    )


@kernel
def make_cell_list(N: Index) -> tuple[Array, Array, Array]:
    """Memory for the cell list of one flock: order, starts, and each agent's bucket."""
    return np.empty(N, np.uintp), np.empty(2 * N + 65, np.uintp), np.empty(N, np.uintp)


@kernel
def make_workspace(N: Index) -> tuple[Array, Array]:
    """Memory for finding neighbours, one for each thread: runs of agents in the cells around, and hits."""
    # A cell in space has 27 cells around it, itself included; each gives one run of agents at most.
    return np.empty((27, 2), np.uintp), np.empty(N, np.uintp)


@kernel
def make_flock_buffers(N: Index) -> Any:
    """Memory for `sort_flock`: a cell list, positions in cell order, and a workspace."""
    return make_cell_list(N), np.empty((N, 3), np.float64), make_workspace(N)


@kernel
def sort_flock(positions: Array, comm_radius: float, memory: Any) -> tuple[Index, Index, Index]:
    """Sort one flock, positions (N, D), into cells, and its positions into cell order; returns the torus's shape.

    The shape is (0, 0, 0) if a position is not finite or too far away.
    """
    (order, starts, bucket), sorted_positions, _ = memory
    shape = sort_into_cells(positions, comm_radius, order, starts, bucket)
    if shape[0] > 0:
        copy_to_cell_order(positions, order, sorted_positions, 0, positions.shape[0])
    return shape


@kernel
def _compute_extremes(positions: Vectors) -> tuple[bool, tuple[float, float, float], tuple[float, float, float]]:
    """Whether no coordinate of one flock's positions (N, D) is NaN, and the least and the largest of each."""
    numbers, D = True, positions.shape[1]
    x, y, z, X, Y, Z = math.inf, math.inf, math.inf, -math.inf, -math.inf, -math.inf
    for i in range(np.uintp(positions.shape[0])):
        a, b, c = positions[i, 0], positions[i, 1], positions[i, 2] if D == 3 else 0.0
        numbers &= (a == a) & (b == b) & (c == c)
        # Conditions rather than min and max, which would take care of NaN once more.
        x, y, z = a if a < x else x, b if b < y else y, c if c < z else z
        X, Y, Z = a if a > X else X, b if b > Y else Y, c if c > Z else Z
    return numbers, (x, y, z), (X, Y, Z)


@kernel
def sort_into_cells(
    positions: Vectors, comm_radius: float, order: Array, starts: Array, bucket: Array
) -> tuple[Index, Index, Index]:
    """Counting sort of one flock, positions (N, D), into cells; returns the torus's shape.

    The shape is (0, 0, 0) if a position is not finite or too far away. Within a cell, agents stay in the
    order of their indices.
    """
    # The box of cells that the flock fills; cells grow with coordinates, so those of the extremes are enough.
    N, D = positions.shape
    per_side = 1.0 / (comm_radius * CELL_MARGIN)
    low = np.zeros(3, np.int64)
    shape = np.ones(3, np.int64)
    capacity = starts.size - 1
    numbers, least, most = _compute_extremes(positions)
    for d in range(D):
        smallest, largest = np.floor(least[d] * per_side), np.floor(most[d] * per_side)
        # NaN is in no order, and math.floor would overflow an integer.
        if not (numbers and abs(smallest) <= MAX_CELL_INDEX and abs(largest) <= MAX_CELL_INDEX):
            return 0, 0, 0
        # An empty cell on either side, so that no range of three cells wraps around in a compact flock.
        low[d] = np.int64(smallest) - 1
        shape[d] = min(int(largest - smallest) + 3, capacity)

    # If it has more cells than there is memory for, halve the torus along its longest side until it fits.
    while float(shape[0]) * float(shape[1]) * float(shape[2]) > capacity:
        widest = np.argmax(shape)
        shape[widest] = max(shape[widest] // 2, 3)

    # Each agent's bucket, cell indices modulo the torus.
    nx, ny, nz = shape
    buckets = nx * ny * nz
    lx, ly, lz = low
    for i in range(np.uintp(N)):
        x = np.int64(np.floor(positions[i, 0] * per_side)) - lx
        y = np.int64(np.floor(positions[i, 1] * per_side)) - ly
        z = np.int64(np.floor(positions[i, 2] * per_side)) - lz if D == 3 else 0
        row = (z if z < nz else z % nz) * ny + (y if y < ny else y % ny)
        bucket[i] = row * nx + (x if x < nx else x % nx)

    # starts[c + 1] counts the agents of bucket c. The sums of these counts are where buckets start; they move on as
    # agents are put in, and are moved back after.
    starts[: buckets + 1] = 0
    for i in range(np.uintp(N)):
        starts[bucket[i] + np.uintp(1)] += np.uintp(1)
    for c in range(buckets):
        starts[c + 1] += starts[c]
    for i in range(np.uintp(N)):
        c = bucket[i]
        order[starts[c]] = i
        starts[c] += np.uintp(1)
    for c in range(buckets, 0, -1):
        starts[c] = starts[c - 1]
    starts[0] = 0
    return nx, ny, nz


@kernel
def sort_by_agent_id(order: Array, starts: Array, agent_ids: Array, first: Index, last: Index) -> None:
    """Within each of the buckets first .. last, put agents into the order of their ranks; they nearly are."""
    # Insertion sort, which takes linear time for what is nearly in order: most agents stay where they are.
    for c in range(first, last):
        highest = np.int64(-1)
        for s in range(starts[c], starts[c + 1]):
            i = order[s]
            rank = agent_ids[i]
            if rank > highest:
                highest = rank
                continue
            t = np.uintp(s)
            while t > starts[c] and agent_ids[order[t - np.uintp(1)]] > rank:
                order[t] = order[t - np.uintp(1)]
                t -= np.uintp(1)
            order[t] = i


@kernel
def copy_to_cell_order(vectors: Array, order: Array, padded: Array, first: Index, last: Index) -> None:
    """Copy one flock's vectors (N, D) into cell order, padded to three coordinates by zero."""
    D = vectors.shape[1]
    for s in range(np.uintp(first), np.uintp(last)):
        i = order[s]
        padded[s, 0] = vectors[i, 0]
        padded[s, 1] = vectors[i, 1]
        padded[s, 2] = vectors[i, 2] if D == 3 else 0.0


@inline_kernel
def wrap_index(cell: Index, cells: Index) -> Index:
    """`cell` modulo `cells` for -1 <= cell <= cells, without a division."""
    return cell + cells if cell < 0 else (cell - cells if cell >= cells else cell)


@kernel
def list_nearby_runs(c: Index, shape: Any, starts: Array, runs: Array) -> Index:
    """List in runs (27, 2) the runs of agents in bucket c and around it, in the order of their cells.

    Returns how many runs there are; none if nobody is in bucket c.
    """
    if starts[c] == starts[c + 1]:
        return np.uintp(0)
    nx, ny, nz = shape
    # Where the bucket lies on the torus.
    x, y, z = c % nx, (c // nx) % ny, c // (nx * ny)
    count = np.uintp(0)
    # In the plane there is one layer of cells, and no neighbouring layer to visit.
    for dz in range(-1 if nz > 1 else 0, 2 if nz > 1 else 1):
        for dy in range(-1, 2):
            row = (wrap_index(z + dz, nz) * ny + wrap_index(y + dy, ny)) * nx
            # Three neighbouring cells of a row are one run of agents, except where the row wraps around.
            whole = 0 < x < nx - 1
            for dx in range(-1, 0 if whole else 2):
                first = row + wrap_index(x + dx, nx)
                runs[count, 0] = starts[first]
                runs[count, 1] = starts[first + (3 if whole else 1)]
                count += np.uintp(1)
    return count


@inline_kernel
def select_neighbours(
    s: Index, sorted_positions: Array, radius_squared: float, runs: Array, count: Index, hits: Array, D: Index = 3
) -> Index:
    """List in `hits` whom agent s hears among the first `count` runs of agents; returns how many."""
    # |r_ij|^2 <= R^2 for every j in the cells around.
    x, y, z = sorted_positions[s, 0], sorted_positions[s, 1], sorted_positions[s, 2]
    heard = np.uintp(0)
    for run in range(count):
        for j in range(runs[run, 0], runs[run, 1]):
            dx, dy, dz = (
                x - sorted_positions[j, 0],
                y - sorted_positions[j, 1],
                z - sorted_positions[j, 2] if D == 3 else 0.0,
            )
            hits[heard] = j  # written always and kept if heard: no branch for the processor to guess
            heard += np.uintp((dx * dx + dy * dy + dz * dz <= radius_squared) & (j != s))
    return heard
