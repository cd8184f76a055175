"""What courses past obstacles look at: pieces of the flock, separations, and how near obstacles are."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float64

from equiflock.flock import FOLLOWER, NO_OBSTACLE, OBSTACLE, Flock
from equiflock.runtime.jit import Array, Index, kernel
from equiflock.senses.cells import runs_around, select_heard, sort_flock
from equiflock.senses.graph import join, over_flocks, root_of, survey_memory

ObstacleNode = Literal["one", "each"]
"""Whether an obstacle is one node of the communication graph, or each of its agents is one."""
Awareness = Literal["followers", "flock"]
"""Who within R of an obstacle makes it a node of the graph and is joined to it: followers, or leaders, too."""
STRAIGHT = 1e-6
"""How far from a straight line the agents of a wall may be, as a share of its half length: room for rounding."""
NUMBERS = 5
"""Numbers of a flock as a whole, before those of each obstacle."""


class Watched(NamedTuple):
    """What is seen of B flocks, the agents that work, and of their M obstacles."""

    pieces: Float64[np.ndarray, " B"]
    """Connected components of the graph in which an obstacle that somebody is aware of is a node."""
    largest: Float64[np.ndarray, " B"]
    """Flock agents in the component that has most of them."""
    separation: Float64[np.ndarray, " B"]
    """The least distance of a flock agent from another, failed or not; infinite beyond R."""
    gap: Float64[np.ndarray, " B"]
    """The least distance of a flock agent from an obstacle agent; infinite beyond R."""
    depth: Float64[np.ndarray, " B"]
    """How far the flock is from the nearest obstacle's rim, negative inside; infinite where there are walls only."""
    gaps: Float64[np.ndarray, "B M"]
    """As `gap`, for each obstacle."""


def watch(
    flock: Flock,
    comm_radius: float | None = None,
    obstacle_node: ObstacleNode = "one",
    awareness: Awareness = "followers",
    obstacles: int | None = None,
) -> Watched:
    """Look at flocks on a course, or anywhere else.

    Args:
        flock: the agents now.
        comm_radius: R, that of the flock if left out.
        obstacle_node: as for `UntilPassed`.
        awareness: as for `UntilPassed`.
        obstacles: M, if there may be more of them than in these flocks.
    """
    comm_radius = flock.comm_radius if comm_radius is None else comm_radius
    count = int(flock.obstacles.max()) + 1 if obstacles is None else obstacles
    seen = np.empty((len(flock), NUMBERS + count))
    state = flock.positions, flock.roles, flock.working, flock.obstacles
    over_flocks(_watch, flock, *state, comm_radius, obstacle_node == "one", awareness == "flock", seen)
    pieces, largest, separation, gap, depth = seen[:, :NUMBERS].T
    return Watched(pieces, largest, separation, gap, depth, seen[:, NUMBERS:])


@kernel
def _watch(
    positions: Array,
    roles: Array,
    working: Array,
    obstacles: Array,
    comm_radius: float,
    one_node: bool,
    leaders_aware: bool,
    seen: Array,
    first: Index,
    last: Index,
) -> bool:
    """The numbers of `Watched` in their order, of flocks first .. last, into seen (B, NUMBERS + M)."""
    N, M = positions.shape[1], seen.shape[1] - NUMBERS
    memory = survey_memory(N), np.empty(N, np.uintp), np.empty(M, np.bool_)
    readings = one_node, leaders_aware
    for b in range(first, last):
        crew = roles[b], working[b], obstacles[b]
        if not _watch_flock(positions[b], crew, comm_radius, readings, seen[b], memory):
            return False
    return True


@kernel
def _watch_flock(positions: Array, crew: Any, comm_radius: float, readings: Any, seen: Array, memory: Any) -> bool:
    """One flock's row of `_watch`; False if its positions are out of range."""
    roles, working, obstacles = crew
    one_node, leaders_aware = readings
    # Cells, and a union-find forest in which every agent is a set by itself, or all agents of an obstacle are one.
    (cells, parent), firsts, touched = memory
    (order, starts, _), place, (runs, hits) = cells
    shape = sort_flock(positions, comm_radius, cells)
    if shape[0] == 0:
        return False
    _begin_forest(obstacles, one_node, parent, firsts)
    separation, gaps = math.inf, seen[NUMBERS:]
    gaps[:] = math.inf
    touched[:] = False
    # All pairs within R of each other: the least squared distances, and the edges of the graph.
    for c in range(shape[0] * shape[1] * shape[2]):
        count = runs_around(c, shape, starts, runs)
        for s in range(starts[c], starts[c + 1]):
            i = order[s]
            if not working[i]:
                continue
            heard = select_heard(s, place, comm_radius * comm_radius, runs, count, hits)
            for h in range(heard):
                j, square = order[hits[h]], 0.0
                for d in range(3):
                    square += (place[hits[h], d] - place[s, d]) ** 2
                if roles[j] == OBSTACLE:
                    gaps[obstacles[j]] = min(gaps[obstacles[j]], square)
                else:
                    separation = min(separation, square)
                # A failed agent joins nobody. Leaders hear nobody, but they may count as aware of obstacles.
                if not working[j] and roles[j] != OBSTACLE:
                    continue
                if roles[i] == FOLLOWER or (leaders_aware and roles[j] == OBSTACLE):
                    join(parent, i, j)
                    if roles[j] == OBSTACLE:
                        touched[obstacles[j]] = True
    # From squares to distances, and the components; obstacles that nobody is aware of are no nodes.
    for m in range(gaps.size):
        gaps[m] = math.sqrt(gaps[m])
    seen[0], seen[1] = _count_pieces(working, obstacles, touched, parent, firsts)
    seen[2], seen[3] = math.sqrt(separation), gaps.min() if gaps.size > 0 else math.inf
    seen[4] = _depth(positions, working, obstacles, gaps.size)
    return True


@kernel
def _begin_forest(obstacles: Array, one_node: bool, parent: Array, firsts: Array) -> None:
    """A forest in which every agent is a set by itself, or joined to the first agent of its obstacle."""
    # firsts[m] is the least number of an agent of obstacle m.
    N = np.uintp(obstacles.size)
    for i in range(N):
        firsts[i] = N
    for i in range(N):
        parent[i] = i
        number = obstacles[i]
        if one_node and number != NO_OBSTACLE:
            firsts[number] = min(firsts[number], i)
            parent[i] = firsts[number]


@kernel
def _count_pieces(working: Array, obstacles: Array, touched: Array, parent: Array, sizes: Array) -> tuple[Index, Index]:
    """How many sets there are among flock agents and the agents of obstacles that somebody is aware of.

    And how many flock agents the one with most of them has. `sizes` is memory for N numbers.
    """
    N = np.uintp(obstacles.size)
    sizes[:] = 0
    pieces, largest = 0, 0
    for i in range(N):
        root = root_of(parent, i)
        counts = working[i] or (obstacles[i] != NO_OBSTACLE and touched[obstacles[i]])
        if counts and root == i:
            pieces += 1
        if working[i]:
            sizes[root] += np.uintp(1)
            largest = max(largest, int(sizes[root]))
    return pieces, largest


@kernel
def _depth(positions: Array, working: Array, obstacles: Array, count: Index) -> float:
    """The least distance of a flock agent from the circle around the agents of an obstacle, negative inside it.

    Walls, whose agents stand in one straight row, count for nothing here.
    """
    least = math.inf
    for m in range(count):
        # The obstacle's middle.
        x, y, rim = 0.0, 0.0, 0
        for i in range(obstacles.size):
            rim += obstacles[i] == m
        for i in range(obstacles.size):
            if obstacles[i] == m:
                x, y = x + positions[i, 0] / rim, y + positions[i, 1] / rim
        # Its radius, in which direction its farthest agent lies, and who of the flock is nearest to the middle.
        radius, nearest, along, across = 0.0, math.inf, 0.0, 0.0
        for i in range(obstacles.size):
            distance = math.sqrt((positions[i, 0] - x) ** 2 + (positions[i, 1] - y) ** 2)
            if obstacles[i] == m:
                if distance > radius:
                    radius, along, across = distance, positions[i, 0] - x, positions[i, 1] - y
            elif working[i]:
                nearest = min(nearest, distance)
        # How far its agents are from the line through the middle in that direction: not at all, for a wall.
        width = 0.0
        for i in range(obstacles.size):
            if obstacles[i] == m:
                width = max(width, abs(along * (positions[i, 1] - y) - across * (positions[i, 0] - x)))
        if rim > 0 and width > STRAIGHT * radius * radius:
            least = min(least, nearest - radius)
    return least
