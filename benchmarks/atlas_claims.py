"""Claims about the classical laws: each is a number, measured in a few flights, with limits within which it holds."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from equiflock.controllers import load
from equiflock.flock import Flock
from equiflock.scenarios import RandomDisk, make_scenario
from equiflock.scenarios.registry import find_failed_flights
from equiflock.simulation import metrics
from equiflock.simulation.flight_jobs import fly
from equiflock.simulation.simulate import simulate
from equiflock.simulation.trajectory import Trajectory

FLOCKS = 50
"""Number of flocks of statistical claims."""


@dataclass(frozen=True)
class Claim(ABC):
    """One claim about a law: a number, and the inclusive limits `least` and `most`, if any."""

    law: str
    """Name of the controller with options, as for `load`."""
    description: str
    least: float | None = None
    most: float | None = None

    value_format: ClassVar[str] = ".3g"
    limit_format: ClassVar[str] = "g"

    @abstractmethod
    def measure(self) -> float:
        """Simulate the flights of the claim, with fixed seeds, and return the number."""

    @property
    def rule(self) -> str:
        """Limits as text; empty without limits."""
        limits = {"at least": self.least, "at most": self.most}
        return ", ".join(f"{word} {limit:{self.limit_format}}" for word, limit in limits.items() if limit is not None)

    def judge(self, value: float) -> str:
        """Return "holds" or "does not hold"; "" for a claim without limits."""
        if not self.rule:
            return ""
        low, high = -math.inf if self.least is None else self.least, math.inf if self.most is None else self.most
        return "holds" if low <= value <= high else "does not hold"


@dataclass(frozen=True)
class ShareClaim(Claim):
    """Base class of claims about a share of flocks."""

    value_format: ClassVar[str] = ".0%"
    limit_format: ClassVar[str] = ".0%"


@dataclass(frozen=True)
class SuccessRate(ShareClaim):
    """Share of flocks of a scenario that succeed."""

    scenario: str = "flocking"
    flocks: int = FLOCKS

    def measure(self) -> float:
        scenario = make_scenario(self.scenario, flocks=self.flocks)
        start = scenario.draw()
        run = fly(scenario, start, load(self.law), scenario.time_step, scenario.duration, keep_every=None)
        return float(1.0 - find_failed_flights(scenario, run.outcome).mean())


@dataclass(frozen=True)
class ConnectedShare(ShareClaim):
    """Share of the paper's flocks of 100 agents that are connected at the end."""

    seconds: float = 8.0

    def measure(self) -> float:
        run = simulate(RandomDisk(FLOCKS).draw(), load(self.law), duration=self.seconds, keep_every=None)
        return float((metrics.component_count(run.flock()) == 1).mean())


@dataclass(frozen=True)
class FinalVelocityVariance(Claim):
    """Final velocity variance relative to the initial one, the largest over flocks."""

    disk: RandomDisk = field(default_factory=lambda: RandomDisk(FLOCKS))
    seconds: float = 8.0
    time_step: float = 0.01

    def measure(self) -> float:
        start = self.disk.draw()
        run = simulate(start, load(self.law), time_step=self.time_step, duration=self.seconds, keep_every=None)
        ratios = metrics.velocity_variance(run.flock()) / metrics.velocity_variance(start)
        return float(ratios.max())


@dataclass(frozen=True)
class MeanVelocityDrift(Claim):
    """Largest drift of a flock's mean velocity over flocks and times, relative to the largest initial speed."""

    seconds: float = 4.0

    def measure(self) -> float:
        run = simulate(RandomDisk(FLOCKS).draw(), load(self.law), duration=self.seconds)
        means = run.velocities.mean(axis=2)
        drift = np.sqrt(np.square(means - means[0]).sum(axis=-1)).max()
        return float(drift / np.sqrt(np.square(run.velocities[0]).sum(axis=-1)).max())


def _make_pair(speed: float) -> Flock:
    """Return two agents at distance 1 that separate at a relative speed, or approach each other if it is negative."""
    positions = np.array([[[-0.5, 0.0], [0.5, 0.0]]])
    return Flock(positions, speed * positions)


@dataclass(frozen=True)
class EscapeSpeed(Claim):
    """Final relative speed of two separating agents, relative to the prediction of the law's equation.

    For two agents that separate on a line, du/dr = - strength phi(r). For beta = 1 they start at distance 1 with
    relative speed u and approach the relative speed u - strength (pi/2 - arctan 1); after 20 s the rest is negligible.
    """

    speed: float = 30.0
    strength: float = 10.0

    def measure(self) -> float:
        law = load(self.law, strength=self.strength, clamp=None)
        end = simulate(_make_pair(self.speed), law, time_step=1e-3, duration=20.0, keep_every=None).flock()
        speed = float(end.velocities[0, 1, 0] - end.velocities[0, 0, 0])
        return speed / (self.speed - self.strength * (math.pi / 2.0 - math.atan(1.0)))


@dataclass(frozen=True)
class HeadOnDistance(Claim):
    """Distance at which two agents that meet head-on come to rest, relative to the prediction of the law's equation.

    For alpha = 1, du/dr = strength / r during the approach: from distance 1 and relative speed u the agents come to
    rest at distance exp(-u / strength).
    """

    speed: float = 6.0
    strength: float = 10.0

    def measure(self) -> float:
        law = load(self.law, strength=self.strength, clamp=None)
        end = simulate(_make_pair(-self.speed), law, time_step=1e-4, duration=5.0, keep_every=None).flock()
        distance = float(end.positions[0, 1, 0] - end.positions[0, 0, 0])
        return distance / math.exp(-self.speed / self.strength)


@dataclass(frozen=True)
class OrderPreserved(ShareClaim):
    """Share of flocks on a line in which no agent ever passes another: on a line, two agents must touch to pass.

    Agents start at least 0.1 apart, with random speeds, and fly 0.4 s at steps of 0.4 ms.
    """

    agents: int = 10
    strength: float = 20.0

    def measure(self) -> float:
        rng = np.random.default_rng(1)
        x = np.sort(rng.uniform(0.0, 2.0, (FLOCKS, self.agents)), axis=1) + 0.1 * np.arange(self.agents)
        speeds = 3.0 * rng.normal(size=x.shape)
        start = Flock(*(np.stack([each, np.zeros_like(each)], axis=-1) for each in (x, speeds)))
        law = load(self.law, strength=self.strength, clamp=None)
        run = simulate(start, law, time_step=4e-4, duration=0.4)
        return float((np.diff(run.positions[..., 0], axis=2) > 0.0).all(axis=(0, 2)).mean())


@dataclass(frozen=True)
class SmallestDistance(Claim):
    """Smallest distance between any two agents of any flock at any step."""

    disk: RandomDisk = field(default_factory=lambda: RandomDisk(FLOCKS))
    seconds: float = 2.0
    time_step: float = 1e-3

    def measure(self) -> float:
        record = {"separation": metrics.minimum_separation}
        options: dict[str, Any] = {"keep_every": None, "record": record, "duration": self.seconds}
        run: Trajectory = simulate(self.disk.draw(), load(self.law), time_step=self.time_step, **options)
        return float(run.series["separation"].min())


@dataclass(frozen=True)
class BondLength(Claim):
    """Median distance between neighbours at the end over all flocks, in units of the bonding law's 2 R0.

    Neighbours are the nearest other agent and all agents that are at most 25% farther.
    """

    disk: RandomDisk = field(default_factory=lambda: RandomDisk(FLOCKS))
    seconds: float = 20.0

    def measure(self) -> float:
        law: Any = load(self.law)
        run = simulate(self.disk.draw(), law, duration=self.seconds, keep_every=None)
        bonds = []
        for positions in run.flock().positions:
            # One agent at a time, to avoid an array of all pairs.
            for i in range(len(positions)):
                others = np.delete(positions, i, axis=0)
                distances = np.sqrt(np.square(others - positions[i]).sum(axis=1))
                bonds.append(distances[distances <= 1.25 * distances.min()])
        return float(np.median(np.concatenate(bonds)) / (2.0 * law.half_distance))
