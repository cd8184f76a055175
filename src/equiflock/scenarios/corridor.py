"""The corridor scenario: leaders guide a flock past several disks, one after the other, on and beside its path."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from equiflock._runtime.checks import check_count, check_positive
from equiflock._runtime.jit import Array
from equiflock.flock import Flock
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
from equiflock.scenarios.endings import UntilPassed
from equiflock.scenarios.obstacle_shapes import Points, add_obstacles, polygon_radius, ring
from equiflock.scenarios.random_disk import RandomDisk, Stop
from equiflock.scenarios.registry import Figure, scenario
from equiflock.scenarios.success_measure import SuccessMeasure


@scenario("corridor")
@dataclass(frozen=True)
class Corridor:
    """Flocks of `disk` that leaders guide past several disks, in a random direction.

    All agents start with the same unit vector as velocity. The first disk lies ahead of the flock, beyond R of every
    agent, and each further disk behind the one before. Their offsets to the left or right of the path of the flock's
    centre are random, up to the flock's half width. Leaders are drawn among the agents whose straight path stays at
    least R_min clear of all disks; a flock with too few of them is drawn again. Each disk is a separate obstacle.
    """

    duration: ClassVar[float] = 30.0
    success_outcomes: ClassVar[tuple[Outcome, ...]] = (Outcome.PASSED,)
    figure: ClassVar[Figure] = "endings"
    suitable_controllers: ClassVar[tuple[str, ...]] = ("starling",)
    controller_requirement: ClassVar[str] = COURSE_REQUIREMENT
    success_measure: ClassVar[SuccessMeasure] = SuccessMeasure("{} past the disks", compute_share_past_obstacles)

    disk: RandomDisk = field(default_factory=RandomDisk)
    """Initial conditions of the flocks."""
    disks: int = 3
    """Number of disks in the way."""
    sides: int = 12
    """Sides of the polygon of obstacle agents around each disk; each side is R_min long."""
    gap: float = 4.0
    """Distance between the rims of one disk and the next, along the flock's path."""
    leaders: int = 2
    """Number of leaders."""
    orbit: Orbit | None = field(default_factory=Orbit)
    """Orbit technique by which followers avoid obstacles; None: obstacle agents only stand still."""

    def __post_init__(self) -> None:
        check_course(self.disk, self.sides, self.leaders, self.orbit, check_count("disks", self.disks))
        check_positive("gap", self.gap)

    @property
    def radius(self) -> float:
        """Radius of the disks, R_min / (2 sin(pi / s)) for s sides."""
        return polygon_radius(self.sides, self.disk.min_separation)

    @property
    def obstacle_sizes(self) -> tuple[int, ...]:
        """Number of agents of each disk."""
        return (self.sides,) * self.disks

    def ending(self) -> UntilPassed:
        """Return a new ending: the flock is disconnected, has collided, has hit a disk, or has passed all disks."""
        return UntilPassed(None, self.disk.min_separation)

    def draw(self, stop: Stop | None = None) -> Flock:
        """Draw the flocks and their obstacles; raise InputError if too few agents can lead in 100 draws of a flock."""
        clearance, disks = self.radius + self.disk.min_separation, f"{self.disks} disks of {self.sides} sides"
        start = draw_course(self.disk, self.leaders, clearance, self._place_disks, "corridor", disks, stop)
        return add_obstacles(start.flock, start.centres[:, :, None] + ring((0.0, 0.0), self.radius, sides=self.sides))

    def _place_disks(self, positions: Array, rng: np.random.Generator) -> tuple[Point, Points]:
        """Return a random heading, a unit vector, and the centres of the disks, (disks, 2), the nearest first."""
        angle, offsets = rng.uniform(0.0, 2.0 * math.pi), rng.uniform(-1.0, 1.0, self.disks)
        heading = np.array([math.cos(angle), math.sin(angle)])
        middle = positions.mean(axis=0)
        along, across = (positions - middle) @ heading, compute_lateral_offset(heading, positions - middle)
        # Along the path: the first disk just beyond R of the foremost agent, the others the gap apart.
        first = along.max() + (self.radius + self.disk.comm_radius) * (1.0 + 1e-9)
        onward = first + np.arange(self.disks) * (2.0 * self.radius + self.gap)
        # Across the path: offsets times the half width of the flock.
        left = offsets * np.abs(across).max()
        leftward = np.array([-heading[1], heading[0]])
        return heading, middle + onward[:, None] * heading + left[:, None] * leftward
