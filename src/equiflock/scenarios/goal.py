"""The goal scenario: a few informed agents must bring their flock to a goal that the others do not know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float64, Int8

from equiflock._runtime.checks import InputError, check_positive, shorten_repr
from equiflock._runtime.randomness import make_rng
from equiflock.controllers.classical.gu_leader import GOAL_DISTANCE, INFORMED_GROUP, INFORMED_SHARE
from equiflock.flock import MAX_MAGNITUDE, Flock
from equiflock.graph.radius_graph import components
from equiflock.outcomes import Outcome
from equiflock.protocols import Moment
from equiflock.scenarios.endings import average_working
from equiflock.scenarios.marks import Marks, circles
from equiflock.scenarios.random_disk import RandomDisk, Stop, check_disk
from equiflock.scenarios.registry import Figure, Measure, scenario
from equiflock.scenarios.success_measure import SuccessMeasure

ARRIVED = Outcome.add("ARRIVED", "the flock reached its goal")


@dataclass(frozen=True)
class UntilArrived:
    """Ending of a flight: the working agents are connected, slow, and their centre is within R of the goal (D,)."""

    goal: Sequence[float]
    arrival_speed: float = 0.5
    """Largest norm of the mean velocity of a flock that has arrived; a faster one flies past."""

    def __post_init__(self) -> None:
        check_positive("arrival_speed", self.arrival_speed)
        if not (np.abs(self.goal) <= MAX_MAGNITUDE).all():
            raise InputError(f"goal must have entries of at most {MAX_MAGNITUDE:g}; got {shorten_repr(self.goal)}")

    def distance(self, flock: Flock) -> Float64[np.ndarray, " B"]:
        """Return the distance between the mean position of the working agents (0 if none work) and the goal, (B,)."""
        D = flock.shape[2]
        if len(self.goal) != D:
            raise InputError(f"goal must have {D} numbers for flocks in {D} dimensions; got {shorten_repr(self.goal)}")
        return _compute_norms(average_working(flock, flock.positions) - np.array(self.goal))

    def __call__(
        self, times: Float64[np.ndarray, " B"], flock: Flock, flying: Bool[np.ndarray, " B"]
    ) -> Int8[np.ndarray, " B"]:
        """Return ARRIVED where a flying flock is at the goal, slow and connected, else FLYING."""
        outcomes = np.full(len(flock), Outcome.FLYING, np.int8)
        # The distance is cheap, the graph is not: build the graph only for flocks that are near and slow.
        is_slow = _compute_norms(average_working(flock, flock.velocities)) <= self.arrival_speed
        is_near = is_slow & (self.distance(flock) <= flock.comm_radius)
        near = np.flatnonzero(flying & flock.working.any(axis=1) & is_near)
        if len(near):
            outcomes[near[components(flock[near]).max(axis=1) == 0]] = ARRIVED
        return outcomes


def _compute_norms(vectors: Float64[np.ndarray, "B D"]) -> Float64[np.ndarray, " B"]:
    """Return the 2-norm of each vector."""
    return np.asarray(np.sqrt(np.square(vectors).sum(axis=1)))


@scenario("goal")
@dataclass(frozen=True)
class GoalSeeking:
    """Flocks of `disk` in which randomly drawn agents, group 1, are informed of a goal.

    The goal lies on the x axis, to the right of the flock. The flock has arrived when it is connected and slow, and its
    centre is within R of the goal. The controller must know the goal, too: `gu-leader` has the same default; an option
    such as gu-leader:goal=8,0 changes it.
    """

    duration: ClassVar[float] = 25.0
    success_outcomes: ClassVar[tuple[Outcome, ...]] = (ARRIVED,)
    figure: ClassVar[Figure] = "endings"
    suitable_controllers: ClassVar[tuple[str, ...]] = ("gu-leader",)
    controller_requirement: ClassVar[str] = "knows the goal"
    group_names: ClassVar[tuple[str, ...]] = ("uninformed", "informed")

    disk: RandomDisk = field(default_factory=RandomDisk)
    """Initial conditions of the flocks."""
    informed: float = INFORMED_SHARE
    """Share of informed agents; at least one is informed."""
    distance: float = GOAL_DISTANCE
    """Distance of the goal from the centre of the disk, in communication radii."""
    arrival_speed: float = 0.5
    """Largest norm of the mean velocity of a flock that has arrived; a faster one flies past the goal."""

    def __post_init__(self) -> None:
        check_disk(self.disk)
        check_positive("distance", self.distance)
        check_positive("arrival_speed", self.arrival_speed)
        if check_positive("informed", self.informed) > 1.0:
            raise InputError(f"informed must be a share above 0 and at most 1; got {self.informed:g}")
        self.ending()  # checks the goal

    @property
    def goal(self) -> tuple[float, ...]:
        """The point that the flock must reach, (D,)."""
        return self.distance * self.disk.comm_radius, *[0.0] * (self.disk.dimensions - 1)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The distance to the goal, the velocity variance, and the number of components."""
        distance = self.ending().distance

        def distance_to_goal(moment: Moment) -> Float64[np.ndarray, " B"]:
            return distance(moment.flock)

        return distance_to_goal, "velocity_variance", "component_count"

    @property
    def success_measure(self) -> SuccessMeasure:
        """The distance of the flock's centre from the goal, in communication radii."""
        return SuccessMeasure("{} R to the goal", self._compute_radii_to_goal, "number")

    def _compute_radii_to_goal(self, flock: Flock) -> Float64[np.ndarray, " B"]:
        """Return the distance to the goal in communication radii, (B,); NaN without working agents."""
        distance = self.ending().distance(flock) / flock.comm_radius
        return np.where(flock.working.any(axis=1), distance, np.nan)

    def marks(self, flock: Flock) -> Sequence[Marks]:
        """Return the goal, with the radius within which the flock's centre has arrived."""
        return (circles("goal", [[*self.goal[:2], flock.comm_radius]]),)

    def ending(self) -> UntilArrived:
        """Return a new ending: the flock has arrived."""
        return UntilArrived(self.goal, self.arrival_speed)

    def draw(self, stop: Stop | None = None) -> Flock:
        """Draw the flocks, with random informed agents in group 1 and the others in group 0."""
        start = self.disk.draw(stop)
        groups = np.zeros(start.shape[:2], int)
        count = max(round(self.informed * self.disk.agents), 1)
        for b in range(len(start)):
            # A random stream for each flock, so that flock b does not depend on the number of flocks.
            rng = make_rng(self.disk.seed, "goal", self.disk.split, b)
            groups[b, rng.choice(self.disk.agents, count, replace=False)] = INFORMED_GROUP
        return replace(start, groups=groups)
