"""Flocks on their way past several disks, one after the other, left and right of the way and on it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from equiflock.flock import Flock, Role
from equiflock.outcomes import Outcome
from equiflock.runtime.checks import InputError, check_count, check_positive
from equiflock.runtime.jit import Array
from equiflock.runtime.randomness import stream
from equiflock.scenarios.courses import REDRAWS, Point, able_to_lead, check_course, cross, drawn_again
from equiflock.scenarios.passing import UntilPassed
from equiflock.scenarios.random_disk import RandomDisk
from equiflock.scenarios.registry import Figure, scenario
from equiflock.scenarios.search import Stop
from equiflock.scenarios.shapes import Points, polygon_radius, ring, with_obstacle
from equiflock.senses.orbit import Orbit


@scenario("corridor")
@dataclass(frozen=True)
class Corridor:
    """Flocks of `disk` that fly in a random direction, led past several disks that stand in their way.

    Everybody starts with the same unit vector as velocity. The first disk stands before the whole flock, out of
    everybody's reach, each other one farther on. How far they stand to the left or right of the way of the flock's
    middle is random, up to the flock's own half width. Leaders are drawn among the agents whose straight path
    stays at least R_min clear of all disks; a flock with too few of them is drawn anew. Each disk is an obstacle with
    its own number.
    """

    duration: ClassVar[float] = 30.0
    succeeded: ClassVar[tuple[Outcome, ...]] = (Outcome.PASSED,)
    figure: ClassVar[Figure] = "endings"

    disk: RandomDisk = field(default_factory=RandomDisk)
    """The flocks."""
    disks: int = 3
    """How many disks stand in the way."""
    sides: int = 12
    """Of the polygon of obstacle agents around each disk, each as long as R_min = `disk.min_separation`."""
    gap: float = 4.0
    """How much room there is between the rims of a disk and the next, along the way."""
    leaders: int = 2
    """How many lead."""
    orbit: Orbit | None = field(default_factory=Orbit)
    """The technique by which followers avoid obstacles; None if their agents just stand still."""

    def __post_init__(self) -> None:
        check_course(self.disk, self.sides, self.leaders, self.orbit)
        check_count("disks", self.disks)
        check_positive("gap", self.gap)

    @property
    def radius(self) -> float:
        """The disks': R_min / (2 sin(pi / s))."""
        return polygon_radius(self.sides, self.disk.min_separation)

    def ending(self) -> UntilPassed:
        """Over once the flock has lost its connectivity, has collided, or has passed all disks."""
        return UntilPassed(None, self.disk.min_separation)

    def draw(self, stop: Stop | None = None) -> Flock:
        """Draw the flocks and their obstacles; `stop` ends the search, as for `RandomDisk`."""
        stop = stop or Stop()
        flock = self.disk.draw(stop)
        built = [self._build(flock.positions[b], b, stop) for b in range(len(flock))]
        positions, velocities, roles, centres = (np.stack(part) for part in zip(*built, strict=True))
        flock = Flock(positions, velocities, roles, comm_radius=self.disk.comm_radius)
        for places in centres.swapaxes(0, 1):  # (disks, B, 2)
            rims = [ring(centre, self.radius, sides=self.sides) for centre in places]
            flock = with_obstacle(flock, np.stack(rims))
        return flock

    def _build(self, positions: Array, b: int, stop: Stop) -> tuple[Array, Array, Array, Points]:
        """Positions, velocities and roles of flock b, and the centres of the disks in its way."""
        rng = stream(self.disk.seed, "corridor", self.disk.split, b)
        for attempt in range(REDRAWS):
            stop.check()
            angle, aside = rng.uniform(0.0, 2.0 * math.pi), rng.uniform(-1.0, 1.0, self.disks)
            heading = np.array([math.cos(angle), math.sin(angle)])
            centres = self._place(positions, heading, aside)
            able = able_to_lead(positions, heading, centres, self.radius + self.disk.min_separation)
            if len(able) >= self.leaders:
                break
            positions = drawn_again(self.disk, b, attempt, stop)
        else:
            raise InputError(
                f"in none of {REDRAWS} flocks {self.leaders} agents could lead past {self.disks} disks of {self.sides} "
                "sides: take fewer disks, sides or leaders, or more agents"
            )
        roles = np.full(len(positions), Role.FOLLOWER, np.int8)
        roles[rng.choice(able, self.leaders, replace=False)] = Role.LEADER
        return positions, np.broadcast_to(heading, positions.shape), roles, centres

    def _place(self, positions: Array, heading: Point, aside: Array) -> Points:
        """The centres of the disks: `aside` tells how far to the left of the way, by the flock's half width."""
        middle = positions.mean(axis=0)
        along, across = (positions - middle) @ heading, cross(heading, positions - middle)
        first = along.max() + (self.radius + self.disk.comm_radius) * (1.0 + 1e-9)
        onward = first + np.arange(self.disks) * (2.0 * self.radius + self.gap)
        left = aside * np.abs(across).max()
        centres: Points = middle + onward[:, None] * heading + left[:, None] * np.array([-heading[1], heading[0]])
        return centres
