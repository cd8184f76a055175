"""Segregation: agents of several groups, mixed at the start, shall part into groups that fly on as one flock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float64, Int8

from equiflock.flock import NO_GROUP, Flock
from equiflock.outcomes import Outcome
from equiflock.protocols import Moment
from equiflock.runtime.checks import InputError, check_count, check_positive
from equiflock.runtime.randomness import make_rng
from equiflock.scenarios.random_disk import RandomDisk, check_disk
from equiflock.scenarios.registry import Figure, Measure, scenario
from equiflock.scenarios.search_control import Stop
from equiflock.senses.graph import components
from equiflock.senses.group_neighbours import has_own_group_majority

SEGREGATED = Outcome.add("SEGREGATED", "every group is in one piece and by itself")
NEAREST_COUNT = 6
"""How many of an agent's nearest neighbours count: as many as an agent touches in a dense flock of the plane."""


def compute_own_group_share(flock: Flock) -> Float64[np.ndarray, " B"]:
    """The share of a flock's agents, (B,), whose nearest neighbours are by majority of their own group.

    The nearest are the six nearest of those within R, or all of these if they are fewer. Whoever has none is not at
    home. Obstacle agents and agents that have failed do not count.
    """
    own_group_share = has_own_group_majority(flock, NEAREST_COUNT)
    return np.asarray(own_group_share.sum(axis=1) / np.maximum(flock.working.sum(axis=1), 1))


def count_group_components(flock: Flock) -> Float64[np.ndarray, " B"]:
    """The number of connected pieces, (B,), that a flock falls into if agents hear only those of their own group."""
    # Groups are put so far apart that nobody hears another group, whatever numbers they have.
    _, numbers = np.unique(flock.groups, return_inverse=True)
    step = np.ptp(flock.positions[..., 0], axis=1, keepdims=True) + 2.0 * flock.comm_radius
    apart = flock.positions.copy()
    apart[..., 0] += numbers.reshape(flock.groups.shape) * step
    alone = Flock.view(apart, *flock.arrays[1:], comm_radius=flock.comm_radius)
    return np.asarray(components(alone).max(axis=1) + 1, np.float64)


def is_segregated(flock: Flock) -> Bool[np.ndarray, " B"]:
    """Whether every group of a flock, (B,), is in one piece, and nobody is a stranger among its nearest neighbours."""
    # The number of groups that there are; whoever does not work is in none.
    groups = np.sort(np.where(flock.working, flock.groups, NO_GROUP), axis=1)
    count = (np.diff(groups, axis=1, prepend=NO_GROUP) > 0).sum(axis=1)
    # Most flocks that are mixed are in too many pieces, which is known sooner.
    whole = np.asarray(count_group_components(flock) == count)
    whole[whole] = compute_own_group_share(flock[whole]) == 1.0
    return whole


def own_group_share(moment: Moment) -> Float64[np.ndarray, " B"]:
    """The share of agents whose nearest neighbours are by majority of their own group, (B,)."""
    return compute_own_group_share(moment.flock)


class UntilSegregated:
    """Ends a flight once its groups have been segregated, without a break, for a while.

    Args:
        hold: for how long, in seconds.
    """

    def __init__(self, hold: float = 1.0) -> None:
        self.hold = check_positive("hold", hold)
        self._segregated_since: Float64[np.ndarray, " B"] | None = None

    def __call__(self, time: float, flock: Flock, flying: Bool[np.ndarray, " B"]) -> Int8[np.ndarray, " B"]:
        """SEGREGATED where a flying flock has been so for long enough."""
        if self._segregated_since is None:
            self._segregated_since = np.full(len(flock), np.inf)
        # The time at which the present state began; infinity where groups are mixed.
        parted = np.zeros(len(flock), bool)
        parted[flying] = is_segregated(flock[flying])
        self._segregated_since = np.where(parted, np.minimum(self._segregated_since, time), np.inf)
        return np.where(flying & (time - self._segregated_since >= self.hold), SEGREGATED, Outcome.FLYING).astype(
            np.int8
        )


@scenario("segregation")
@dataclass(frozen=True)
class SegregationScenario:
    """Agents of two to five groups, mixed at random in a disk and slow, for at most 10 s.

    They have segregated once, for a second, every group has been in one piece, connected within R by agents of its own,
    and nobody's nearest neighbours were by majority of other groups.
    """

    duration: ClassVar[float] = 10.0
    success_outcomes: ClassVar[tuple[Outcome, ...]] = (SEGREGATED,)
    measures: ClassVar[tuple[Measure, ...]] = (own_group_share, "velocity_variance", "component_count")
    figure: ClassVar[Figure] = "endings"

    disk: RandomDisk = field(default_factory=lambda: RandomDisk(agents=50, max_speed=0.5))
    """The initial conditions; the usual ones are 50 agents, and slow."""
    groups: int = 3
    """How many groups there are, from 2 to 5, of sizes that differ by one at most."""
    hold: float = 1.0
    """For how many seconds groups must have been apart."""

    def __post_init__(self) -> None:
        check_disk(self.disk)
        if not 2 <= check_count("groups", self.groups) <= 5:
            raise InputError(f"groups must be from 2 to 5; got {self.groups}")
        if self.disk.agents < 2 * self.groups:
            raise InputError(f"segregation needs two agents or more in each group; got {self.disk.agents} in all")
        check_positive("hold", self.hold)

    def ending(self) -> UntilSegregated:
        """Ends a flight when groups have been apart for a while."""
        return UntilSegregated(self.hold)

    def draw(self, stop: Stop | None = None) -> Flock:
        """Draw the flocks; `stop` ends the search, as for `RandomDisk`."""
        start = self.disk.draw(stop)
        groups = np.empty(start.shape[:2], np.int32)
        for b in range(len(start)):
            # A stream for each flock: flock b is the same however many there are.
            rng = make_rng(self.disk.seed, "segregation", self.disk.split, b)
            groups[b] = rng.permutation(self.disk.agents) % self.groups
        return replace(start, groups=groups)
