"""The goal scenario: a few informed agents shall bring their flock to a goal that the others do not know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float64, Int8

from equiflock.controllers.classical.gu_leader import GOAL_DISTANCE, INFORMED_GROUP, INFORMED_SHARE
from equiflock.flock import Flock
from equiflock.outcomes import Outcome
from equiflock.protocols import Moment
from equiflock.runtime.checks import InputError, check_positive, shorten_repr
from equiflock.runtime.randomness import make_rng
from equiflock.scenarios.flock_statistics import average_working
from equiflock.scenarios.random_disk import RandomDisk, check_disk
from equiflock.scenarios.registry import Figure, Measure, scenario
from equiflock.scenarios.search_control import Stop
from equiflock.senses.graph import components

ARRIVED = Outcome.add("ARRIVED", "the flock reached its goal")


@dataclass(frozen=True)
class UntilArrived:
    """Ends a flight once the agents that work are at the goal, their middle within R of it, slow, and connected.

    Args:
        goal: a point, (D,).
        arrival_speed: a flock whose mean velocity is faster than this flies past.
    """

    goal: Sequence[float]
    arrival_speed: float = 0.5

    def __post_init__(self) -> None:
        check_positive("arrival_speed", self.arrival_speed)

    def distance(self, flock: Flock) -> Float64[np.ndarray, " B"]:
        """How far the middle of the agents that work is from the goal."""
        D = flock.shape[2]
        if len(self.goal) != D:
            raise InputError(f"goal must have {D} numbers for flocks in {D} dimensions; got {shorten_repr(self.goal)}")
        away = average_working(flock, flock.positions) - np.array(self.goal)
        return _compute_norms(away)

    def __call__(self, time: float, flock: Flock, flying: Bool[np.ndarray, " B"]) -> Int8[np.ndarray, " B"]:
        """ARRIVED where a flying flock is at the goal, slow and in one piece."""
        outcomes = np.full(len(flock), Outcome.FLYING, np.int8)
        # The distance is cheap, the graph is not: it is made only where the flock is near.
        slow = _compute_norms(average_working(flock, flock.velocities)) <= self.arrival_speed
        there = slow & (self.distance(flock) <= flock.comm_radius)
        near = np.flatnonzero(flying & flock.working.any(axis=1) & there)
        if len(near):
            outcomes[near[components(flock[near]).max(axis=1) == 0]] = ARRIVED
        return outcomes


def _compute_norms(vectors: Float64[np.ndarray, "B D"]) -> Float64[np.ndarray, " B"]:
    return np.asarray(np.sqrt(np.square(vectors).sum(axis=1)))


@scenario("goal")
@dataclass(frozen=True)
class GoalSeeking:
    """Flocks of `disk` in which some agents, drawn at random, are informed of a goal: they are group 1.

    The goal lies on the x axis, to the right of the flock. The flock has arrived when its middle is within R of the
    goal, slow, and it is in one piece. A controller must know the goal, too: `gu-leader` has the same by default, and
    takes another by its options, such as gu-leader:goal=8,0.
    """

    duration: ClassVar[float] = 25.0
    success_outcomes: ClassVar[tuple[Outcome, ...]] = (ARRIVED,)
    figure: ClassVar[Figure] = "endings"

    disk: RandomDisk = field(default_factory=RandomDisk)
    """The initial conditions of the flocks."""
    informed: float = INFORMED_SHARE
    """The share of agents that are informed; at least one is."""
    distance: float = GOAL_DISTANCE
    """How far the goal is from the middle of the disk, in communication radii."""
    arrival_speed: float = 0.5
    """A flock whose mean velocity is faster than this flies past the goal."""

    def __post_init__(self) -> None:
        check_disk(self.disk)
        check_positive("distance", self.distance)
        check_positive("arrival_speed", self.arrival_speed)
        if check_positive("informed", self.informed) > 1.0:
            raise InputError(f"informed must be a share above 0 and at most 1; got {self.informed:g}")

    @property
    def goal(self) -> tuple[float, ...]:
        """The point that the flock shall reach."""
        return self.distance * self.disk.comm_radius, *[0.0] * (self.disk.dimensions - 1)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """How far the flock is from its goal and from agreement, and in how many pieces."""
        distance = self.ending().distance

        def distance_to_goal(moment: Moment) -> Float64[np.ndarray, " B"]:
            return distance(moment.flock)

        return distance_to_goal, "velocity_variance", "component_count"

    def ending(self) -> UntilArrived:
        """Ends a flight when the flock has reached its goal in one piece."""
        return UntilArrived(self.goal, self.arrival_speed)

    def draw(self, stop: Stop | None = None) -> Flock:
        """Draw the flocks; `stop` ends the search, as for `RandomDisk`."""
        start = self.disk.draw(stop)
        groups = np.zeros(start.shape[:2], int)
        count = max(round(self.informed * self.disk.agents), 1)
        for b in range(len(start)):
            # A stream for each flock, so that flock b is the same however many there are.
            rng = make_rng(self.disk.seed, "goal", self.disk.split, b)
            groups[b, rng.choice(self.disk.agents, count, replace=False)] = INFORMED_GROUP
        return replace(start, groups=groups)
