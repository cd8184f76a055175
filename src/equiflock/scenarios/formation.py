"""The formation scenario: agents at random in a disk must form a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float64, Int8

from equiflock._runtime.checks import InputError, check_positive, is_finite, shorten_repr
from equiflock.controllers.classical import formation_patterns
from equiflock.controllers.classical.formation_patterns import (
    DEFAULT_SPACING,
    WORD_METADATA,
    Pattern,
    PatternName,
    assign_places,
)
from equiflock.flock import MAX_MAGNITUDE, Flock, Role, Vectors
from equiflock.outcomes import Outcome
from equiflock.protocols import Moment
from equiflock.scenarios.endings import compute_velocity_variance
from equiflock.scenarios.marks import Marks, points
from equiflock.scenarios.random_disk import RandomDisk, Stop, check_disk
from equiflock.scenarios.registry import Figure, Measure, scenario
from equiflock.scenarios.success_measure import SuccessMeasure, compute_norms, compute_working_share

FORMED = Outcome.add("FORMED", "the flock has formed its pattern")


@dataclass(frozen=True)
class UntilFormed:
    """Ending of a flight: all working agents are at their places in the pattern and their velocities agree."""

    pattern: Pattern = "vee"
    """As for `formation_patterns.make_pattern_points`, including custom points."""
    spacing: float = DEFAULT_SPACING
    tolerance: float = 0.05
    """Largest `pattern_error` of a flock that has formed the pattern."""
    variance: float = 0.01
    """Velocities agree if (1/N) sum_i |v_i - mean(v)|^2 is below this."""

    def __post_init__(self) -> None:
        formation_patterns.check_pattern(self.pattern)
        for name in ("spacing", "tolerance", "variance"):
            check_positive(name, getattr(self, name))

    def error(self, flock: Flock) -> Float64[np.ndarray, " B"]:
        """Return the `pattern_error` of the working agents, as a share of the pattern's size, (B,); 0 if none work."""
        places = assign_places(flock, self.pattern, self.spacing)
        return formation_patterns.pattern_error(flock.positions, places, flock.working)

    def locate_places(self, flock: Flock) -> Vectors:
        """Return the place of each agent, (B, N, D), in the pattern that moves along with the working agents."""
        places = assign_places(flock, self.pattern, self.spacing)
        return formation_patterns.move_places(flock.positions, places, flock.working)

    def compute_share_in_place(self, flock: Flock) -> Float64[np.ndarray, " B"]:
        """Return the share of working agents within tolerance times the pattern's size of their places, (B,)."""
        places = assign_places(flock, self.pattern, self.spacing)
        moved = formation_patterns.move_places(flock.positions, places, flock.working)
        reach = self.tolerance * formation_patterns.compute_size(places, flock.working)
        return compute_working_share(flock, compute_norms(flock.positions - moved) < reach[:, None])

    def __call__(
        self, times: Float64[np.ndarray, " B"], flock: Flock, flying: Bool[np.ndarray, " B"]
    ) -> Int8[np.ndarray, " B"]:
        """Return FORMED where a flying flock has the pattern and a small velocity variance, else FLYING."""
        formed = flying & flock.working.any(axis=1) & (self.error(flock) < self.tolerance)
        formed &= compute_velocity_variance(flock) < self.variance
        return np.where(formed, FORMED, Outcome.FLYING).astype(np.int8)


@scenario("formation")
@dataclass(frozen=True)
class FormationFlight:
    """Flocks of `disk` that must form a pattern within 10 s; an agent's number determines its place.

    Velocities are the disk's, except for their mean, which points to the right: a vee flies head first. The controller
    must know the pattern, too: `formation` has the same default; an option such as formation:pattern=circle changes it.
    """

    duration: ClassVar[float] = 10.0
    success_outcomes: ClassVar[tuple[Outcome, ...]] = (FORMED,)
    figure: ClassVar[Figure] = "endings"
    shared_options: ClassVar[tuple[str, ...]] = ("pattern", "spacing")
    suitable_controllers: ClassVar[tuple[str, ...]] = ("formation",)
    controller_requirement: ClassVar[str] = "knows the pattern"

    disk: RandomDisk = field(default_factory=lambda: RandomDisk(agents=30))
    """Initial conditions of the flocks."""
    pattern: PatternName = field(default="vee", metadata=WORD_METADATA)
    """Pattern: vee, circle, or a word in capital letters such as EQ."""
    spacing: float = DEFAULT_SPACING
    """Distance between neighbours in the pattern."""
    tolerance: float = 0.05
    """Largest distance from the pattern at which it counts as formed, as a share of its size."""
    variance: float = 0.01
    """Velocity variance below which velocities agree, as a formed pattern also requires."""
    mean_speed: float = 1.0
    """Mean speed of the flock at the start, to the right."""

    def __post_init__(self) -> None:
        check_disk(self.disk)
        if not is_finite(self.mean_speed) or not 0.0 <= self.mean_speed <= MAX_MAGNITUDE / 2:
            raise InputError(f"mean_speed must be from 0 to {MAX_MAGNITUDE / 2:g}; got {shorten_repr(self.mean_speed)}")
        self.ending()

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The distance from the pattern, and the velocity variance."""
        error = self.ending().error

        def pattern_error(moment: Moment) -> Float64[np.ndarray, " B"]:
            return error(moment.flock)

        return pattern_error, "velocity_variance"

    @property
    def success_measure(self) -> SuccessMeasure:
        """The share of working agents that are in their places."""
        return SuccessMeasure("{} in place", self.ending().compute_share_in_place)

    def marks(self, flock: Flock) -> Sequence[Marks]:
        """Return the places of all agents, failed ones included, where the flock is now."""
        return (points("place", self.ending().locate_places(flock)[flock.roles != Role.OBSTACLE], moves=True),)

    def ending(self) -> UntilFormed:
        """Return an ending: the flock has formed its pattern."""
        return UntilFormed(self.pattern, self.spacing, self.tolerance, self.variance)

    def draw(self, stop: Stop | None = None) -> Flock:
        """Draw the flocks, with the mean velocity set to `mean_speed` along x."""
        start = self.disk.draw(stop)
        velocities = start.velocities - start.velocities.mean(axis=1, keepdims=True)
        velocities[:, :, 0] += self.mean_speed
        return replace(start, velocities=velocities)
