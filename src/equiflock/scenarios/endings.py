"""Endings of flights, when a flock becomes disconnected or passes obstacles, and statistics that endings use."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import get_args

import numpy as np
from jaxtyping import Bool, Float64, Int8, Int64

from equiflock._runtime.checks import check_choice, check_positive
from equiflock.flock import Flock, Vectors, check_comm_radius
from equiflock.graph.radius_graph import components
from equiflock.outcomes import Outcome
from equiflock.scenarios.course_survey import Awareness, ObstacleNode, survey_course

TIME_TOLERANCE = 1e-9
"""Tolerance of times in seconds, since multiples of the time step are rounded."""
NEVER = -math.inf
"""Last time at which an obstacle was near, for an obstacle that never was."""


def compute_velocity_variance(flock: Flock) -> Float64[np.ndarray, " B"]:
    """Return (1/N) sum_i |v_i - mean(v)|^2 over working leaders and followers; 0 if there are none."""
    working = flock.working
    squares = np.square(flock.velocities - average_working(flock, flock.velocities)[:, None]).sum(axis=2)
    return np.asarray(squares.sum(axis=1, where=working) / np.maximum(working.sum(axis=1), 1))


def average_working(flock: Flock, vectors: Vectors) -> Float64[np.ndarray, "B D"]:
    """Return the mean of positions or velocities over working leaders and followers; 0 if there are none."""
    working = flock.working
    return np.asarray(vectors.sum(axis=1, where=working[..., None]) / np.maximum(working.sum(axis=1), 1)[:, None])


@dataclass(frozen=True)
class UntilDisconnected:
    """Ending of a flight: the communication graph of working agents, directions ignored, is not connected.

    The graph follows from positions alone, whatever messages are lost or late; `metrics.message_component_count` counts
    the components of the messages that arrive.
    """

    comm_radius: float | None = None
    """R; default: the flight's."""

    def __post_init__(self) -> None:
        if self.comm_radius is not None:
            check_comm_radius(self.comm_radius)

    def __call__(
        self, times: Float64[np.ndarray, " B"], flock: Flock, flying: Bool[np.ndarray, " B"]
    ) -> Int8[np.ndarray, " B"]:
        """Return DISCONNECTED where a flying flock has several components of working agents, else FLYING."""
        outcomes = np.full(len(flock), Outcome.FLYING, np.int8)
        # Components are numbered from 0, so a label above 0 means a second component.
        disconnected = components(flock[flying], self.comm_radius).max(axis=1) > 0
        outcomes[flying] = np.where(disconnected, Outcome.DISCONNECTED, Outcome.FLYING)
        return outcomes


class UntilPassed:
    """Ending of a flight past obstacles (section 5): the flock is disconnected, has collided, or has passed them.

    The flock consists of working leaders and followers. At every moment, the first of these conditions counts:

    - DISCONNECTED: the graph of the flock, directions ignored, is not connected. While a follower is within R of an
      agent of an obstacle, that obstacle is a node of the graph, joined to every follower within R of it; under
      `awareness` = "flock", leaders count there like followers.
    - COLLIDED: a flock agent is nearer than R_min to another or to a failed agent.
    - HIT_OBSTACLE: a flock agent is nearer than R_min to an obstacle agent, or inside the circle around an obstacle's
      agents. A wall, whose agents stand in one straight row, has no inside.
    - PASSED: an agent was within R of an obstacle agent, none has been for `clear_time`, and every obstacle that was
      never near lies behind: not ahead of the flock's centre along its mean velocity.

    The ending stores when flocks were near obstacles, so it serves one flight at a time; a flock at t = 0 begins anew.

    Args:
        comm_radius: R; default: the flight's.
        min_separation: R_min.
        clear_time: time for which all agents must be farther than R from all obstacles, in seconds.
        obstacle_node: whether an obstacle is "one" node of the graph, or "each" of its agents is one.
        awareness: agents that can be aware of an obstacle, an interpretation of the paper's "the minimum distance
            between the flock and the obstacle is greater than R, implying that the flock is unaware of the obstacle".
            "followers" stresses "unaware": only followers receive messages, so only they make an obstacle a node.
            "flock" stresses "the flock": a leader within R of an obstacle makes it a node, too, and is joined to it.
    """

    def __init__(
        self,
        comm_radius: float | None = None,
        min_separation: float = 0.1,
        clear_time: float = 1.0,
        obstacle_node: ObstacleNode = "one",
        awareness: Awareness = "followers",
    ) -> None:
        self.comm_radius = None if comm_radius is None else check_comm_radius(comm_radius)
        self.min_separation = check_positive("min_separation", min_separation)
        self.clear_time = check_positive("clear_time", clear_time)
        check_choice("obstacle_node", obstacle_node, get_args(ObstacleNode))
        check_choice("awareness", awareness, get_args(Awareness))
        self.obstacle_node, self.awareness = obstacle_node, awareness
        self._last_near: Float64[np.ndarray, "B M"] = np.empty((0, 0))

    def __call__(
        self, times: Float64[np.ndarray, " B"], flock: Flock, flying: Bool[np.ndarray, " B"]
    ) -> Int8[np.ndarray, " B"]:
        """Return the outcome of each flock (B,): FLYING if it has not ended now, and for all that are not flying."""
        obstacles = int(flock.obstacles.max()) + 1
        if len(self._last_near) != len(flock):
            self._last_near = np.full((len(flock), obstacles), NEVER)
        # A flock that begins anew may bring more obstacles than there were.
        elif (missing := obstacles - self._last_near.shape[1]) > 0:
            self._last_near = np.pad(self._last_near, ((0, 0), (0, missing)), constant_values=NEVER)
        # A flock at t = 0 begins: no obstacle was near yet.
        self._last_near[flying & (times == 0.0)] = NEVER
        comm_radius = flock.comm_radius if self.comm_radius is None else self.comm_radius
        # Survey only the flocks that still fly.
        active = flock if flying.all() else flock[flying]
        survey = survey_course(active, comm_radius, self.obstacle_node, self.awareness, obstacles)
        # An obstacle within R of any agent is near now; the others keep the time when they last were.
        times = times[flying]
        before = self._last_near[flying, :obstacles]
        last_near = np.where(survey.obstacle_distances <= comm_radius, times[:, None], before)
        self._last_near[flying, :obstacles] = last_near
        # Apply the conditions from the last to the first, so that the first one that holds counts.
        active_outcomes = np.full(len(active), Outcome.FLYING, np.int8)
        active_outcomes[self._find_passed(times, active, last_near)] = Outcome.PASSED
        hit = (survey.obstacle_distance < self.min_separation) | (survey.rim_distance <= 0.0)
        active_outcomes[hit] = Outcome.HIT_OBSTACLE
        active_outcomes[survey.separation < self.min_separation] = Outcome.COLLIDED
        active_outcomes[survey.component_count > 1] = Outcome.DISCONNECTED
        # Back to the whole batch; the caller ignores the outcomes of flocks that ended before.
        outcomes = np.full(len(flock), Outcome.FLYING, np.int8)
        outcomes[flying] = active_outcomes
        return outcomes

    def _find_passed(
        self, times: Float64[np.ndarray, " B"], flock: Flock, last_near: Float64[np.ndarray, "B M"]
    ) -> Bool[np.ndarray, " B"]:
        """Return the mask of flocks that have passed: near an obstacle before, clear for `clear_time`, and none ahead.

        `last_near` is the time at which each obstacle was last within R, or NEVER.
        """
        latest = last_near.max(axis=1, initial=NEVER)
        passed: Bool[np.ndarray, " B"] = (times - latest >= self.clear_time - TIME_TOLERANCE) & (latest > NEVER)
        # A flock without working agents has not passed.
        passed &= flock.working.any(axis=1)
        # An obstacle that was never near must lie behind.
        for b in np.flatnonzero(passed & (last_near == NEVER).any(axis=1)):
            passed[b] = not _is_ahead(flock[int(b)], np.flatnonzero(last_near[b] == NEVER))
        return passed


def _is_ahead(flock: Flock, numbers: Int64[np.ndarray, " some"]) -> bool:
    """Return whether an agent of these obstacles is ahead of a single flock's centre, along its mean velocity."""
    (positions,), (velocities,), (obstacles,) = flock.positions, flock.velocities, flock.obstacles
    working = flock.working[0]
    centre, heading = positions[working].mean(axis=0), velocities[working].mean(axis=0)
    rim = np.isin(obstacles, numbers)
    return bool(((positions[rim] - centre) @ heading > 0.0).any())
