"""Failures of agents in flight: who fails, how and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from jaxtyping import Bool, Int64

from equiflock._runtime.checks import InputError, check_choice, check_count, shorten_repr
from equiflock._runtime.jit import Array, Index, kernel
from equiflock._runtime.randomness import hash_combine, hash_seed, hash_to_uniform
from equiflock.bodies.limits import check_not_negative
from equiflock.flock import FOLLOWER, Condition, Flock, FlockArrays

NEVER = np.iinfo(np.int64).max
"""Failure step of an agent that never fails."""
CHOICE_INDEX, WAIT_INDEX = 0, 1
"""Indices of an agent's two random numbers: for the choice of the agents that fail at `time`, and for the waiting time
until a failure at `rate`."""
ROUNDING_TOLERANCE = 1e-9
"""Relative rounding error by which a time may exceed a whole number of steps."""

FailureKind: TypeAlias = Literal["silent", "stopped", "drifting"]


@dataclass(frozen=True)
class Failures:
    """Permanent failures of followers: a given number at a given time, or each at a rate. Default: none."""

    kind: FailureKind = "stopped"
    """Behaviour of a failed agent: "silent" sends nothing and flies on as before; "stopped" sends nothing and stands
    still, an unannounced obstacle; "drifting" receives nothing and keeps its velocity, and still sends."""
    agents: int = 0
    """Number of followers of each flock that fail at `time`."""
    time: float = 0.0
    """Time at which they fail, in seconds."""
    rate: float = 0.0
    """In addition, the failure rate of each follower per second: it fails after 1 / rate seconds on average."""
    seed: int = 0
    """Random seed of the choice of agents and of the times."""

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, get_args(FailureKind))
        check_count("agents", self.agents, least=0)
        check_count("seed", self.seed, least=0)
        check_not_negative(self, "time", "rate")

    @property
    def is_empty(self) -> bool:
        """Whether no agent ever fails."""
        return self.agents == 0 and self.rate == 0.0

    def compute_failure_step(self, time_step: float) -> int:
        """Return the step at which `agents` fail: the first one not before `time`."""
        return int(_round_up_to_steps(np.array(self.time), time_step))

    def draw_failure_steps(
        self, flock: Flock, time_step: float, flock_ids: Int64[np.ndarray, " B"] | None = None, start_step: int = 0
    ) -> Int64[np.ndarray, "B N"]:
        """Return the step at which each agent fails, (B, N); `NEVER` for those that do not.

        It is a function of the seed, the index of the flock in its batch, that of the agent in its flock, and the step
        at which the flock starts. Only working followers can fail. Raise InputError if a flock has fewer than `agents`
        of them.

        Args:
            flock: the agents at their start.
            time_step: dt, in seconds.
            flock_ids: (B,), indices of these flocks in their batch; default: 0 .. B - 1.
            start_step: the step of the flight at which they start.
        """
        can_fail = (flock.roles == FOLLOWER) & (flock.conditions == Condition.WORKING)
        fewest = can_fail.sum(axis=1).min()
        if self.agents > fewest:
            raise InputError(f"failures.agents must be at most the followers of a flock, {fewest}; got {self.agents}")
        chances = np.empty((*can_fail.shape, 2))
        _draw_chances(self.seed, start_step, np.arange(len(flock)) if flock_ids is None else flock_ids, chances)
        steps = np.full(can_fail.shape, NEVER)
        # At `time`: the followers with the smallest random numbers, which are below 1.
        if self.agents > 0:
            order = np.argsort(np.where(can_fail, chances[..., CHOICE_INDEX], 1.0), axis=1, kind="stable")
            np.put_along_axis(steps, order[:, : self.agents], self.compute_failure_step(time_step), axis=1)
        # At `rate`: after an exponentially distributed time, unless the agent fails earlier at `time`.
        if self.rate > 0.0:
            waits = -np.log1p(-chances[..., WAIT_INDEX]) / self.rate
            steps = np.where(can_fail, np.minimum(steps, _round_up_to_steps(waits, time_step)), NEVER)
        return np.where(steps < NEVER - start_step, steps + start_step, NEVER)

    def make_schedule(self, flock: Flock, time_step: float) -> FailureSchedule:
        """Return the schedule of a flight that starts with this flock."""
        return FailureSchedule(self, time_step, self.draw_failure_steps(flock, time_step))


NO_FAILURES = Failures()


def check_failures(failures: object) -> Failures:
    """Return `failures`; raise InputError unless it is a Failures."""
    if not isinstance(failures, Failures):
        raise InputError(
            f"failures must be a Failures, such as equiflock.Failures(agents=5, time=1.0); got {shorten_repr(failures)}"
        )
    return failures


@dataclass
class FailureSchedule:
    """The failures of a flight."""

    failures: Failures
    time_step: float
    """dt, in seconds."""
    steps: Int64[np.ndarray, "B N"]
    """Step of the flight at which each agent fails, `NEVER` if it does not."""

    def apply_failures(self, step: int, flying: Bool[np.ndarray, " B"], state: FlockArrays) -> bool:
        """Apply the failures due at exactly this step to the writable state, in place; return whether there are any.

        Only working followers of flying flocks fail: their condition changes, and stopped agents get zero velocity.
        """
        due = (self.steps == step) & flying[:, None]
        # A change of the flock in flight may have made some of these agents leaders.
        due &= (state.roles == FOLLOWER) & (state.conditions == Condition.WORKING)
        condition = Condition[self.failures.kind.upper()]
        state.conditions[due] = condition
        if condition == Condition.STOPPED:
            state.velocities[due] = 0.0
        return bool(due.any())

    def replace(self, flock: Flock, keep: Bool[np.ndarray, " N"]) -> None:
        """Continue with another flock, whose first agents are those in the mask `keep` (N,); new agents never fail."""
        kept_steps = self.steps[:, keep]
        self.steps = np.full(flock.shape[:2], NEVER)
        self.steps[:, : kept_steps.shape[1]] = kept_steps

    def restart(self, flock: Flock, mask: Bool[np.ndarray, " B"], start_step: int) -> None:
        """Draw new failures for the flocks of a mask, which start at this step with the agents of `flock`."""
        ids = np.flatnonzero(mask)
        self.steps[mask] = self.failures.draw_failure_steps(flock, self.time_step, ids, start_step)


def _round_up_to_steps(times: Array, time_step: float) -> Array:
    """Return the first steps that are not before these times, up to rounding errors; `NEVER` beyond 2^62 steps."""
    counts = np.ceil(times / time_step * (1.0 - ROUNDING_TOLERANCE))
    # A float of this size does not fit into an integer.
    return np.where(counts < 2.0**62, np.minimum(counts, 2.0**62).astype(np.int64), NEVER)


@kernel
def _draw_chances(seed: Index, start_step: Index, flock_ids: Array, chances: Array) -> None:
    """Write uniform numbers in [0, 1) into chances (B, N, 2), each a hash of seed, flock, agent and index.

    Flocks that start later in a flight have other numbers.
    """
    for b in range(chances.shape[0]):
        flock = hash_combine(hash_seed(seed), flock_ids[b])
        if start_step > 0:
            flock = hash_combine(flock, -start_step)  # below 0, unlike an agent's index
        for i in range(chances.shape[1]):
            h = hash_combine(flock, i)
            for which in range(chances.shape[2]):
                chances[b, i, which] = hash_to_uniform(hash_combine(h, which))
