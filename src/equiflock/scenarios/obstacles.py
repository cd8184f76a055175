"""Flocks that fly towards an obstacle (section 5 of the paper, "Obstacle avoidance")."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from equiflock._runtime.jit import Array
from equiflock.flock import Flock
from equiflock.graph.geometry import farthest_pair
from equiflock.observations.aggregation import Obstacles
from equiflock.observations.orbit import Orbit
from equiflock.outcomes import Outcome
from equiflock.scenarios.course_setup import (
    COURSE_REQUIREMENT,
    Point,
    check_course,
    compute_lateral_offset,
    compute_share_past_obstacles,
    draw_course,
)
from equiflock.scenarios.course_survey import Awareness, ObstacleNode
from equiflock.scenarios.endings import UntilPassed
from equiflock.scenarios.obstacle_shapes import Points, add_obstacle, polygon_radius, ring
from equiflock.scenarios.random_disk import RandomDisk, Stop
from equiflock.scenarios.registry import Figure, scenario
from equiflock.scenarios.success_measure import SuccessMeasure


@scenario("obstacles")
@dataclass(frozen=True)
class ObstacleCourse:
    """Flocks of `disk` that leaders guide past a disk-shaped obstacle.

    The obstacle is the circumcircle of a regular polygon with an obstacle agent on each vertex, one of them facing the
    flock. Its centre lies on the perpendicular bisector of the two farthest agents, on a random side, as near as
    possible in front of the flock with every agent farther than circumradius + R from it. All agents start with the
    same velocity, the unit vector from the midpoint of the two farthest agents to that centre. Leaders are drawn among
    the agents whose straight path stays at least R_min clear of the obstacle; a flock with too few of them is drawn
    again.

    The obstacle agents come after the flock's, so there are N + sides agents in all. Followers avoid the obstacle by
    the orbit technique; a flight that has not ended after 20 s counts as failed.
    """

    duration: ClassVar[float] = 20.0
    test_options: ClassVar[Mapping[str, Any]] = {"sides": 24}
    success_outcomes: ClassVar[tuple[Outcome, ...]] = (Outcome.PASSED,)
    figure: ClassVar[Figure] = "endings"
    suitable_controllers: ClassVar[tuple[str, ...]] = ("starling", "etdagnn", "etdagnn-robust", "tdagnn-tf", "tdagnn")
    controller_requirement: ClassVar[str] = COURSE_REQUIREMENT
    success_measure: ClassVar[SuccessMeasure] = SuccessMeasure("{} past the obstacle", compute_share_past_obstacles)

    disk: RandomDisk = field(default_factory=RandomDisk)
    """Initial conditions of the flocks."""
    sides: int = 12
    """Number s of sides of the polygon; each side is R_min long."""
    leaders: int = 2
    """Number of leaders."""
    orbit: Orbit | None = field(default_factory=Orbit)
    """Orbit technique by which followers avoid the obstacle; None: obstacle agents only stand still."""
    obstacles: Obstacles = "nearest"
    """Obstacle agents within R from which a follower receives messages: the "nearest" or "all"."""
    obstacle_node: ObstacleNode = "one"
    """Whether the obstacle is "one" node of the communication graph, or "each" of its agents is one."""
    clear_time: float = 1.0
    """Time for which every agent must be farther than R from the obstacle for the flock to have passed, in seconds."""
    awareness: Awareness = "followers"
    """Agents within R of the obstacle that make it a node of the communication graph and are joined to it: "followers",
    which receive its messages, or the whole "flock", leaders included."""

    def __post_init__(self) -> None:
        check_course(self.disk, self.sides, self.leaders, self.orbit)
        self.ending()  # checks the options of the ending

    @property
    def radius(self) -> float:
        """Radius of the obstacle, R_min / (2 sin(pi / s)) for s sides."""
        return polygon_radius(self.sides, self.disk.min_separation)

    @property
    def obstacle_sizes(self) -> tuple[int, ...]:
        """Number of agents of the obstacle."""
        return (self.sides,)

    def ending(self) -> UntilPassed:
        """Return a new ending: the flock is disconnected, has collided, has hit the obstacle, or has passed it."""
        min_separation = self.disk.min_separation
        return UntilPassed(None, min_separation, self.clear_time, self.obstacle_node, self.awareness)

    def draw(self, stop: Stop | None = None) -> Flock:
        """Draw the flocks and their obstacles; raise InputError if too few agents can lead in 100 draws of a flock."""
        clearance, obstacle = self.radius + self.disk.min_separation, f"an obstacle of {self.sides} sides"
        start = draw_course(self.disk, self.leaders, clearance, self._place_obstacle, "course", obstacle, stop)
        # The first vertex of the polygon faces the flock.
        rims = [
            ring(centre, self.radius, sides=self.sides, first=math.atan2(-heading[1], -heading[0]))
            for (centre,), heading in zip(start.centres, start.headings, strict=True)
        ]
        return add_obstacle(start.flock, np.stack(rims))

    def _place_obstacle(self, positions: Array, rng: np.random.Generator) -> tuple[Point, Points]:
        """Return the flock's heading, a unit vector to a random side, and the obstacle's centre, (1, 2).

        The heading is perpendicular to the line through the two farthest agents. The centre is on the ray from their
        midpoint along the heading, just beyond radius + R of all agents.
        """
        side = 1.0 if rng.random() < 0.5 else -1.0
        i, j, _ = farthest_pair(positions.copy())  # a read-only array would need another compilation of the kernel
        middle, apart = (positions[i] + positions[j]) / 2.0, positions[i] - positions[j]
        heading = side * np.array([-apart[1], apart[0]]) / np.hypot(*apart)
        # An agent at (along, across) relative to the midpoint is at distance L from the point t on the line for
        # t = along +- sqrt(L^2 - across^2); beyond the largest of these t, all agents are farther.
        clear = (self.radius + self.disk.comm_radius) * (1.0 + 1e-9)
        along, across = (positions - middle) @ heading, compute_lateral_offset(heading, positions - middle)
        near = np.abs(across) < clear
        centre = middle + heading * (along[near] + np.sqrt(clear**2 - across[near] ** 2)).max()
        return heading, centre[None]
