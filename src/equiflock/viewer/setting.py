"""What a live flight begins with: all that the page's address holds."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float64
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from equiflock.flock import NO_GROUP, Flock, Role
from equiflock.runtime.checks import InputError
from equiflock.scenarios import LeaderFollowing, ObstacleCourse, RandomDisk, Stop
from equiflock.scenarios.random_disk import RadiusRule

MOST_AGENTS = 10_000
MOST_DISKS = 20
FARTHEST = 1e6
"""How far from the origin anything may be put."""
PAPER_RULE_UP_TO = 1_000
"""Beyond so many agents the paper's disk, of radius N^(1/4), is so crowded that everybody hears hundreds."""

Place = Annotated[float, Field(ge=-FARTHEST, le=FARTHEST)]
Point = tuple[Place, Place]
DiskRadius = Annotated[float, Field(ge=0.05, le=5.0)]


class Checked(BaseModel):
    """Data from outside: types exact, numbers finite and in range, nothing beyond the fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def one_line(error: ValidationError) -> str:
    """What is wrong first with data from outside, and where."""
    first = error.errors()[0]
    where = [str(part) for part in first["loc"]]
    came = "" if isinstance(first["input"], dict) else f"; got {first['input']!s:.40}"
    return f"{where[-1].replace('_', ' ')}: {first['msg']}{came}" if where else f"{first['msg']}{came}"


class Disk(Checked):
    """An obstacle: a disk with obstacle agents around its rim."""

    x: Place
    y: Place
    radius: DiskRadius

    def rim(self, spacing: float) -> Float64[np.ndarray, "sides 2"]:
        """Where its agents stand: on a regular polygon whose sides are as near to `spacing` as can be."""
        half = math.asin(min(spacing / (2.0 * self.radius), 1.0))
        sides = max(round(math.pi / half), 3)
        angles = 2.0 * math.pi * np.arange(sides) / sides
        return np.array([self.x, self.y]) + self.radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)


class Setting(Checked):
    """A scenario, a controller or two of them, and their numbers."""

    scenario: Literal["flocking", "leaders", "obstacles"] = "flocking"
    controller: Annotated[str, Field(max_length=1000)] = "etdagnn"
    compare: Annotated[str, Field(max_length=1000)] | None = None
    """A second controller, flown in lockstep from the same start."""
    agents: Annotated[int, Field(ge=3, le=MOST_AGENTS)] = 100
    seed: Annotated[int, Field(ge=0, le=2**31)] = 0
    radius: Annotated[float, Field(ge=0.1, le=3.0)] = 1.0
    """R, within which agents hear each other."""
    time_step: Annotated[float, Field(ge=1e-4, le=0.1)] = 0.01
    """Seconds per step."""
    spread: Literal["automatic", "quarter-power", "constant-density"] = "automatic"
    """How the disk of the start grows with the flock."""
    leaders: Annotated[int, Field(ge=1, le=100)] = 2
    """How many lead, where a scenario has leaders."""
    sides: Annotated[int, Field(ge=3, le=200)] = 24
    """Of the obstacle course's obstacle."""
    orbit: bool = True
    """Whether followers avoid obstacles by the orbit technique."""
    disks: Annotated[tuple[Disk, ...], Field(max_length=MOST_DISKS)] = ()
    """Obstacles of one's own."""

    @property
    def controllers(self) -> tuple[str, ...]:
        """Of each flight."""
        return (self.controller,) if self.compare is None else (self.controller, self.compare)

    @property
    def start(self) -> RandomDisk:
        """The flock before anybody leads and anything stands in its way."""
        rule: RadiusRule = "constant-density" if self.agents > PAPER_RULE_UP_TO else "quarter-power"
        if self.spread != "automatic":
            rule = self.spread
        return RandomDisk(agents=self.agents, seed=self.seed, comm_radius=self.radius, radius_rule=rule)

    def draw(self, stop: Stop | None = None) -> tuple[Flock, tuple[Disk, ...]]:
        """The flock with all obstacle agents after its own, and the disks whose rims these are, in their order.

        Args:
            stop: ends the search for a start, as for `RandomDisk`.
        """
        try:
            return self._draw(stop)
        except InputError as error:
            if "comm_radius" not in str(error):
                raise
            # It gives advice about options that a page does not have.
            raise InputError(
                f"no start was found for {self.agents:,} agents in which everybody hears two others within R = "
                f"{self.radius:g}, and all are connected: raise the radius R, or choose another start disk"
            ) from None

    def _draw(self, stop: Stop | None) -> tuple[Flock, tuple[Disk, ...]]:
        given: tuple[Disk, ...] = ()
        if self.scenario == "obstacles":
            course = ObstacleCourse(self.start, self.sides, self.leaders)
            flock = course.draw(stop)
            x, y = flock.positions[0, self.agents :].mean(axis=0).tolist()
            given = (Disk(x=x, y=y, radius=course.radius),)
        elif self.scenario == "leaders":
            flock = LeaderFollowing(self.start, self.leaders).draw(stop)
        else:
            flock = self.start.draw(stop)
        for disk in self.disks:
            flock = with_obstacle(flock, disk.rim(self.start.min_separation))
        return flock, (*given, *self.disks)


def with_obstacle(flock: Flock, rim: Float64[np.ndarray, "count 2"]) -> Flock:
    """The flock with one more obstacle, whose agents come after all others."""
    crew = np.full((3, len(rim)), [[Role.OBSTACLE], [flock.obstacles.max() + 1], [NO_GROUP]])
    more = rim, np.zeros_like(rim), *crew
    joined = (np.concatenate([array[0], added])[None] for array, added in zip(flock.arrays, more, strict=True))
    return Flock(*joined, comm_radius=flock.comm_radius)
