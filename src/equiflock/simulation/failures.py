"""Agents that fail in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from jaxtyping import Bool, Int64
from numpy.typing import NDArray

from equiflock.flock import FOLLOWER, Condition, Flock
from equiflock.runtime.checks import InputError, check_choice, check_count, is_finite, shorten_repr
from equiflock.runtime.hashing import hash_combine, hash_seed, hash_to_uniform
from equiflock.runtime.jit import Array, Index, kernel

NEVER = np.iinfo(np.int64).max
"""The step at which an agent fails that never does."""
CHOICE_INDEX, WAIT_INDEX = 0, 1
"""What two random numbers of an agent are about: whether it is among those that fail at a time, and when it fails by
itself."""
ROUNDING_TOLERANCE = 1e-9
"""How far above a whole number of steps, as a share of it, a time may be by rounding alone."""

FailureKind: TypeAlias = Literal["silent", "stopped", "drifting"]


@dataclass(frozen=True)
class Failures:
    """Followers that fail, for good: so many at a time, or any at a rate. By default none."""

    kind: FailureKind = "stopped"
    """What a failed agent does: "silent" sends nothing and flies on as before; "stopped" sends nothing and stands
    still, an obstacle that nobody announced; "drifting" hears nobody and keeps its velocity, and still sends."""
    agents: int = 0
    """How many followers of each flock fail at `time`."""
    time: float = 0.0
    """When they fail, in seconds."""
    rate: float = 0.0
    """Besides, each follower fails at this rate per second, at any time: after 1 / rate seconds on average."""
    seed: int = 0
    """Seeds who fails, and when."""

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, get_args(FailureKind))
        check_count("agents", self.agents, least=0)
        check_count("seed", self.seed, least=0)
        for name in ("time", "rate"):
            if not (is_finite(getattr(self, name)) and getattr(self, name) >= 0.0):
                raise InputError(
                    f"{name} must be a finite number of at least 0; got {shorten_repr(getattr(self, name))}"
                )

    @property
    def is_empty(self) -> bool:
        """Whether nobody ever fails."""
        return self.agents == 0 and self.rate == 0.0

    @property
    def condition(self) -> Condition:
        """The condition of agents that have failed."""
        return Condition[self.kind.upper()]

    def compute_failure_step(self, time_step: float) -> int:
        """The step at which `agents` fail: the first one that is not before `time`."""
        return int(_round_up_to_steps(np.array(self.time), time_step))

    def draw_failure_steps(self, flock: Flock, time_step: float) -> Int64[np.ndarray, "B N"]:
        """The step at which each agent fails, (B, N); `NEVER` for those that do not.

        It is a function of the seed, the number of the flock in its batch and that of the agent in its flock. Only
        followers that work can fail.

        Args:
            flock: the agents at t = 0.
            time_step: dt, in seconds.
        """
        able = (flock.roles == FOLLOWER) & (flock.conditions == Condition.WORKING)
        fewest = able.sum(axis=1).min()
        if self.agents > fewest:
            raise InputError(f"failures.agents must be at most the followers of a flock, {fewest}; got {self.agents}")
        chances = np.empty((*able.shape, 2))
        _draw_chances(self.seed, chances)
        found = np.full(able.shape, NEVER)
        # So many at a time: those with the least numbers. Others have a larger one, and are never among them.
        if self.agents > 0:
            first = np.argsort(np.where(able, chances[..., CHOICE_INDEX], 1.0), axis=1, kind="stable")[:, : self.agents]
            np.put_along_axis(found, first, self.compute_failure_step(time_step), axis=1)
        # At a rate: at a time of the exponential distribution, or before it with the others.
        if self.rate > 0.0:
            waits = -np.log1p(-chances[..., WAIT_INDEX]) / self.rate
            found = np.where(able, np.minimum(found, _round_up_to_steps(waits, time_step)), NEVER)
        return found

    def make_schedule(self, flock: Flock, time_step: float) -> FailureSchedule:
        """What a flight that begins with this flock asks at every step."""
        return FailureSchedule(self.condition, self.draw_failure_steps(flock, time_step))


class FailureSchedule:
    """The failures of a flock in flight.

    Args:
        condition: that of agents that have failed.
        steps: (B, N), when each agent fails, `NEVER` if it does not.
    """

    def __init__(self, condition: Condition, steps: Int64[np.ndarray, "B N"]) -> None:
        self.condition = condition
        self.steps = steps

    def apply_failures(self, step: int, flying: Bool[np.ndarray, " B"], state: tuple[NDArray[Any], ...]) -> bool:
        """Let agents fail whose step this is, in place; whether there was one.

        Args:
            step: the number of the step.
            flying: (B,), which flocks fly; the others stay as they are.
            state: the arrays of the flock, in the order of `Flock.arrays`.
        """
        _, velocities, roles, _, _, conditions = state
        due = (self.steps == step) & flying[:, None]
        # Whoever changed the flock in flight may have made them leaders.
        due &= (roles == FOLLOWER) & (conditions == Condition.WORKING)
        conditions[due] = self.condition
        if self.condition == Condition.STOPPED:
            velocities[due] = 0.0
        return bool(due.any())

    def replace(self, flock: Flock, keep: Bool[np.ndarray, " N"]) -> None:
        """Go on with another flock: its first agents are the kept ones, and new agents do not fail."""
        kept = self.steps[:, keep]
        self.steps = np.full(flock.shape[:2], NEVER)
        self.steps[:, : kept.shape[1]] = kept


def _round_up_to_steps(times: Array, time_step: float) -> Array:
    """The first steps that are not before these times."""
    counts = np.ceil(times / time_step * (1.0 - ROUNDING_TOLERANCE))
    # A float of this size would not fit into an integer.
    return np.where(counts < 2.0**62, np.minimum(counts, 2.0**62).astype(np.int64), NEVER)


@kernel
def _draw_chances(seed: Index, chances: Array) -> None:
    """Numbers from 0 to below 1, (B, N, 2), each a hash of the seed, flock, agent and what it is about."""
    for b in range(chances.shape[0]):
        for i in range(chances.shape[1]):
            h = hash_combine(hash_combine(hash_seed(seed), b), i)
            for which in range(chances.shape[2]):
                chances[b, i, which] = hash_to_uniform(hash_combine(h, which))
