"""Flocks on their way to an obstacle (section 5 of the paper, "Obstacle avoidance")."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from equiflock.flock import Flock, Role
from equiflock.geometry import farthest_pair
from equiflock.outcomes import Outcome
from equiflock.runtime.checks import InputError
from equiflock.runtime.jit import Array
from equiflock.runtime.randomness import make_rng
from equiflock.scenarios.course_setup import (
    MAX_REDRAWS,
    Point,
    check_course,
    compute_lateral_offset,
    find_possible_leaders,
    redraw_positions,
)
from equiflock.scenarios.course_survey import Awareness, ObstacleNode
from equiflock.scenarios.obstacle_shapes import add_obstacle, polygon_radius, ring
from equiflock.scenarios.random_disk import RandomDisk
from equiflock.scenarios.registry import Figure, scenario
from equiflock.scenarios.search_control import Stop
from equiflock.scenarios.until_passed import UntilPassed
from equiflock.senses.aggregation import Obstacles
from equiflock.senses.orbit import Orbit


@scenario("obstacles")
@dataclass(frozen=True)
class ObstacleCourse:
    """Flocks of `disk` that fly towards a disk-shaped obstacle, led past it by a few.

    The obstacle is the circumcircle of a regular polygon with an obstacle agent on each vertex, one of them facing the
    flock. Its centre lies on the line through the middle of the two farthest agents and perpendicular to the line
    through them, on a random side, as near as possible before the whole flock with every agent farther than
    circumradius + R from it. Everybody starts with the unit vector from that middle to the centre as velocity. Leaders
    are drawn among the agents whose straight path stays at least R_min clear of the obstacle; a flock with too few of
    them is drawn anew.

    The obstacle agents come after the flock's own, so there are N + sides agents in all. Followers avoid the obstacle
    by the orbit technique; a flight that has not ended after 20 s counts as failed.
    """

    duration: ClassVar[float] = 20.0
    test_options: ClassVar[Mapping[str, Any]] = {"sides": 24}
    success_outcomes: ClassVar[tuple[Outcome, ...]] = (Outcome.PASSED,)
    figure: ClassVar[Figure] = "endings"

    disk: RandomDisk = field(default_factory=RandomDisk)
    """The initial conditions of the flocks."""
    sides: int = 12
    """s, the number of sides of the polygon; each side is R_min long."""
    leaders: int = 2
    """How many agents lead."""
    orbit: Orbit | None = field(default_factory=Orbit)
    """The technique by which followers avoid the obstacle; None if its agents just stand still."""
    obstacles: Obstacles = "nearest"
    """Which obstacle agents within R a follower hears, the "nearest" or "all"."""
    obstacle_node: ObstacleNode = "one"
    """Whether the obstacle is "one" node of the communication graph, or "each" of its agents is one."""
    clear_time: float = 1.0
    """How long every agent must have been farther than R from the obstacle for the flock to have passed, in seconds."""
    awareness: Awareness = "followers"
    """Who within R of the obstacle makes it a node of the communication graph and is joined to it: "followers", who
    hear it, or the whole "flock", leaders included."""

    def __post_init__(self) -> None:
        check_course(self.disk, self.sides, self.leaders, self.orbit)
        self.ending()  # checks the options of the ending

    @property
    def radius(self) -> float:
        """The radius of the obstacle, R_min / (2 sin(pi / s)), for s sides."""
        return polygon_radius(self.sides, self.disk.min_separation)

    def ending(self) -> UntilPassed:
        """Ends a flight when the flock has lost its connectivity, has collided, or has passed the obstacle."""
        min_separation = self.disk.min_separation
        return UntilPassed(None, min_separation, self.clear_time, self.obstacle_node, self.awareness)

    def draw(self, stop: Stop | None = None) -> Flock:
        """Draw the flocks and their obstacles; `stop` ends the search, as for `RandomDisk`."""
        stop = stop or Stop()
        flock = self.disk.draw(stop)
        built = [self._build_flock(flock.positions[b], b, stop) for b in range(len(flock))]
        positions, velocities, roles, rims = (np.stack(part) for part in zip(*built, strict=True))
        return add_obstacle(Flock(positions, velocities, roles, comm_radius=self.disk.comm_radius), rims)

    def _build_flock(self, positions: Array, b: int, stop: Stop) -> tuple[Array, Array, Array, Array]:
        """Positions, velocities and roles of flock b, and where its obstacle's agents stand."""
        rng = make_rng(self.disk.seed, "course", self.disk.split, b)
        # A random side of the flock for the obstacle, until enough agents can lead past it.
        for attempt in range(MAX_REDRAWS):
            stop.check()
            heading, centre = self._place_obstacle(positions, 1.0 if rng.random() < 0.5 else -1.0)
            able = find_possible_leaders(positions, heading, centre[None], self.radius + self.disk.min_separation)
            if len(able) >= self.leaders:
                break
            positions = redraw_positions(self.disk, b, attempt, stop)
        else:
            raise InputError(
                f"in none of {MAX_REDRAWS} flocks {self.leaders} agents could lead past an obstacle of {self.sides} sides: "
                "take fewer sides or leaders, or more agents"
            )
        # The first vertex of the polygon faces the flock.
        rim = ring(centre, self.radius, sides=self.sides, first=math.atan2(-heading[1], -heading[0]))
        roles = np.full(len(positions), Role.FOLLOWER, np.int8)
        roles[rng.choice(able, self.leaders, replace=False)] = Role.LEADER
        return positions, np.broadcast_to(heading, positions.shape), roles, rim

    def _place_obstacle(self, positions: Array, side: float) -> tuple[Point, Point]:
        """The flock's heading and the obstacle's centre."""
        # The heading is perpendicular to the line through the two farthest agents.
        i, j, _ = farthest_pair(positions.copy())  # for a read-only array the kernel would be compiled once more
        middle, apart = (positions[i] + positions[j]) / 2.0, positions[i] - positions[j]
        heading = side * np.array([-apart[1], apart[0]]) / np.hypot(*apart)
        # An agent at (along, across) of the middle is at distance L from the point t on the line for
        # t = along +- sqrt(L^2 - across^2); beyond the largest of these all are farther.
        clear = (self.radius + self.disk.comm_radius) * (1.0 + 1e-9)
        along, across = (positions - middle) @ heading, compute_lateral_offset(heading, positions - middle)
        near = np.abs(across) < clear
        return heading, middle + heading * (along[near] + np.sqrt(clear**2 - across[near] ** 2)).max()
