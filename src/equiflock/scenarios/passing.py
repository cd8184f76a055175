"""The ending of a flight past obstacles (section 5 of the paper, "Obstacle avoidance")."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Bool, Float64, Int8, Int64

from equiflock.flock import FOLLOWER, NO_OBSTACLE, OBSTACLE, Flock
from equiflock.outcomes import Outcome
from equiflock.runtime.checks import check_choice, check_positive
from equiflock.runtime.jit import Array, Index, kernel
from equiflock.runtime.renamed import renamed_arguments
from equiflock.senses.cells import runs_around, select_heard, sort_flock
from equiflock.senses.graph import join, over_flocks, root_of, survey_memory

ObstacleNode = Literal["one", "each"]
Awareness = Literal["followers", "flock"]
DONE = 1e-9
"""Tolerance in seconds, since a multiple of the time step is rounded."""
STRAIGHT = 1e-6
"""How far from a straight line the agents of a wall may be, as a share of its half length: room for rounding."""
NEVER = -math.inf
"""The time at which an obstacle was near, for one that never was."""


@renamed_arguments(radius="comm_radius")
class UntilPassed:
    """Ends a flight when the flock has lost its connectivity, has collided, or has passed the obstacles.

    The flock is the leaders and followers that work. Looked at in this order, at every moment:

    - DISCONNECTED: the graph of the flock, directions ignored, is not connected. While a follower is within R of an
      agent of an obstacle, that obstacle is a node of the graph, joined to every follower within R of it; under
      `awareness` = "flock" a leader counts there like a follower.
    - COLLIDED: two flock agents are nearer than R_min, or one is to an agent that has failed. HIT_OBSTACLE: a flock
      agent is nearer than that to an obstacle agent, or inside an obstacle, the circle around its agents. A wall,
      agents in one straight row, has no inside.
    - PASSED: somebody was within R of an obstacle agent, nobody has been for `clear_time`, and every obstacle that
      nobody has been near to lies behind: away from where the flock flies on the whole.

    Args:
        comm_radius: R, if it shall be another than that of the flight.
        min_separation: R_min.
        clear_time: how long everybody must have been out of all obstacles' reach, in seconds.
        obstacle_node: whether an obstacle is "one" node of the graph, or "each" of its agents is one.
        awareness: who can be aware of an obstacle. The paper asks whether "the minimum distance between the flock and
            the obstacle is greater than R, implying that the flock is unaware of the obstacle". "followers" reads
            "unaware": only followers hear, so they alone bring an obstacle into the graph. "flock" reads "the flock":
            a leader within R of an obstacle brings it in, too, and is joined to it.

    It remembers when flocks were near obstacles, so it belongs to one flight at a time; t = 0 begins a new one.
    """

    def __init__(
        self,
        comm_radius: float | None = None,
        min_separation: float = 0.1,
        clear_time: float = 1.0,
        obstacle_node: ObstacleNode = "one",
        awareness: Awareness = "followers",
    ) -> None:
        self.comm_radius = None if comm_radius is None else check_positive("comm_radius", comm_radius)
        self.min_separation = check_positive("min_separation", min_separation)
        self.clear_time = check_positive("clear_time", clear_time)
        self.obstacle_node = check_choice("obstacle_node", obstacle_node, get_args(ObstacleNode))
        self.awareness = check_choice("awareness", awareness, get_args(Awareness))
        self._last_near: Float64[np.ndarray, "B M"] = np.empty((0, 0))

    def __call__(self, time: float, flock: Flock, flying: Bool[np.ndarray, " B"]) -> Int8[np.ndarray, " B"]:
        """How each flying flock ended, or FLYING."""
        # t = 0 begins a new flight, in which no obstacle was near yet.
        obstacles = int(flock.obstacles.max()) + 1
        if time == 0.0 or self._last_near.shape != (len(flock), obstacles):
            self._last_near = np.full((len(flock), obstacles), NEVER)
        comm_radius = flock.comm_radius if self.comm_radius is None else self.comm_radius
        # Only the flocks that still fly are looked at.
        watched = flock if flying.all() else flock[flying]
        # For each flock: pieces, separation, gap to the nearest obstacle agent, depth; then each obstacle's own gap.
        seen = np.empty((len(watched), 4 + obstacles))
        state = watched.positions, watched.roles, watched.working, watched.obstacles
        readings = self.obstacle_node == "one", self.awareness == "flock"
        over_flocks(_watch, watched, *state, comm_radius, *readings, seen)
        pieces, separation, gap, depth = seen[:, :4].T
        # An obstacle within R of anybody is near now; for the others the time when they last were stays.
        last_near = np.where(seen[:, 4:] <= comm_radius, time, self._last_near[flying])
        self._last_near[flying] = last_near
        # The conditions from the last to the first, so that of several that hold the first counts.
        ended = np.full(len(watched), Outcome.FLYING, np.int8)
        ended[self._passed(time, watched, last_near)] = Outcome.PASSED
        ended[(gap < self.min_separation) | (depth <= 0.0)] = Outcome.HIT_OBSTACLE
        ended[separation < self.min_separation] = Outcome.COLLIDED
        ended[pieces > 1] = Outcome.DISCONNECTED
        # Back to the whole batch, in which ended flocks are ignored.
        outcomes = np.full(len(flock), Outcome.FLYING, np.int8)
        outcomes[flying] = ended
        return outcomes

    def _passed(self, time: float, flock: Flock, last_near: Float64[np.ndarray, "B M"]) -> Bool[np.ndarray, " B"]:
        """Which flocks were near an obstacle, are clear of all for long enough, and have none ahead."""
        # The last time that any obstacle was near.
        latest = last_near.max(axis=1, initial=NEVER)
        passed: Bool[np.ndarray, " B"] = (time - latest >= self.clear_time - DONE) & (latest > NEVER)
        # Where nobody works any more, nobody passes.
        passed &= flock.working.any(axis=1)
        # An obstacle that was never near must lie behind.
        for b in np.flatnonzero(passed & (last_near == NEVER).any(axis=1)):
            passed[b] = not _lies_ahead(flock[int(b)], np.flatnonzero(last_near[b] == NEVER))
        return passed


def obstacle_disks(flock: Flock) -> Float64[np.ndarray, "M 3"]:
    """Centre x, y and radius of the circle around the agents of each obstacle of a single flock, by their numbers.

    Walls, whose agents stand in one straight row, are left out.
    """
    (positions,), (numbers,) = flock.positions, flock.obstacles
    disks = []
    for number in np.unique(numbers[numbers != NO_OBSTACLE]):
        # The circle: around the mean of the obstacle's agents, through the farthest of them.
        points = positions[numbers == number]
        centre = points.mean(axis=0)
        offsets = points - centre
        distances = np.hypot(*offsets.T)
        # Agents on the line through the middle and the farthest one have cross product zero with it: a wall.
        x, y = offsets[distances.argmax()]
        if np.abs(x * offsets[:, 1] - y * offsets[:, 0]).max() > STRAIGHT * distances.max() ** 2:
            disks.append([*centre, distances.max()])
    return np.array(disks).reshape(-1, 3)


def _lies_ahead(flock: Flock, numbers: Int64[np.ndarray, " some"]) -> bool:
    """Whether these obstacles reach ahead of a single flock: in front of its middle, along its mean velocity."""
    (positions,), (velocities,), (obstacles,) = flock.positions, flock.velocities, flock.obstacles
    member = flock.working[0]
    middle, heading = positions[member].mean(axis=0), velocities[member].mean(axis=0)
    rim = np.isin(obstacles, numbers)
    return bool(((positions[rim] - middle) @ heading > 0.0).any())


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
    """Measure what the ending needs of flocks first .. last, into seen (B, 4 + M).

    The number of components; the least distance of a flock agent from another, failed or not, and from an obstacle
    agent (both infinite beyond R); how far the flock is from the nearest obstacle's rim, negative inside; and for each
    of M obstacles the least distance between a flock agent and one of its agents. Flock agents are the `working` ones.
    """
    N, M = positions.shape[1], seen.shape[1] - 4
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
    separation, gaps = math.inf, seen[4:]
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
    seen[0] = _count_pieces(working, obstacles, touched, parent)
    seen[1], seen[2] = math.sqrt(separation), gaps.min() if gaps.size > 0 else math.inf
    seen[3] = _depth(positions, working, obstacles, gaps.size)
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
def _count_pieces(working: Array, obstacles: Array, touched: Array, parent: Array) -> Index:
    """How many sets there are among flock agents and the agents of obstacles that somebody is aware of."""
    pieces = 0
    for i in range(np.uintp(obstacles.size)):
        counts = working[i] or (obstacles[i] != NO_OBSTACLE and touched[obstacles[i]])
        if counts and root_of(parent, i) == i:
            pieces += 1
    return pieces


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
