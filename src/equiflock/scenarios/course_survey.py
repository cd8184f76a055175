"""What courses past obstacles look at: pieces of the flock, separations, and how near obstacles are."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float64

from equiflock.flock import FOLLOWER, NO_OBSTACLE, OBSTACLE, Flock
from equiflock.runtime.jit import Array, Index, kernel
from equiflock.senses.cell_list import list_nearby_runs, select_neighbours, sort_flock
from equiflock.senses.graph import find_root, make_connectivity_buffers, run_over_flocks, unite

ObstacleNode = Literal["one", "each"]
"""Whether an obstacle is one node of the communication graph, or each of its agents is one."""
Awareness = Literal["followers", "flock"]
"""Who within R of an obstacle makes it a node of the graph and is joined to it: followers, or leaders, too."""
WALL_TOLERANCE = 1e-6
"""How far from a straight line the agents of a wall may be, as a share of its half length: room for rounding."""
FLOCK_COLUMNS = 5
"""Numbers of a flock as a whole, before those of each obstacle."""


class CourseSurvey(NamedTuple):
    """What is seen of B flocks, the agents that work, and of their M obstacles."""

    component_count: Float64[np.ndarray, " B"]
    """Connected components of the graph in which an obstacle that somebody is aware of is a node."""
    largest_component: Float64[np.ndarray, " B"]
    """Flock agents in the component that has most of them."""
    separation: Float64[np.ndarray, " B"]
    """The least distance of a flock agent from another, failed or not; infinite beyond R."""
    obstacle_distance: Float64[np.ndarray, " B"]
    """The least distance of a flock agent from an obstacle agent; infinite beyond R."""
    rim_distance: Float64[np.ndarray, " B"]
    """How far the flock is from the nearest obstacle's rim, negative inside; infinite where there are walls only."""
    obstacle_distances: Float64[np.ndarray, "B M"]
    """As `obstacle_distance`, for each obstacle."""


def survey_course(
    flock: Flock,
    comm_radius: float | None = None,
    obstacle_node: ObstacleNode = "one",
    awareness: Awareness = "followers",
    obstacles: int | None = None,
) -> CourseSurvey:
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
    survey = np.empty((len(flock), FLOCK_COLUMNS + count))
    state = flock.positions, flock.roles, flock.working, flock.obstacles
    run_over_flocks(_survey_flocks, flock, *state, comm_radius, obstacle_node == "one", awareness == "flock", survey)
    component_count, largest_component, separation, obstacle_distance, rim_distance = survey[:, :FLOCK_COLUMNS].T
    return CourseSurvey(
        component_count, largest_component, separation, obstacle_distance, rim_distance, survey[:, FLOCK_COLUMNS:]
    )


@kernel
def _survey_flocks(
    positions: Array,
    roles: Array,
    working: Array,
    obstacles: Array,
    comm_radius: float,
    one_node: bool,
    leaders_aware: bool,
    survey: Array,
    first: Index,
    last: Index,
) -> bool:
    """The numbers of `CourseSurvey` in their order, of flocks first .. last, into seen (B, NUMBERS + M)."""
    N, M = positions.shape[1], survey.shape[1] - FLOCK_COLUMNS
    buffers = make_connectivity_buffers(N), np.empty(N, np.uintp), np.empty(M, np.bool_)
    readings = one_node, leaders_aware
    for b in range(first, last):
        agents = roles[b], working[b], obstacles[b]
        if not _survey_flock(positions[b], agents, comm_radius, readings, survey[b], buffers):
            return False
    return True


@kernel
def _survey_flock(
    positions: Array, agents: Any, comm_radius: float, readings: Any, survey: Array, buffers: Any
) -> bool:
    """One flock's row of `_survey_flocks`; False if its positions are out of range."""
    roles, working, obstacles = agents
    one_node, leaders_aware = readings
    # Cells, and a union-find forest in which every agent is a set by itself, or all agents of an obstacle are one.
    (cells, parent), firsts, touched = buffers
    (order, starts, _), sorted_positions, (runs, hits) = cells
    shape = sort_flock(positions, comm_radius, cells)
    if shape[0] == 0:
        return False
    _init_forest(obstacles, one_node, parent, firsts)
    separation, obstacle_distances = math.inf, survey[FLOCK_COLUMNS:]
    obstacle_distances[:] = math.inf
    touched[:] = False
    # All pairs within R of each other: the least squared distances, and the edges of the graph.
    for c in range(shape[0] * shape[1] * shape[2]):
        count = list_nearby_runs(c, shape, starts, runs)
        for s in range(starts[c], starts[c + 1]):
            i = order[s]
            if not working[i]:
                continue
            heard = select_neighbours(s, sorted_positions, comm_radius * comm_radius, runs, count, hits)
            for h in range(heard):
                j, square = order[hits[h]], 0.0
                for d in range(3):
                    square += (sorted_positions[hits[h], d] - sorted_positions[s, d]) ** 2
                if roles[j] == OBSTACLE:
                    obstacle_distances[obstacles[j]] = min(obstacle_distances[obstacles[j]], square)
                else:
                    separation = min(separation, square)
                # A failed agent joins nobody. Leaders hear nobody, but they may count as aware of obstacles.
                if not working[j] and roles[j] != OBSTACLE:
                    continue
                if roles[i] == FOLLOWER or (leaders_aware and roles[j] == OBSTACLE):
                    unite(parent, i, j)
                    if roles[j] == OBSTACLE:
                        touched[obstacles[j]] = True
    # From squares to distances, and the components; obstacles that nobody is aware of are no nodes.
    for m in range(obstacle_distances.size):
        obstacle_distances[m] = math.sqrt(obstacle_distances[m])
    survey[0], survey[1] = _count_components(working, obstacles, touched, parent, firsts)
    survey[2], survey[3] = math.sqrt(separation), obstacle_distances.min() if obstacle_distances.size > 0 else math.inf
    survey[4] = _compute_rim_distance(positions, working, obstacles, obstacle_distances.size)
    return True


@kernel
def _init_forest(obstacles: Array, one_node: bool, parent: Array, firsts: Array) -> None:
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
def _count_components(
    working: Array, obstacles: Array, touched: Array, parent: Array, sizes: Array
) -> tuple[Index, Index]:
    """How many sets there are among flock agents and the agents of obstacles that somebody is aware of.

    And how many flock agents the one with most of them has. `sizes` is memory for N numbers.
    """
    N = np.uintp(obstacles.size)
    sizes[:] = 0
    component_count, largest_component = 0, 0
    for i in range(N):
        root = find_root(parent, i)
        counts = working[i] or (obstacles[i] != NO_OBSTACLE and touched[obstacles[i]])
        if counts and root == i:
            component_count += 1
        if working[i]:
            sizes[root] += np.uintp(1)
            largest_component = max(largest_component, int(sizes[root]))
    return component_count, largest_component


@kernel
def _compute_rim_distance(positions: Array, working: Array, obstacles: Array, count: Index) -> float:
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
        if rim > 0 and width > WALL_TOLERANCE * radius * radius:
            least = min(least, nearest - radius)
    return least
