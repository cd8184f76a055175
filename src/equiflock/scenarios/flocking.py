"""Flocking (section 5 of the paper, "Flocking"): agents at random in a disk must reach a common velocity."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from equiflock.flock import Flock
from equiflock.scenarios.random_disk import RandomDisk, Stop, check_disk
from equiflock.scenarios.registry import scenario
from equiflock.scenarios.success_measure import SuccessMeasure, compute_alignment


@scenario("flocking")
@dataclass(frozen=True)
class Flocking:
    """Flocks of `disk`, without leaders or obstacles, for 2 s."""

    split: ClassVar[str] = "test"
    time_step: ClassVar[float] = 1e-3
    success_measure: ClassVar[SuccessMeasure] = SuccessMeasure("velocities agree: {}", compute_alignment)

    disk: RandomDisk = field(default_factory=RandomDisk)
    """Initial conditions of the flocks."""

    def __post_init__(self) -> None:
        check_disk(self.disk)

    def draw(self, stop: Stop | None = None) -> Flock:
        """Draw the flocks."""
        return self.disk.draw(stop)
