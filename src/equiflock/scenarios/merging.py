"""The merging scenario: two flocks meet and must become one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float64, Int8

from equiflock._runtime.checks import InputError, check_positive
from equiflock._runtime.randomness import make_rng
from equiflock.flock import Flock
from equiflock.graph.radius_graph import components
from equiflock.outcomes import Outcome
from equiflock.scenarios.endings import compute_velocity_variance
from equiflock.scenarios.random_disk import RandomDisk, Stop, check_disk
from equiflock.scenarios.registry import Figure, Measure, scenario
from equiflock.scenarios.success_measure import SuccessMeasure, divide

MERGED = Outcome.add("MERGED", "the flocks have merged")


@dataclass(frozen=True)
class UntilMerged:
    """Ending of a flight: the communication graph of all working agents is connected and their velocities agree."""

    variance: float = 0.01
    """Velocities agree if (1/N) sum_i |v_i - mean(v)|^2 is below this."""

    def __post_init__(self) -> None:
        check_positive("variance", self.variance)

    def __call__(
        self, times: Float64[np.ndarray, " B"], flock: Flock, flying: Bool[np.ndarray, " B"]
    ) -> Int8[np.ndarray, " B"]:
        """Return MERGED where a flying flock is connected and its velocity variance is small, else FLYING."""
        outcomes = np.full(len(flock), Outcome.FLYING, np.int8)
        # The variance is cheap, the graph is not: build the graph only where the variance is small.
        is_calm = compute_velocity_variance(flock) < self.variance
        calm = np.flatnonzero(flying & flock.working.any(axis=1) & is_calm)
        if len(calm):
            outcomes[calm[components(flock[calm]).max(axis=1) == 0]] = MERGED
        return outcomes


def compute_largest_component_share(flock: Flock) -> Float64[np.ndarray, " B"]:
    """Return the share of working agents in the largest component of the communication graph, (B,); NaN without any."""
    labels, count = components(flock), flock.shape[1]
    # Count labels of all flocks at once; -1, of agents outside the graph, is dropped.
    offsets = np.arange(len(flock))[:, None] * (count + 1)
    sizes = np.bincount((labels + 1 + offsets).ravel(), minlength=len(flock) * (count + 1))
    return divide(sizes.reshape(len(flock), count + 1)[:, 1:].max(axis=1), flock.working.sum(axis=1))


@scenario("merging")
@dataclass(frozen=True)
class Merging:
    """Two flocks, groups 0 and 1, that start beyond R of each other and fly towards each other for at most 10 s.

    Each group has half of the agents; group 0 has one more if their number is odd. Each group is drawn like a flock of
    `disk` with that number of agents, and all its agents start with the same velocity, towards the other group. The
    groups have merged once all working agents are connected and their velocity variance is small.
    """

    duration: ClassVar[float] = 10.0
    success_outcomes: ClassVar[tuple[Outcome, ...]] = (MERGED,)
    measures: ClassVar[tuple[Measure, ...]] = ("velocity_variance", "mean_acceleration_norm", "component_count")
    figure: ClassVar[Figure] = "endings"
    group_names: ClassVar[tuple[str, ...]] = ("first flock", "second flock")
    success_measure: ClassVar[SuccessMeasure] = SuccessMeasure("{} in one flock", compute_largest_component_share)

    disk: RandomDisk = field(default_factory=RandomDisk)
    """Initial conditions; `agents` counts both groups, radius and density are those of each group."""
    gap: float = 1.5
    """Distance between the nearest agents of the two groups along the line of flight, in communication radii."""
    approach_speed: float = 1.0
    """Speed of each group towards the other."""
    variance: float = 0.01
    """Velocity variance below which connected groups have merged, in units of its initial value, approach_speed^2."""

    def __post_init__(self) -> None:
        check_disk(self.disk)
        if check_positive("gap", self.gap) <= 1.0:
            raise InputError(
                f"gap must be above 1, so that the groups start out of each other's range; got {self.gap:g}"
            )
        check_positive("approach_speed", self.approach_speed)
        check_positive("variance", self.variance)
        if self.disk.agents < 2:
            raise InputError(f"merging needs at least 2 agents; got {self.disk.agents}")
        self._make_disks()

    def ending(self) -> UntilMerged:
        """Return a new ending: working agents are connected, with a variance below `variance` approach_speed^2."""
        return UntilMerged(self.variance * self.approach_speed**2)

    def draw(self, stop: Stop | None = None) -> Flock:
        """Draw the flocks, agents of group 0 first, with the origin in the middle of the gap between the groups."""
        halves = [disk.draw(stop) for disk in self._make_disks()]
        positions = [half.positions.copy() for half in halves]
        velocities = [np.empty_like(half.velocities) for half in halves]
        for b in range(self.disk.flocks):
            # A vector of normal numbers has a uniform direction, in the plane and in space.
            direction = make_rng(self.disk.seed, "merging", self.disk.split, b).normal(size=self.disk.dimensions)
            direction /= np.linalg.norm(direction)
            # Move each group back along its heading until its foremost agent is half of the gap from the origin.
            for group, heading in enumerate((direction, -direction)):
                front = (positions[group][b] @ heading).max()
                positions[group][b] -= (front + self.gap * self.disk.comm_radius / 2.0) * heading
                velocities[group][b] = self.approach_speed * heading
        groups = np.repeat((0, 1), [half.shape[1] for half in halves])
        return Flock(
            np.concatenate(positions, axis=1),
            np.concatenate(velocities, axis=1),
            groups=np.broadcast_to(groups, (self.disk.flocks, self.disk.agents)),
            comm_radius=self.disk.comm_radius,
        )

    def _make_disks(self) -> tuple[RandomDisk, RandomDisk]:
        """Return the initial conditions of groups 0 and 1; separate splits make them independent."""
        first = (self.disk.agents + 1) // 2
        return (
            replace(self.disk, agents=first, split=f"{self.disk.split}, group 0"),
            replace(self.disk, agents=self.disk.agents - first, split=f"{self.disk.split}, group 1"),
        )
