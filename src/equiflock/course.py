"""When a flight past an obstacle is over (section 5 of the paper, "Obstacle avoidance")."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Bool, Float64, Int8

from equiflock.cells import into_cell_order, runs_around, select_heard, sort_into_cells
from equiflock.graph import FOLLOWER, OBSTACLE, over_flocks, root_of, survey_memory
from equiflock.kernels import Array, Index, kernel
from equiflock.types import Flock, Outcome, check_choice, check_positive

ObstacleNode = Literal["one", "each"]
DONE = 1e-9
"""Seconds by which a sum of time steps may miss the time it stands for."""


class UntilPassed:
    """Ends a flight when the flock has lost its connectivity, has collided, or has passed the obstacle.

    Looked at in this order, at every moment:

    - DISCONNECTED: the graph of leaders and followers, directions ignored, is not connected. While a follower is within
      R of an obstacle agent, the obstacle is a node of that graph, joined to every follower within R of it.
    - COLLIDED: two flock agents are nearer than R_min. HIT_OBSTACLE: a flock agent is nearer than that to an obstacle
      agent, or inside the obstacle, the circle around the obstacle agents.
    - PASSED: somebody was within R of an obstacle agent, and nobody has been for `clear_time`.

    Args:
        radius: R, that of the flight.
        min_separation: R_min.
        clear_time: how long everybody must have been out of the obstacle's reach, in seconds.
        obstacle_node: whether the obstacle is "one" node of the graph, or "each" of its agents is one.

    It remembers when flocks were near the obstacle, so it belongs to one flight at a time; t = 0 begins a new one.
    """

    def __init__(
        self,
        radius: float = 1.0,
        min_separation: float = 0.1,
        clear_time: float = 1.0,
        obstacle_node: ObstacleNode = "one",
    ) -> None:
        self.radius = check_positive("radius", radius)
        self.min_separation = check_positive("min_separation", min_separation)
        self.clear_time = check_positive("clear_time", clear_time)
        self.obstacle_node = check_choice("obstacle_node", obstacle_node, get_args(ObstacleNode))
        self._last_near: Float64[np.ndarray, " B"] = np.empty(0)

    def __call__(self, time: float, flock: Flock, flying: Bool[np.ndarray, " B"]) -> Int8[np.ndarray, " B"]:
        """How each flying flock ended, or FLYING."""
        if time == 0.0 or len(self._last_near) != len(flock):
            self._last_near = np.full(len(flock), np.nan)
        watched = flock if flying.all() else flock[flying]
        seen = np.empty((len(watched), 4))
        one_node = self.obstacle_node == "one"
        over_flocks(_watch, watched, watched.positions, watched.roles, self.radius, one_node, seen)
        pieces, separation, gap, depth = seen.T
        last_near = np.where(gap <= self.radius, time, self._last_near[flying])
        self._last_near[flying] = last_near
        ended = np.full(len(watched), Outcome.FLYING, np.int8)
        ended[time - last_near >= self.clear_time - DONE] = Outcome.PASSED
        ended[(gap < self.min_separation) | (depth <= 0.0)] = Outcome.HIT_OBSTACLE
        ended[separation < self.min_separation] = Outcome.COLLIDED
        ended[pieces > 1] = Outcome.DISCONNECTED
        outcomes = np.full(len(flock), Outcome.FLYING, np.int8)
        outcomes[flying] = ended
        return outcomes


@kernel
def _watch(
    positions: Array, roles: Array, radius: float, one_node: bool, seen: Array, first: Index, last: Index
) -> bool:
    """What an ending must know of flocks first .. last, into seen (B, 4).

    The number of components; the least distance between two flock agents, and between a flock agent and an obstacle
    agent (both infinite beyond R); and how far the flock is from the obstacle's rim, negative inside.
    """
    N = positions.shape[1]
    memory = survey_memory(N)
    with_obstacle = np.empty(N, np.uintp)
    for b in range(first, last):
        if not _watch_flock(positions[b], roles[b], radius, one_node, seen[b], memory, with_obstacle):
            return False
    return True


@kernel
def _watch_flock(
    positions: Array, roles: Array, radius: float, one_node: bool, seen: Array, memory: Any, with_obstacle: Array
) -> bool:
    N = positions.shape[0]
    (order, starts, bucket), place, (runs, hits), parent = memory
    shape = sort_into_cells(positions, radius, order, starts, bucket)
    if shape[0] == 0:
        return False
    into_cell_order(positions, order, place, 0, N)
    rim = _join_rim(roles, one_node, parent, with_obstacle)
    separation, gap, touched = math.inf, math.inf, False
    for c in range(shape[0] * shape[1] * shape[2]):
        if starts[c] == starts[c + 1]:
            continue
        count = runs_around(c, shape, starts, runs)
        for s in range(starts[c], starts[c + 1]):
            i = order[s]
            if roles[i] == OBSTACLE:
                continue
            heard = select_heard(s, place, radius * radius, runs, count, hits)
            for h in range(heard):
                j, square = order[hits[h]], 0.0
                for d in range(3):
                    square += (place[hits[h], d] - place[s, d]) ** 2
                if roles[j] == OBSTACLE:
                    gap = min(gap, square)
                    if roles[i] == FOLLOWER:
                        touched = True
                        _join(with_obstacle, i, j)
                else:
                    separation = min(separation, square)
                    if roles[i] == FOLLOWER:
                        _join(parent, i, j)
                        _join(with_obstacle, i, j)
    seen[0] = _count_pieces(roles, with_obstacle, True) if touched else _count_pieces(roles, parent, False)
    seen[1], seen[2] = math.sqrt(separation), math.sqrt(gap)
    seen[3] = _depth(positions, roles, rim)
    return True


@kernel
def _join_rim(roles: Array, one_node: bool, parent: Array, with_obstacle: Array) -> Index:
    """Begin both forests with every agent by itself, or the rim's agents together; returns how many these are."""
    rim: Index = 0
    first: Index = np.uintp(roles.size)
    for i in range(np.uintp(roles.size)):
        parent[i] = i
        with_obstacle[i] = i
        if roles[i] == OBSTACLE:
            first = min(first, i)
            rim += 1
            if one_node:
                with_obstacle[i] = first
    return rim


@kernel
def _join(parent: Array, i: Index, j: Index) -> None:
    a, b = root_of(parent, i), root_of(parent, j)
    parent[max(a, b)] = min(a, b)


@kernel
def _count_pieces(roles: Array, parent: Array, obstacles: bool) -> Index:
    pieces = 0
    for i in range(np.uintp(roles.size)):
        if (obstacles or roles[i] != OBSTACLE) and root_of(parent, i) == i:
            pieces += 1
    return pieces


@kernel
def _depth(positions: Array, roles: Array, rim: Index) -> float:
    """The least distance of a flock agent from the circle around the obstacle agents, negative inside it."""
    x, y = 0.0, 0.0
    for i in range(roles.size):
        if roles[i] == OBSTACLE:
            x, y = x + positions[i, 0] / rim, y + positions[i, 1] / rim
    radius, nearest = 0.0, math.inf
    for i in range(roles.size):
        distance = math.sqrt((positions[i, 0] - x) ** 2 + (positions[i, 1] - y) ** 2)
        if roles[i] == OBSTACLE:
            radius = max(radius, distance)
        else:
            nearest = min(nearest, distance)
    return nearest - radius if rim > 0 else math.inf
