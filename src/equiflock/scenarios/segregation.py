"""The segregation scenario: agents of several groups start mixed and must separate by group."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float64, Int8

from equiflock._runtime.checks import InputError, check_count, check_positive
from equiflock._runtime.randomness import make_rng
from equiflock.flock import NO_GROUP, Flock
from equiflock.graph.radius_graph import components, has_own_group_majority
from equiflock.outcomes import Outcome
from equiflock.protocols import Moment
from equiflock.scenarios.random_disk import RandomDisk, Stop, check_disk
from equiflock.scenarios.registry import Figure, Measure, scenario
from equiflock.scenarios.success_measure import SuccessMeasure

SEGREGATED = Outcome.add("SEGREGATED", "every group is connected and separate from the others")
NEAREST_COUNT = 6
"""Nearest neighbours of an agent that count: as many as an agent touches in a dense flock in the plane."""


def compute_own_group_share(flock: Flock) -> Float64[np.ndarray, " B"]:
    """Return the share of agents, (B,), for which the majority of the nearest neighbours is of the same group.

    The nearest neighbours are the six nearest agents within R, or all of those if there are fewer. An agent without
    neighbours does not have such a majority. Obstacle agents and failed agents do not count.
    """
    has_majority = has_own_group_majority(flock, NEAREST_COUNT)
    return np.asarray(has_majority.sum(axis=1) / np.maximum(flock.working.sum(axis=1), 1))


def compute_working_own_group_share(flock: Flock) -> Float64[np.ndarray, " B"]:
    """Return `compute_own_group_share`, (B,), but NaN for a flock without working agents."""
    return np.where(flock.working.any(axis=1), compute_own_group_share(flock), np.nan)


def count_group_components(flock: Flock) -> Float64[np.ndarray, " B"]:
    """Return the number of components, (B,), of the communication graph without edges between different groups."""
    # Shift each group along x so far that no agent is within R of another group, whatever the groups' numbers are.
    _, numbers = np.unique(flock.groups, return_inverse=True)
    step = np.ptp(flock.positions[..., 0], axis=1, keepdims=True) + 2.0 * flock.comm_radius
    positions = flock.positions.copy()
    positions[..., 0] += numbers.reshape(flock.groups.shape) * step
    shifted = Flock.view(positions, *flock.arrays[1:], comm_radius=flock.comm_radius)
    return np.asarray(components(shifted).max(axis=1) + 1, np.float64)


def is_segregated(flock: Flock) -> Bool[np.ndarray, " B"]:
    """Return the mask (B,) of flocks with connected groups, in which every agent's neighbours are mostly of its group.

    Only working agents count; a flock without any is not segregated.
    """
    # The number of groups with working agents.
    groups = np.sort(np.where(flock.working, flock.groups, NO_GROUP), axis=1)
    count = (np.diff(groups, axis=1, prepend=NO_GROUP) > 0).sum(axis=1)
    # Components come first: they are faster to count, and too many in most mixed flocks.
    segregated = np.asarray(count_group_components(flock) == count)
    segregated[segregated] = compute_own_group_share(flock[segregated]) == 1.0
    return segregated


def own_group_share(moment: Moment) -> Float64[np.ndarray, " B"]:
    """Return `compute_own_group_share` of the moment's flock, (B,), as a measure."""
    return compute_own_group_share(moment.flock)


class UntilSegregated:
    """Ending of a flight: the groups have been segregated without interruption for `hold` seconds.

    It stores since when flocks are segregated, so it serves one flight at a time; a flock at t = 0 begins anew.
    """

    def __init__(self, hold: float = 1.0) -> None:
        self.hold = check_positive("hold", hold)
        self._segregated_since: Float64[np.ndarray, " B"] | None = None

    def __call__(
        self, times: Float64[np.ndarray, " B"], flock: Flock, flying: Bool[np.ndarray, " B"]
    ) -> Int8[np.ndarray, " B"]:
        """Return SEGREGATED where a flying flock has been segregated for `hold` seconds up to now, else FLYING."""
        if self._segregated_since is None or len(self._segregated_since) != len(flock):
            self._segregated_since = np.full(len(flock), np.inf)
        # The time since which the groups are segregated; infinity where they are mixed.
        since = np.where(times == 0.0, np.inf, self._segregated_since)[flying]
        segregated = is_segregated(flock[flying])
        self._segregated_since[flying] = np.where(segregated, np.minimum(since, times[flying]), np.inf)
        held = flying & (times - self._segregated_since >= self.hold)
        return np.where(held, SEGREGATED, Outcome.FLYING).astype(np.int8)


@scenario("segregation")
@dataclass(frozen=True)
class SegregationScenario:
    """Slow agents of two to five groups, mixed at random in a disk, for at most 10 s.

    The groups are segregated once, for a second, every group has been connected within R by its own agents, and the
    majority of every agent's nearest neighbours has been of the same group.
    """

    duration: ClassVar[float] = 10.0
    success_outcomes: ClassVar[tuple[Outcome, ...]] = (SEGREGATED,)
    measures: ClassVar[tuple[Measure, ...]] = (own_group_share, "velocity_variance", "component_count")
    figure: ClassVar[Figure] = "endings"
    suitable_controllers: ClassVar[tuple[str, ...]] = (
        "segregation",
        "segregation-local",
        "etdagnn-segregation",
        "tdagnn-segregation",
    )
    controller_requirement: ClassVar[str] = "tells the groups apart"
    success_measure: ClassVar[SuccessMeasure] = SuccessMeasure("{} among their own", compute_working_own_group_share)

    disk: RandomDisk = field(default_factory=lambda: RandomDisk(agents=50, max_speed=0.5))
    """Initial conditions; default: 50 slow agents."""
    groups: int = 3
    """Number of groups, from 2 to 5; their sizes differ by at most one."""
    hold: float = 1.0
    """Time for which the groups must have been segregated, in seconds."""

    def __post_init__(self) -> None:
        check_disk(self.disk)
        if not 2 <= check_count("groups", self.groups) <= 5:
            raise InputError(f"groups must be from 2 to 5; got {self.groups}")
        if self.disk.agents < 2 * self.groups:
            raise InputError(
                f"segregation needs at least 2 agents in each of {self.groups} groups; got {self.disk.agents} in all"
            )
        check_positive("hold", self.hold)

    def ending(self) -> UntilSegregated:
        """Return a new ending: the groups have been segregated for `hold` seconds."""
        return UntilSegregated(self.hold)

    def draw(self, stop: Stop | None = None) -> Flock:
        """Draw the flocks, with each agent in a random group."""
        start = self.disk.draw(stop)
        groups = np.empty(start.shape[:2], np.int32)
        for b in range(len(start)):
            # A random stream for each flock, so that flock b does not depend on the number of flocks.
            rng = make_rng(self.disk.seed, "segregation", self.disk.split, b)
            groups[b] = rng.permutation(self.disk.agents) % self.groups
        return replace(start, groups=groups)
