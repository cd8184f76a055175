"""The survey of an obstacle course: components of the flock, separations, and distances from obstacles."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float64

from equiflock._runtime.jit import Array, Index, kernel
from equiflock.flock import FOLLOWER, NO_OBSTACLE, OBSTACLE, Flock
from equiflock.graph.cell_list import list_nearby_runs, select_neighbours, sort_flock
from equiflock.graph.radius_graph import find_root, make_connectivity_buffers, run_over_flocks, unite

ObstacleNode = Literal["one", "each"]
"""Nodes that an obstacle adds to the communication graph: one, or one for each of its agents."""
Awareness = Literal["followers", "flock"]
"""Agents within R of an obstacle that make it a node of the graph and are joined to it: followers, or leaders, too."""
WALL_TOLERANCE = 1e-6
"""Distance of a wall's agents from a straight line due to rounding, as a share of the wall's half length."""
COMPONENT_COUNT, LARGEST_COMPONENT, SEPARATION, OBSTACLE_DISTANCE, RIM_DISTANCE, FLOCK_COLUMNS = range(6)
"""Columns of a survey (B, FLOCK_COLUMNS + M), in the order of `CourseSurvey`."""


class CourseSurvey(NamedTuple):
    """Connectivity and distances of the working agents of B flocks, with M obstacles."""

    component_count: Float64[np.ndarray, " B"]
    """Connected components of the graph; an obstacle is a node while an agent is aware of it."""
    largest_component: Float64[np.ndarray, " B"]
    """Flock agents in the component with the most of them."""
    separation: Float64[np.ndarray, " B"]
    """Least distance between a working agent and any other flock agent, failed or not; infinite beyond R."""
    obstacle_distance: Float64[np.ndarray, " B"]
    """Least distance between a working agent and an obstacle agent; infinite beyond R."""
    rim_distance: Float64[np.ndarray, " B"]
    """Least distance of a working agent from an obstacle's rim, negative inside; infinite if there are only walls."""
    obstacle_distances: Float64[np.ndarray, "B M"]
    """`obstacle_distance` for each obstacle."""


class SurveyAgents(NamedTuple):
    """The arrays (N,) of one flock that the kernels read."""

    roles: Array
    working: Array
    obstacles: Array


class GraphInterpretation(NamedTuple):
    """How the kernels read the paper's rule that an obstacle can be a node of the communication graph."""

    one_node: bool
    """Whether an obstacle is a single node, rather than one for each of its agents."""
    leaders_aware: bool
    """Whether leaders, like followers, are joined to an obstacle within R."""


class SurveyBuffers(NamedTuple):
    """Scratch memory of the survey of one flock."""

    connectivity: Any
    """Cell list and union-find forest, from `make_connectivity_buffers`."""
    firsts: Array
    """(N,) uintp, the first agent of each obstacle; later the size of each component."""
    touched: Array
    """(M,) bool, obstacles that an agent is aware of."""


def survey_course(
    flock: Flock,
    comm_radius: float | None = None,
    obstacle_node: ObstacleNode = "one",
    awareness: Awareness = "followers",
    obstacles: int | None = None,
) -> CourseSurvey:
    """Return the survey of B flocks, with obstacles or without, computed on several threads.

    `obstacle_node` and `awareness` are as for `UntilPassed`. `obstacles` is M, if it can be larger than the number of
    obstacles in these flocks, the default; the distance from an obstacle that a flock lacks is infinite.
    """
    comm_radius = flock.comm_radius if comm_radius is None else comm_radius
    count = int(flock.obstacles.max()) + 1 if obstacles is None else obstacles
    survey = np.empty((len(flock), FLOCK_COLUMNS + count))
    state = flock.positions, flock.roles, flock.working, flock.obstacles
    run_over_flocks(_survey_flocks, flock, *state, comm_radius, obstacle_node == "one", awareness == "flock", survey)
    return CourseSurvey._make([*survey.T[:FLOCK_COLUMNS], survey[:, FLOCK_COLUMNS:]])


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
    """Write the fields of `CourseSurvey` for flocks first .. last - 1 into survey (B, FLOCK_COLUMNS + M).

    Return True; at the first flock whose positions are out of range, stop and return False.
    """
    N, M = positions.shape[1], survey.shape[1] - FLOCK_COLUMNS
    buffers = SurveyBuffers(make_connectivity_buffers(N), np.empty(N, np.uintp), np.empty(M, np.bool_))
    interpretation = GraphInterpretation(one_node, leaders_aware)
    for b in range(first, last):
        agents = SurveyAgents(roles[b], working[b], obstacles[b])
        if not _survey_flock(positions[b], agents, comm_radius, interpretation, survey[b], buffers):
            return False
    return True


@kernel
def _survey_flock(
    positions: Array,
    agents: SurveyAgents,
    comm_radius: float,
    interpretation: GraphInterpretation,
    survey: Array,
    buffers: SurveyBuffers,
) -> bool:
    """Write one flock's row of `_survey_flocks`; return False, and write nothing, if positions are out of range."""
    roles, working, obstacles = agents.roles, agents.working, agents.obstacles
    # Sort agents into cells; start a union-find forest with a set for each agent, or one for each obstacle.
    cells, parent = buffers.connectivity
    (order, starts, _), sorted_positions, runs, hits = cells
    touched = buffers.touched
    shape = sort_flock(positions, comm_radius, cells)
    if shape[0] == 0:
        return False
    _init_forest(obstacles, interpretation.one_node, parent, buffers.firsts)
    separation, obstacle_distances = math.inf, survey[FLOCK_COLUMNS:]
    obstacle_distances[:] = math.inf
    touched[:] = False
    # For all pairs within R: take the least squared distances, and unite the ends of each edge of the graph.
    for c in range(shape[0] * shape[1] * shape[2]):
        count = list_nearby_runs(c, shape, starts, runs)
        for s in range(starts[c], starts[c + 1]):
            i = order[s]
            if not working[i]:
                continue
            degree = select_neighbours(s, sorted_positions, comm_radius * comm_radius, runs, count, hits)
            for h in range(degree):
                j, square = order[hits[h]], 0.0
                for d in range(3):
                    square += (sorted_positions[hits[h], d] - sorted_positions[s, d]) ** 2
                if roles[j] == OBSTACLE:
                    obstacle_distances[obstacles[j]] = min(obstacle_distances[obstacles[j]], square)
                else:
                    separation = min(separation, square)
                # Failed agents have no edges. Leaders receive nothing, but may count as aware of obstacles.
                if not working[j] and roles[j] != OBSTACLE:
                    continue
                if roles[i] == FOLLOWER or (interpretation.leaders_aware and roles[j] == OBSTACLE):
                    unite(parent, i, j)
                    if roles[j] == OBSTACLE:
                        touched[obstacles[j]] = True
    # Turn squares into distances, and count components; an obstacle that no agent is aware of is not a node.
    for m in range(obstacle_distances.size):
        obstacle_distances[m] = math.sqrt(obstacle_distances[m])
    component_count, largest_component = _count_components(working, obstacles, touched, parent, buffers.firsts)
    survey[COMPONENT_COUNT], survey[LARGEST_COMPONENT] = component_count, largest_component
    survey[SEPARATION] = math.sqrt(separation)
    survey[OBSTACLE_DISTANCE] = obstacle_distances.min() if obstacle_distances.size > 0 else math.inf
    survey[RIM_DISTANCE] = _compute_rim_distance(positions, working, obstacles, obstacle_distances.size)
    return True


@kernel
def _init_forest(obstacles: Array, one_node: bool, parent: Array, firsts: Array) -> None:
    """Make each agent a separate set in the union-find forest `parent`.

    Under `one_node`, the agents of an obstacle are one set, with the first of them as root. `firsts` is scratch memory.
    """
    # firsts[m] is the smallest index of an agent of obstacle m.
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
    """Return the number of components, and the number of flock agents in the largest; `sizes` (N,) is scratch memory.

    Nodes are working agents, and obstacle agents whose obstacle is `touched`.
    """
    N = np.uintp(obstacles.size)
    sizes[:] = 0
    component_count, largest_component = 0, 0
    for i in range(N):
        root = find_root(parent, i)
        is_node = working[i] or (obstacles[i] != NO_OBSTACLE and touched[obstacles[i]])
        if is_node and root == i:
            component_count += 1
        if working[i]:
            sizes[root] += np.uintp(1)
            largest_component = max(largest_component, int(sizes[root]))
    return component_count, largest_component


@kernel
def _compute_rim_distance(positions: Array, working: Array, obstacles: Array, count: Index) -> float:
    """Return the least distance of a working agent from the circle around an obstacle's agents, negative inside.

    The circle is around the mean of the agents and through the farthest of them. Walls, whose agents stand in one
    straight row, are ignored; the distance is infinite if there is no other obstacle. `count` is M.
    """
    least = math.inf
    for m in range(count):
        # The obstacle's centre: the mean of its agents.
        x, y, size = 0.0, 0.0, 0
        for i in range(obstacles.size):
            size += obstacles[i] == m
        for i in range(obstacles.size):
            if obstacles[i] == m:
                x, y = x + positions[i, 0] / size, y + positions[i, 1] / size
        # Its radius, the offset of its farthest agent, and the least distance of a working agent from the centre.
        radius, nearest, along, across = 0.0, math.inf, 0.0, 0.0
        for i in range(obstacles.size):
            distance = math.sqrt((positions[i, 0] - x) ** 2 + (positions[i, 1] - y) ** 2)
            if obstacles[i] == m:
                if distance > radius:
                    radius, along, across = distance, positions[i, 0] - x, positions[i, 1] - y
            elif working[i]:
                nearest = min(nearest, distance)
        # The largest cross product of that offset with another agent's: zero if all agents are on a line, a wall.
        width = 0.0
        for i in range(obstacles.size):
            if obstacles[i] == m:
                width = max(width, abs(along * (positions[i, 1] - y) - across * (positions[i, 0] - x)))
        if size > 0 and width > WALL_TOLERANCE * radius * radius:
            least = min(least, nearest - radius)
    return least
