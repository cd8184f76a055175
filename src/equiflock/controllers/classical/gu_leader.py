"""Leader-follower flocking after Gu and Wang (2009, "Leader-follower flocking: algorithms and experiments").

A few informed agents steer to a goal; all others know nothing of it. They align, keep apart, and move to the flock's
centre, which they estimate from their neighbours; the informed do the same, and steer besides:

    a_i = - alignment mean_j v_ij - cohesion (r_i - c_i) + separation mean_j s(|r_ij|) r_ij + [i is informed] u_i
    u_i = damping (w_i - v_i), at most `push` in norm,    w_i = - goal_gain (r_i - goal), at most `cruise_speed` in norm

We could not find the paper's text: the form is ours, after what the introduction of the ETDAGNN paper and other works
say of it, and so are all numbers. s is that of Reynolds' separation. c_i is the centre that an agent estimates over K
hops: with z^1_i = r_i - mean_j r_j and z^k_i the mean over neighbours of their z^(k-1) a step before, z^1 + .. + z^K is
r_i minus the mean over neighbours, taken K times, of positions; each hop is a step old.

The informed are followers of group 1, not the ETDAGNN paper's leaders, who hear nobody and keep their velocity. They
need their velocity and their place relative to the goal, which are no observations, so the law is privileged. On
robots, only the informed need to know where they are; all others fly by what they hear. Everybody averages over its
neighbours, so a flock at rest is about two R wide however many it has: the law is meant for some hundred agents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from jaxtyping import Bool, Float64

from equiflock.controllers.classical.pair_law import ChannelSums, PairLaw, clamp_norm
from equiflock.controllers.registry import controller
from equiflock.features import Channel, Senses, format_feature_name
from equiflock.flock import FOLLOWER, Flock, Observations, Vectors
from equiflock.runtime.checks import InputError, check_count, check_positive, is_finite, shorten_repr

Goal: TypeAlias = str | float | Sequence[float] | None
"""A point, as numbers or as text with commas; None for the usual one."""

GOAL_DISTANCE = 5.0
"""How far the usual goal is from the origin, along the x axis, in communication radii."""
INFORMED_GROUP = 1
"""The group of informed agents."""
INFORMED_SHARE = 0.1
"""The share of followers that are informed if no agent is in that group."""


@controller("gu-leader")
@dataclass(frozen=True)
class GuLeader(PairLaw):
    """A few informed agents, group 1, steer to a goal; the others align, keep apart, and stay with the flock's centre.

    If no follower is in group 1, the first tenth of them are informed, at least one.
    """

    alignment: float = 20.0
    """How fast a velocity becomes that of its neighbours, per second."""
    cohesion: float = 20.0
    """The pull towards the estimated centre of the flock, per distance."""
    separation: float = 20.0
    """The push from those that are too near."""
    distance: float = 1.0
    """Those nearer than this are too near."""
    hops: int = 3
    """K: over how many hops an agent estimates the flock's centre."""
    goal: Goal = None
    """Where the informed steer to, such as 5,0, in space with zeros for what is missing and in the law's own units; 5 R
    to the right of the origin if left out."""
    goal_gain: float = 1.0
    """The speed that the informed want per distance from the goal, per second."""
    cruise_speed: float = 1.0
    """The largest speed that the informed want."""
    damping: float = 10.0
    """How fast the velocity of the informed becomes the one they want, per second."""
    push: float = 15.0
    """The largest acceleration by which the informed steer, small enough that the others can hold them."""

    privileged: ClassVar[Literal[True]] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("hops", self.hops)
        check_positive("push", self.push)
        check_positive("cruise_speed", self.cruise_speed)
        if self.goal is not None:
            object.__setattr__(self, "goal", _parse_point(self.goal))

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The mean of v_ij, of r_ij, and of what pushes apart."""
        apart = format_feature_name("separation", distance=self.distance)
        return ("velocity", "mean"), ("position", "mean"), (apart, "mean")

    @property
    def senses(self) -> Senses:
        """The channels over K hops."""
        return Senses(self.channels, self.hops)

    def compute_acceleration(self, sums: ChannelSums) -> Vectors:
        """Alignment, towards the centre, and apart; the second of the sums is r_i minus the centre."""
        return -self.alignment * sums[:, :, 0] - self.cohesion * sums[:, :, 1] + self.separation * sums[:, :, 2]

    def __call__(self, flock: Flock, observations: Observations) -> Vectors:
        """Accelerations (B, N, D) from observations (B, N, K, 3, D), and for the informed from where they are."""
        if observations.shape != (*flock.shape[:2], self.hops, len(self.channels), flock.shape[2]):
            raise InputError(f"observations must be those of the flock, {flock.shape}; got {observations.shape}")
        sums = observations[:, :, 0].astype(np.float64)
        # The sum over hops telescopes to r_i minus the centre of those up to K hops away.
        sums[:, :, 1] = observations[:, :, :, 1].sum(axis=2, dtype=np.float64)
        compute_steering = np.where(self.find_informed(flock)[..., None], self.compute_steering(flock), 0.0)
        return clamp_norm(self.compute_acceleration(sums) + compute_steering, self.clamp)

    def compute_steering(self, flock: Flock) -> Vectors:
        """By which the informed steer: towards the velocity that brings them to the goal and to rest there."""
        wanted = -clamp_norm(self.goal_gain * (flock.positions - self.resolve_goal(flock)), self.cruise_speed)
        return clamp_norm(self.damping * (wanted - flock.velocities), self.push)

    def resolve_goal(self, flock: Flock) -> Float64[np.ndarray, " D"]:
        """The goal, (D,), for flocks of this dimension and R."""
        D = flock.shape[2]
        given = (GOAL_DISTANCE * flock.comm_radius,) if self.goal is None else _parse_point(self.goal)
        if len(given) > D:
            raise InputError(
                f"goal must have at most {D} numbers for flocks in {D} dimensions; got {shorten_repr(given)}"
            )
        return np.array([*given, *[0.0] * (D - len(given))])

    @staticmethod
    def find_informed(flock: Flock) -> Bool[np.ndarray, "B N"]:
        """Who is informed: the followers of group 1, or the first tenth of all where there are none."""
        follows = flock.roles == FOLLOWER
        named = follows & (flock.groups == INFORMED_GROUP)
        # Followers are counted from 1 in the order of their numbers.
        most = np.maximum(INFORMED_SHARE * follows.sum(axis=1, keepdims=True), 1.0)
        first = follows & (follows.cumsum(axis=1) <= most)
        return np.asarray(np.where(named.any(axis=1, keepdims=True), named, first))


def _parse_point(goal: Goal) -> tuple[float, ...]:
    """A goal as numbers, or a clear error."""
    words = goal.split(",") if isinstance(goal, str) else [goal] if is_finite(goal) else goal
    try:
        point = tuple(float(word) for word in words)  # type: ignore[union-attr, arg-type]
    except (OverflowError, TypeError, ValueError):
        point = ()
    if not 1 <= len(point) <= 3 or not all(map(is_finite, point)):
        raise InputError(f"goal must be a point of finite numbers, such as 5,0 or (5, 0); got {shorten_repr(goal)}")
    return point
