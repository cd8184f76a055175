"""Who hears whom: the exact radius graph by a cell list.

Agent i hears j when j != i and |r_i - r_j| <= R, decided in float64 as |r_i - r_j|^2 <= R^2 (section 2.3 of
the paper). Only followers hear; leaders and obstacle agents are heard.

Agents are sorted into cells of side R counted from the origin, so whoever an agent hears is in its own cell
or one that touches it. The cells lie on a torus of at most 2 N + 64 buckets: a flock spread over any area needs
O(N) memory, and agents of far cells that share a bucket are told apart by their distance. Neighbours are
visited in the order (cell, index), which does not depend on anything out of reach.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64

from equiflock import threads
from equiflock.kernels import Array, Index, inlined, kernel
from equiflock.types import Flock, InputError, Role, Roles, Vectors, check_positive

FOLLOWER, OBSTACLE = int(Role.FOLLOWER), int(Role.OBSTACLE)

FARTHEST_CELL = 2.0**31
"""Beyond so many radii from the origin float64 cannot tell reliably which agents are within R."""

FASTEST = 1e20
"""Velocities beyond this could overflow a sum of sums of messages in float32."""

SLACK = 1.0 + 2.0**-20
"""Cells are wider than R by this factor, so rounding never puts an agent and its neighbour two cells apart."""

SMALL_FLOCK = 3_000
"""Up to so many agents a flock is one thread's work, and a batch is shared out by flocks."""

AGENTS_PER_THREAD = 1_500
"""A second thread pays off from about so many agents each."""


@dataclass(frozen=True, eq=False)
class Graph:
    """The communication graph of B flocks, as lists of in-neighbours.

    Attributes:
        starts: (B * N + 1,), agent i of flock b hears senders[starts[b * N + i] : starts[b * N + i + 1]].
        senders: (edges,), indices of agents within their flock.
        shape: (B, N).
    """

    starts: Int64[np.ndarray, " rows"]
    senders: Int64[np.ndarray, " edges"]
    shape: tuple[int, int]

    @property
    def degrees(self) -> Int64[np.ndarray, "B N"]:
        """How many agents each agent hears, (B, N)."""
        return np.diff(self.starts).reshape(self.shape)

    def neighbours(self, flock: int, agent: int) -> Int64[np.ndarray, " degree"]:
        """Whom an agent hears."""
        B, N = self.shape
        row = range(B)[flock] * N + range(N)[agent]  # indices like a list's
        return self.senders[self.starts[row] : self.starts[row + 1]]

    def edges(self, flock: int) -> Int64[np.ndarray, "edges 2"]:
        """The edges of one flock as rows (receiver, sender)."""
        flock, N = range(self.shape[0])[flock], self.shape[1]
        receivers = np.repeat(np.arange(N), self.degrees[flock])
        senders = self.senders[self.starts[flock * N] : self.starts[(flock + 1) * N]]
        return np.stack([receivers, senders], axis=1)


def radius_graph(flock: Flock, radius: float = 1.0) -> Graph:
    """The exact communication graph for communication radius R, with no cap on neighbours.

    Memory is O(N + edges). Coincident agents (|r_ij| = 0) hear each other like any others.
    """
    degrees, _ = survey(flock, radius)
    starts = np.zeros(degrees.size + 1, np.int64)
    np.cumsum(degrees.ravel(), out=starts[1:])
    senders = np.empty(starts[-1], np.int64)
    over_flocks(_list_neighbours, flock, flock.positions, flock.roles, float(radius), starts.astype(np.uintp), senders)
    return Graph(starts, senders, flock.shape[:2])


def components(flock: Flock, radius: float = 1.0) -> Int64[np.ndarray, "B N"]:
    """Which connected component each agent belongs to, (B, N), numbered 0, 1, .. by their first agents.

    Two agents of the flock are joined when at least one hears the other, so two leaders are not joined
    directly. Obstacle agents belong to no component: -1.
    """
    return survey(flock, radius)[1]


def survey(flock: Flock, radius: float) -> tuple[Int64[np.ndarray, "B N"], Int64[np.ndarray, "B N"]]:
    """Degrees and component labels, both (B, N), without listing the edges: memory O(N)."""
    check_positive("radius", radius)
    degrees = np.empty(flock.shape[:2], np.int64)
    labels = np.empty(flock.shape[:2], np.int64)
    over_flocks(_survey_flocks, flock, flock.positions, flock.roles, float(radius), degrees, labels)
    return degrees, labels


def over_flocks(kernel: Any, flock: Flock, *arguments: Any) -> None:
    """Run `kernel(*arguments, first, last) -> bool` over all flocks on several threads; False is bad input."""
    B, N, _ = flock.shape
    parts = threads.split(B, -(-AGENTS_PER_THREAD // N))
    if not all(threads.share(kernel, [(*arguments, *part) for part in parts])):
        raise out_of_range()


def out_of_range() -> InputError:
    """The error for a state that kernels refuse."""
    return InputError(
        f"positions must be finite and within {FARTHEST_CELL:.0e} radii of the origin, "
        f"velocities finite and below {FASTEST:.0e}: the flock has flown off the scale of float64"
    )


# Kernels. One flock's agents in cell order: `order[s]` is the s-th agent, `place[s]` its position padded to
# three coordinates, and bucket c holds s = starts[c] .. starts[c + 1].


@kernel
def cell_list(N: Index) -> tuple[Array, Array, Array]:
    """Memory for the cell list of one flock: order, starts, and each agent's bucket."""
    return np.empty(N, np.uintp), np.empty(2 * N + 65, np.uintp), np.empty(N, np.uintp)


@kernel
def workspace(N: Index) -> tuple[Array, Array]:
    """Memory for visiting neighbours: runs of agents in the cells around, and hits."""
    return np.empty((27, 2), np.uintp), np.empty(N, np.uintp)


@kernel
def sort_into_cells(
    positions: Vectors, radius: float, order: Array, starts: Array, bucket: Array
) -> tuple[Index, Index, Index]:
    """Counting sort of one flock, positions (N, D), into cells; returns the torus's shape.

    The shape is (0, 0, 0) if a position is not finite or too far away. Within a cell, agents stay in the
    order of their indices.
    """
    N, D = positions.shape
    per_side = 1.0 / (radius * SLACK)
    low = np.zeros(3, np.int64)
    shape = np.ones(3, np.int64)
    capacity = starts.size - 1
    for d in range(D):
        smallest, largest = math.inf, -math.inf
        for i in range(N):
            cell = np.floor(positions[i, d] * per_side)  # math.floor would overflow an integer
            if not abs(cell) <= FARTHEST_CELL:
                return 0, 0, 0
            smallest, largest = min(smallest, float(cell)), max(largest, float(cell))
        # An empty cell on either side, so that no range of three cells wraps around in a compact flock.
        low[d] = np.int64(smallest) - 1
        shape[d] = min(int(largest - smallest) + 3, capacity)
    while float(shape[0]) * float(shape[1]) * float(shape[2]) > capacity:
        widest = np.argmax(shape)
        shape[widest] = max(shape[widest] // 2, 3)

    nx, ny, nz = shape
    buckets = nx * ny * nz
    starts[: buckets + 1] = 0
    for i in range(N):
        flat = np.int64(0)
        for d in range(D - 1, -1, -1):
            cell = np.int64(np.floor(positions[i, d] * per_side)) - low[d]
            flat = flat * shape[d] + (cell if cell < shape[d] else cell % shape[d])
        bucket[i] = flat
        starts[np.uintp(flat) + np.uintp(1)] += np.uintp(1)
    for c in range(buckets):
        starts[c + 1] += starts[c]
    for i in range(N):
        c = bucket[i]
        order[starts[c]] = i
        starts[c] += np.uintp(1)
    for c in range(buckets, 0, -1):
        starts[c] = starts[c - 1]
    starts[0] = 0
    return nx, ny, nz


@kernel
def into_cell_order(vectors: Array, order: Array, padded: Array, first: Index, last: Index) -> None:
    """Copy one flock's vectors (N, D) into cell order, padded to three coordinates by zero."""
    D = vectors.shape[1]
    for s in range(np.uintp(first), np.uintp(last)):
        i = order[s]
        padded[s, 0] = vectors[i, 0]
        padded[s, 1] = vectors[i, 1]
        padded[s, 2] = vectors[i, 2] if D == 3 else 0.0


@inlined
def _wrap(cell: Index, cells: Index) -> Index:
    """`cell` modulo `cells` for -1 <= cell <= cells, without a division."""
    return cell + cells if cell < 0 else (cell - cells if cell >= cells else cell)


@kernel
def runs_around(c: Index, shape: Any, starts: Array, runs: Array) -> Index:
    """List in runs (27, 2) the runs of agents in bucket c and around it, in the order of their cells."""
    nx, ny, nz = shape
    x, y, z = c % nx, (c // nx) % ny, c // (nx * ny)
    count = np.uintp(0)
    for dz in range(-1 if nz > 1 else 0, 2 if nz > 1 else 1):
        for dy in range(-1, 2):
            row = (_wrap(z + dz, nz) * ny + _wrap(y + dy, ny)) * nx
            # Three neighbouring cells of a row are one run of agents, except where the row wraps around.
            whole = 0 < x < nx - 1
            for dx in range(-1, 0 if whole else 2):
                first = row + _wrap(x + dx, nx)
                runs[count, 0] = starts[first]
                runs[count, 1] = starts[first + (3 if whole else 1)]
                count += np.uintp(1)
    return count


@inlined
def select_heard(
    s: Index, place: Array, radius_squared: float, runs: Array, count: Index, hits: Array, D: Index = 3
) -> Index:
    """List in `hits` whom agent s hears among the first `count` runs of agents; returns how many."""
    x, y, z = place[s, 0], place[s, 1], place[s, 2]
    heard = np.uintp(0)
    for run in range(count):
        for j in range(runs[run, 0], runs[run, 1]):
            dx, dy, dz = x - place[j, 0], y - place[j, 1], z - place[j, 2] if D == 3 else 0.0
            hits[heard] = j  # written always and kept if heard: no branch for the processor to guess
            heard += np.uintp((dx * dx + dy * dy + dz * dz <= radius_squared) & (j != s))
    return heard


@kernel
def _root(parent: Array, i: Index) -> Index:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@kernel
def survey_flock(positions: Array, roles: Array, radius: float, degrees: Array, labels: Array, memory: Any) -> bool:
    """Degrees and component labels, each (N,), of one flock; False if its positions are out of range."""
    N = positions.shape[0]
    (order, starts, bucket), place, (runs, hits), parent = memory
    shape = sort_into_cells(positions, radius, order, starts, bucket)
    if shape[0] == 0:
        return False
    into_cell_order(positions, order, place, 0, N)
    for i in range(np.uintp(N)):
        parent[i] = i
    for c in range(shape[0] * shape[1] * shape[2]):
        if starts[c] == starts[c + 1]:
            continue
        count = runs_around(c, shape, starts, runs)
        for s in range(starts[c], starts[c + 1]):
            i = order[s]
            heard = select_heard(s, place, radius * radius, runs, count, hits)
            degrees[i] = heard if roles[i] == FOLLOWER else 0
            if roles[i] != FOLLOWER:
                continue
            for h in range(heard):
                j = order[hits[h]]
                if roles[j] != OBSTACLE:
                    a, b = _root(parent, i), _root(parent, j)
                    parent[max(a, b)] = min(a, b)  # the smallest index is the root
    following = 0
    for i in range(np.uintp(N)):
        root = _root(parent, i)
        if roles[i] == OBSTACLE:
            labels[i] = -1
        elif root == i:
            labels[i] = following
            following += 1
        else:
            labels[i] = labels[root]
    return True


@kernel
def survey_memory(N: Index) -> Any:
    """Memory for `survey_flock`."""
    return cell_list(N), np.empty((N, 3), np.float64), workspace(N), np.empty(N, np.uintp)


@kernel
def _survey_flocks(
    positions: Vectors, roles: Roles, radius: float, degrees: Array, labels: Array, first: Index, last: Index
) -> bool:
    memory = survey_memory(positions.shape[1])
    for b in range(first, last):
        if not survey_flock(positions[b], roles[b], radius, degrees[b], labels[b], memory):
            return False
    return True


@kernel
def _list_neighbours(
    positions: Vectors, roles: Roles, radius: float, begins: Array, senders: Array, first: Index, last: Index
) -> bool:
    N = positions.shape[1]
    (order, starts, bucket), place, (runs, hits), _ = survey_memory(N)
    for b in range(first, last):
        shape = sort_into_cells(positions[b], radius, order, starts, bucket)
        into_cell_order(positions[b], order, place, 0, N)
        for c in range(shape[0] * shape[1] * shape[2]):
            if starts[c] == starts[c + 1]:
                continue
            count = runs_around(c, shape, starts, runs)
            for s in range(starts[c], starts[c + 1]):
                i = order[s]
                if roles[b, i] == FOLLOWER:
                    heard = select_heard(s, place, radius * radius, runs, count, hits)
                    for h in range(heard):
                        senders[begins[np.uintp(b * N) + i] + h] = order[hits[h]]
    return True
