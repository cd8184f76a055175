"""The ending of a flight past obstacles (section 5 of the paper, "Obstacle avoidance")."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
from jaxtyping import Bool, Float64, Int8, Int64

from equiflock.flock import NO_OBSTACLE, Flock
from equiflock.outcomes import Outcome
from equiflock.runtime.checks import check_choice, check_positive
from equiflock.scenarios.course_survey import WALL_TOLERANCE, Awareness, ObstacleNode, survey_course

TIME_TOLERANCE = 1e-9
"""Tolerance in seconds, since a multiple of the time step is rounded."""
NEVER = -math.inf
"""The time at which an obstacle was near, for one that never was."""


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
        check_choice("obstacle_node", obstacle_node, get_args(ObstacleNode))
        check_choice("awareness", awareness, get_args(Awareness))
        self.obstacle_node, self.awareness = obstacle_node, awareness
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
        survey = survey_course(watched, comm_radius, self.obstacle_node, self.awareness, obstacles)
        # An obstacle within R of anybody is near now; for the others the time when they last were stays.
        last_near = np.where(survey.obstacle_distances <= comm_radius, time, self._last_near[flying])
        self._last_near[flying] = last_near
        # The conditions from the last to the first, so that of several that hold the first counts.
        ended = np.full(len(watched), Outcome.FLYING, np.int8)
        ended[self._find_passed(time, watched, last_near)] = Outcome.PASSED
        ended[(survey.obstacle_distance < self.min_separation) | (survey.rim_distance <= 0.0)] = Outcome.HIT_OBSTACLE
        ended[survey.separation < self.min_separation] = Outcome.COLLIDED
        ended[survey.component_count > 1] = Outcome.DISCONNECTED
        # Back to the whole batch, in which ended flocks are ignored.
        outcomes = np.full(len(flock), Outcome.FLYING, np.int8)
        outcomes[flying] = ended
        return outcomes

    def _find_passed(self, time: float, flock: Flock, last_near: Float64[np.ndarray, "B M"]) -> Bool[np.ndarray, " B"]:
        """Which flocks were near an obstacle, are clear of all for long enough, and have none ahead."""
        # The last time that any obstacle was near.
        latest = last_near.max(axis=1, initial=NEVER)
        passed: Bool[np.ndarray, " B"] = (time - latest >= self.clear_time - TIME_TOLERANCE) & (latest > NEVER)
        # Where nobody works any more, nobody passes.
        passed &= flock.working.any(axis=1)
        # An obstacle that was never near must lie behind.
        for b in np.flatnonzero(passed & (last_near == NEVER).any(axis=1)):
            passed[b] = not _is_ahead(flock[int(b)], np.flatnonzero(last_near[b] == NEVER))
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
        if np.abs(x * offsets[:, 1] - y * offsets[:, 0]).max() > WALL_TOLERANCE * distances.max() ** 2:
            disks.append([*centre, distances.max()])
    return np.array(disks).reshape(-1, 3)


def _is_ahead(flock: Flock, numbers: Int64[np.ndarray, " some"]) -> bool:
    """Whether these obstacles reach ahead of a single flock: in front of its middle, along its mean velocity."""
    (positions,), (velocities,), (obstacles,) = flock.positions, flock.velocities, flock.obstacles
    member = flock.working[0]
    middle, heading = positions[member].mean(axis=0), velocities[member].mean(axis=0)
    rim = np.isin(obstacles, numbers)
    return bool(((positions[rim] - middle) @ heading > 0.0).any())
