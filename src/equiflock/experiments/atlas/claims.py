"""What laws promise, each as one number that a few flights measure, with the limits that the promise sets it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from equiflock.controllers import load
from equiflock.experiments.flight_jobs import fly
from equiflock.flock import Flock
from equiflock.scenarios import RandomDisk, make_scenario
from equiflock.scenarios.registry import find_failed_flights
from equiflock.simulation import metrics
from equiflock.simulation.simulate import simulate
from equiflock.simulation.trajectory import Trajectory

FLOCKS = 50
"""Flocks of a claim about many."""


@dataclass(frozen=True)
class Claim(ABC):
    """One promise of a law.

    Attributes:
        law: the controller, as for `load`, with options.
        description: what is measured.
        least: the promise holds from this number on; any number will do if left out.
        most: it holds up to this number; any number will do if left out.
    """

    law: str
    description: str
    least: float | None = None
    most: float | None = None

    value_format: ClassVar[str] = ".3g"
    """How the number is written."""
    limit_format: ClassVar[str] = "g"
    """How its limits are."""

    @abstractmethod
    def measure(self) -> float:
        """The number."""

    @property
    def rule(self) -> str:
        """The limits in words; empty if nothing is promised."""
        limits = {"at least": self.least, "at most": self.most}
        return ", ".join(
            f"{word} {limit_format:{self.limit_format}}"
            for word, limit_format in limits.items()
            if limit_format is not None
        )

    def verdict(self, value: float) -> str:
        """Whether the promise holds; empty if nothing is promised."""
        if not self.rule:
            return ""
        low, high = -math.inf if self.least is None else self.least, math.inf if self.most is None else self.most
        return "holds" if low <= value <= high else "does not hold"


@dataclass(frozen=True)
class ClaimJob:
    """The measurement of one claim."""

    number: int
    """Its place in the atlas."""
    claim: Claim

    @property
    def key(self) -> str:
        """The job's name."""
        return f"{self.number:02d}-{self.claim.law.partition(':')[0]}"

    @property
    def labels(self) -> dict[str, Any]:
        """The columns that mark its row in the table."""
        claim = self.claim
        return {"claim": self.number, "law": claim.law, "description": claim.description, "rule": claim.rule}

    def run(self) -> pd.DataFrame:
        """One row: the number and the verdict."""
        value = self.claim.measure()
        return pd.DataFrame({"value": [value], "verdict": [self.claim.verdict(value)]})


@dataclass(frozen=True)
class SuccessRate(Claim):
    """The share of flocks of a scenario that end as they should."""

    scenario: str = "flocking"
    flocks: int = FLOCKS

    value_format: ClassVar[str] = ".0%"
    limit_format: ClassVar[str] = ".0%"

    def measure(self) -> float:
        """Fly them by the rules of the scenario, at its time step, and count."""
        scenario = make_scenario(self.scenario, flocks=self.flocks)
        start = scenario.draw()
        run = fly(scenario, start, load(self.law), scenario.time_step, scenario.duration, keep_every=None)
        return float(1.0 - find_failed_flights(scenario, run.outcome).mean())


@dataclass(frozen=True)
class ConnectedShare(Claim):
    """The share of the paper's flocks of 100 agents that are in one piece after a while."""

    seconds: float = 8.0

    value_format: ClassVar[str] = ".0%"
    limit_format: ClassVar[str] = ".0%"

    def measure(self) -> float:
        """Fly them, and count the pieces at the end."""
        run = simulate(RandomDisk(FLOCKS).draw(), load(self.law), duration=self.seconds, keep_every=None)
        return float((metrics.component_count(run.flock()) == 1).mean())


@dataclass(frozen=True)
class FinalVelocityVariance(Claim):
    """The velocity variance at the end in units of that at the start, the largest of all flocks."""

    disk: RandomDisk = field(default_factory=lambda: RandomDisk(FLOCKS))
    seconds: float = 8.0
    time_step: float = 0.01

    def measure(self) -> float:
        """Fly the flocks of the disk."""
        start = self.disk.draw()
        run = simulate(start, load(self.law), time_step=self.time_step, duration=self.seconds, keep_every=None)
        left = metrics.velocity_variance(run.flock()) / metrics.velocity_variance(start)
        return float(left.max())


@dataclass(frozen=True)
class MeanVelocityDrift(Claim):
    """How far the mean velocity of a flock drifts, in units of the largest speed: the most of all flocks and times."""

    seconds: float = 4.0

    def measure(self) -> float:
        """Fly the paper's flocks."""
        run = simulate(RandomDisk(FLOCKS).draw(), load(self.law), duration=self.seconds)
        means = run.velocities.mean(axis=2)
        drift = np.sqrt(np.square(means - means[0]).sum(axis=-1)).max()
        return float(drift / np.sqrt(np.square(run.velocities[0]).sum(axis=-1)).max())


def _make_pair(speed: float) -> Flock:
    """Two agents at a distance of 1 that fly apart at a relative speed, or towards each other if it is negative."""
    ways = np.array([[[-0.5, 0.0], [0.5, 0.0]]])
    return Flock(ways, speed * ways)


@dataclass(frozen=True)
class EscapeSpeed(Claim):
    """The relative speed that two agents keep for ever, in units of what the law's own equation says.

    For two agents on a line that fly apart, du/dr = - strength phi(r): from a distance of 1 at a relative speed u the
    speed u - strength (pi/2 - arctan 1) is left for beta = 1.
    """

    speed: float = 30.0
    strength: float = 10.0

    def measure(self) -> float:
        """Fly them for so long that they hardly feel each other any more."""
        law = load(self.law, strength=self.strength, clamp=None)
        end = simulate(_make_pair(self.speed), law, time_step=1e-3, duration=20.0, keep_every=None).flock()
        left = float(end.velocities[0, 1, 0] - end.velocities[0, 0, 0])
        return left / (self.speed - self.strength * (math.pi / 2.0 - math.atan(1.0)))


@dataclass(frozen=True)
class HeadOnDistance(Claim):
    """The distance at which two agents that meet head-on come to rest, in units of what the law's equation says.

    For alpha = 1, du/dr = strength / r on the way to each other: from a distance of 1 at a relative speed u they rest
    at exp(-u / strength).
    """

    speed: float = 6.0
    strength: float = 10.0

    def measure(self) -> float:
        """Fly them until they rest."""
        law = load(self.law, strength=self.strength, clamp=None)
        end = simulate(_make_pair(-self.speed), law, time_step=1e-4, duration=5.0, keep_every=None).flock()
        distance = float(end.positions[0, 1, 0] - end.positions[0, 0, 0])
        return distance / math.exp(-self.speed / self.strength)


@dataclass(frozen=True)
class OrderPreserved(Claim):
    """The share of flocks on a line in which nobody ever passes anybody: to pass on a line, two agents must touch."""

    agents: int = 10
    strength: float = 20.0

    value_format: ClassVar[str] = ".0%"
    limit_format: ClassVar[str] = ".0%"

    def measure(self) -> float:
        """Fly agents that are 0.1 apart or more along their line, at random speeds, at a fine time step."""
        rng = np.random.default_rng(1)
        places = np.sort(rng.uniform(0.0, 2.0, (FLOCKS, self.agents)), axis=1) + 0.1 * np.arange(self.agents)
        speeds = 3.0 * rng.normal(size=places.shape)
        start = Flock(*(np.stack([each, np.zeros_like(each)], axis=-1) for each in (places, speeds)))
        law = load(self.law, strength=self.strength, clamp=None)
        run = simulate(start, law, time_step=4e-4, duration=0.4)
        return float((np.diff(run.positions[..., 0], axis=2) > 0.0).all(axis=(0, 2)).mean())


@dataclass(frozen=True)
class SmallestDistance(Claim):
    """The smallest distance between any two agents of any flock at any step."""

    disk: RandomDisk = field(default_factory=lambda: RandomDisk(FLOCKS))
    seconds: float = 2.0
    time_step: float = 1e-3

    def measure(self) -> float:
        """Fly the flocks of the disk, and look at every step."""
        record = {"separation": metrics.minimum_separation}
        rules: dict[str, Any] = {"keep_every": None, "record": record, "duration": self.seconds}
        run: Trajectory = simulate(self.disk.draw(), load(self.law), time_step=self.time_step, **rules)
        return float(run.series["separation"].min())


@dataclass(frozen=True)
class BondLength(Claim):
    """The median distance between neighbours at the end, in units of the bonding law's 2 R0, over all flocks.

    Neighbours are the nearest other agent and all that are at most a quarter farther.
    """

    disk: RandomDisk = field(default_factory=lambda: RandomDisk(FLOCKS))
    seconds: float = 20.0

    def measure(self) -> float:
        """Fly the flocks of the disk."""
        law: Any = load(self.law)
        run = simulate(self.disk.draw(), law, duration=self.seconds, keep_every=None)
        found = []
        for positions in run.flock().positions:
            # One agent at a time, so that there is never an array of all pairs.
            for i in range(len(positions)):
                others = np.delete(positions, i, axis=0)
                distances = np.sqrt(np.square(others - positions[i]).sum(axis=1))
                found.append(distances[distances <= 1.25 * distances.min()])
        return float(np.median(np.concatenate(found)) / (2.0 * law.half_distance))
