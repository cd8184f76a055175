"""Leader-follower flocking after Gu and Wang (2009, "Leader-follower flocking: algorithms and experiments").

A few informed agents steer to a goal that the others do not know. All agents align, keep their distance, and move to
the flock's centre, which they estimate from their neighbours; informed agents also steer:

    a_i = - alignment mean_j v_ij - cohesion (r_i - c_i) + separation mean_j s(|r_ij|) r_ij + [i is informed] u_i
    u_i = damping (w_i - v_i), at most `push` in norm,    w_i = - goal_gain (r_i - goal), at most `cruise_speed` in norm

The text of the paper was not available: the equations follow its descriptions in the introduction of the ETDAGNN paper
and in other works, and all parameter values are choices of this implementation. s is that of Reynolds' separation. c_i
is the centre that an agent estimates over K hops: with z^1_i = r_i - mean_j r_j and z^k_i the mean over neighbours of
their z^(k-1) one step before, z^1 + .. + z^K is r_i minus the K-fold mean over neighbours of positions; each hop is one
step old.

Informed agents are followers of group 1, not the leaders of the ETDAGNN paper, who receive no messages and keep their
velocity. They need their velocity and their position relative to the goal, which are no observations, so the law is
privileged. On robots, only informed agents need to know their position; the others need their messages only. As all
agents average over neighbours, a flock at rest is about 2 R wide at any size: the law is meant for about 100 agents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Float64

from equiflock._runtime.checks import InputError, check_count, check_positive, is_finite, shorten_repr
from equiflock._runtime.specs import format_spec
from equiflock.controllers.classical.pair_law import ChannelSums, PairLaw, Vector, clamp_norm, clamp_terms
from equiflock.controllers.registry import controller
from equiflock.features import Channel, Senses
from equiflock.flock import FOLLOWER, Flock, Observations, Vectors

Goal: TypeAlias = str | float | Sequence[float] | None
"""A point, as numbers or as text with commas; None for the default."""
GOAL_DISTANCE = 5.0
"""Distance of the default goal from the origin, along the x axis, in communication radii."""
INFORMED_GROUP = 1
"""Group of informed agents."""
INFORMED_SHARE = 0.1
"""Share of followers that are informed if none is in that group."""


@controller("gu-leader")
@dataclass(frozen=True)
class GuLeader(PairLaw):
    """Informed agents (group 1) steer to a goal; the others align, keep a distance and stay near the flock's centre.

    If no follower is in group 1, the first tenth of them, at least one, is informed.
    """

    alignment: float = 20.0
    """Rate of alignment with neighbours, per second."""
    cohesion: float = 20.0
    """Gain of the pull towards the estimated centre of the flock, per second squared."""
    separation: float = 20.0
    """Gain of the repulsion from agents that are closer than `distance`."""
    distance: float = 1.0
    """Distance below which agents repel each other."""
    hops: int = 3
    """K, the number of hops over which an agent estimates the flock's centre."""
    goal: Goal = None
    """Goal of the informed agents, such as 5,0, in the law's own units; missing coordinates are 0. Default: 5 R from
    the origin along the x axis."""
    goal_gain: float = 1.0
    """Desired speed of informed agents per distance from the goal, per second."""
    cruise_speed: float = 1.0
    """Largest desired speed of informed agents."""
    damping: float = 10.0
    """Rate at which informed agents approach their desired velocity, per second."""
    push: float = 15.0
    """Largest steering acceleration, small enough that the other agents keep up with the informed ones."""

    privileged: ClassVar[Literal[True]] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("hops", self.hops)
        check_positive("push", self.push)
        check_positive("cruise_speed", self.cruise_speed)
        if self.goal is not None:
            object.__setattr__(self, "goal", _parse_point(self.goal))

    term_names: ClassVar[tuple[str, ...]] = ("alignment", "cohesion", "separation")

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Means of v_ij, of r_ij and of the separation."""
        separation = format_spec("separation", distance=self.distance)
        return ("velocity", "mean"), ("position", "mean"), (separation, "mean")

    @property
    def senses(self) -> Senses:
        """The channels over K hops."""
        return Senses(self.channels, self.hops)

    def compute_acceleration(self, sums: ChannelSums) -> Vectors:
        """Return alignment, cohesion and separation; channel 1 of `sums` must be r_i minus the centre."""
        return -self.alignment * sums[:, :, 0] - self.cohesion * sums[:, :, 1] + self.separation * sums[:, :, 2]

    def __call__(self, flock: Flock, observations: Observations) -> Vectors:
        """Return accelerations (B, N, D) from observations (B, N, K, 3, D); informed agents also need the flock."""
        if observations.shape != (*flock.shape[:2], self.hops, len(self.channels), flock.shape[2]):
            expected = f"(B, N, {self.hops}, {len(self.channels)}, D) with (B, N, D) = {flock.shape}"
            raise InputError(f"observations must have the shape {expected}, as the flock; got {observations.shape}")
        sums = _sum_hops(observations)
        steering = np.where(self.find_informed(flock)[..., None], self.compute_steering(flock), 0.0)
        return clamp_norm(self.compute_acceleration(sums) + steering, self.clamp)

    def compute_terms(
        self, observation: Float[np.ndarray, "K C D"], flock: Flock | None, agent: int
    ) -> dict[str, Vector]:
        """Return alignment, cohesion and separation of a follower, and its steering if it is informed."""
        assert flock is not None
        terms = self.split_acceleration(_sum_hops(observation[None, None]))
        if self.find_informed(flock)[0, agent]:
            terms["steering"] = self.compute_steering(flock)[0, agent]
        return clamp_terms(terms, self.clamp)

    def compute_steering(self, flock: Flock) -> Vectors:
        """Return the steering u (B, N, D) of all agents, as if all were informed."""
        desired = -clamp_norm(self.goal_gain * (flock.positions - self.resolve_goal(flock)), self.cruise_speed)
        return clamp_norm(self.damping * (desired - flock.velocities), self.push)

    def resolve_goal(self, flock: Flock) -> Float64[np.ndarray, " D"]:
        """Return the goal (D,), missing coordinates as 0; the default is 5 R along the first axis."""
        D = flock.shape[2]
        point = (GOAL_DISTANCE * flock.comm_radius,) if self.goal is None else _parse_point(self.goal)
        if len(point) > D:
            raise InputError(
                f"goal must have at most {D} numbers for flocks in {D} dimensions; got {shorten_repr(point)}"
            )
        return np.array([*point, *[0.0] * (D - len(point))])

    @staticmethod
    def find_informed(flock: Flock) -> Bool[np.ndarray, "B N"]:
        """Return the mask of informed agents: in each flock the followers of group 1."""
        followers = flock.roles == FOLLOWER
        group = followers & (flock.groups == INFORMED_GROUP)
        # Followers are counted from 1 in the order of their indices.
        count = np.maximum(INFORMED_SHARE * followers.sum(axis=1, keepdims=True), 1.0)
        first = followers & (followers.cumsum(axis=1) <= count)
        return np.asarray(np.where(group.any(axis=1, keepdims=True), group, first))


def _sum_hops(observations: Observations) -> ChannelSums:
    """Return the sums (B, N, C, D) of the law: hop 1, but positions over all hops, r_i minus the estimated centre."""
    sums = observations[:, :, 0].astype(np.float64)
    # The sum over hops telescopes.
    sums[:, :, 1] = observations[:, :, :, 1].sum(axis=2, dtype=np.float64)
    return sums


def _parse_point(goal: Goal) -> tuple[float, ...]:
    """Return a goal as a tuple; raise InputError if it is not one to three finite numbers."""
    words = goal.split(",") if isinstance(goal, str) else [goal] if is_finite(goal) else goal
    try:
        point = tuple(float(word) for word in words)  # type: ignore[union-attr, arg-type]
    except (OverflowError, TypeError, ValueError):
        point = ()
    if not 1 <= len(point) <= 3 or not all(map(is_finite, point)):
        raise InputError(f"goal must be a point of finite numbers, such as 5,0 or (5, 0); got {shorten_repr(goal)}")
    return point
