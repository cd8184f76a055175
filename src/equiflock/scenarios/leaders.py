"""Flocks with leaders (section 5 of the paper, "Leader following")."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, get_args

import numpy as np
from jaxtyping import Float64

from equiflock._runtime.checks import InputError, check_choice, check_count
from equiflock._runtime.randomness import make_rng
from equiflock.flock import Flock, Role
from equiflock.scenarios.random_disk import RandomDisk, Stop, check_disk
from equiflock.scenarios.registry import Measure, scenario
from equiflock.scenarios.success_measure import SuccessMeasure, compute_norms, divide

LeaderVelocity = Literal["mean", "first", "fresh", "flock", "diagonal"]


def compute_leader_velocity_distance(flock: Flock) -> Float64[np.ndarray, " B"]:
    """Return the mean of |v_i - v_L| over working agents, (B,), v_L as for the metric; NaN without working leaders."""
    leads = flock.working & (flock.roles == Role.LEADER)
    count = np.where(leads.any(axis=1), leads.sum(axis=1), np.nan)
    leader_velocity = flock.velocities.sum(axis=1, where=leads[..., None]) / count[:, None]
    distances = compute_norms(flock.velocities - leader_velocity[:, None])
    return divide(distances.sum(axis=1, where=flock.working), flock.working.sum(axis=1))


@scenario("leaders")
@dataclass(frozen=True)
class LeaderFollowing:
    """Flocks of `disk` in which randomly drawn leaders ignore all messages and keep one common velocity.

    The paper does not specify that velocity: see `leader_velocity`.
    """

    split: ClassVar[str] = "leader following"
    duration: ClassVar[float] = 3.0
    time_step: ClassVar[float] = 1e-3
    measures: ClassVar[tuple[Measure, ...]] = (
        "mean_leader_velocity_distance",
        "mean_acceleration_norm",
        "component_count",
    )
    success_measure: ClassVar[SuccessMeasure] = SuccessMeasure(
        "{} from the leaders' velocity", compute_leader_velocity_distance, "number"
    )

    disk: RandomDisk = field(default_factory=RandomDisk)
    """Initial conditions of the flocks."""
    leaders: int = 2
    """Number of leaders."""
    leader_velocity: LeaderVelocity = "mean"
    """The leaders' common velocity: the mean of their initial velocities, that of the first leader, a fresh draw by the
    disk's rule `velocities`, the flock's mean, or on the diagonal: (u, u) with one u uniform in
    [-max_speed, max_speed], as in the public code of the baseline."""

    def __post_init__(self) -> None:
        check_disk(self.disk)
        check_count("leaders", self.leaders)
        check_choice("leader_velocity", self.leader_velocity, get_args(LeaderVelocity))
        if self.leaders >= self.disk.agents:
            raise InputError(f"leaders must be fewer than agents = {self.disk.agents}; got {self.leaders}")

    def draw(self, stop: Stop | None = None) -> Flock:
        """Draw the flocks and their leaders, who get one common velocity."""
        start = self.disk.draw(stop)
        velocities, roles = start.velocities.copy(), start.roles.copy()
        for b in range(len(start)):
            # A random stream for each flock. All numbers are drawn in any case, so that the leaders are the same for
            # every `leader_velocity`.
            rng = make_rng(self.disk.seed, "leaders", self.disk.split, b)
            leaders = rng.choice(self.disk.agents, self.leaders, replace=False)
            fresh = self.disk.draw_velocities(rng, 1)[0]
            diagonal = rng.uniform(-self.disk.max_speed, self.disk.max_speed)
            roles[b, leaders] = Role.LEADER
            velocities[b, leaders] = {
                "mean": velocities[b, leaders].mean(axis=0),
                "first": velocities[b, leaders[0]].copy(),
                "fresh": fresh,
                "flock": velocities[b].mean(axis=0),
                "diagonal": np.full(start.shape[2], diagonal),
            }[self.leader_velocity]
        return replace(start, velocities=np.ascontiguousarray(velocities), roles=roles)
