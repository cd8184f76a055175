"""Many flocks as arrays: the environment that the interfaces of PettingZoo and TorchRL share."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError, check_choice, check_count, check_positive
from equiflock._runtime.imports import require_torch
from equiflock._runtime.memory import as_read_only
from equiflock._runtime.randomness import make_rng
from equiflock.features import Senses, paper_senses
from equiflock.flock import FOLLOWER, Flock
from equiflock.outcomes import Outcome
from equiflock.protocols import LastStep, Moment
from equiflock.rl.rewards import Reward, make_reward
from equiflock.scenarios.registry import Scenario, build_flight_options, make_scenario
from equiflock.simulation.environment import DEFAULT_ENVIRONMENT, Environment
from equiflock.simulation.flight import Flight, check_step_accelerations
from equiflock.simulation.flight_builder import flight
from equiflock.simulation.simulate import count_steps

ArrayKind = Literal["numpy", "torch"]
SPLIT = "train"
"""Set of initial conditions: not the one in which `evaluate` and `judge` test."""
MAX_LISTED_FLOCKS = 5
"""Most flocks that an error lists."""


def get_acceleration_bound(environment: Environment) -> float:
    """Return the largest norm of an acceleration that the body executes; infinity without a limit."""
    limit = getattr(environment.body, "max_acceleration", None)
    return math.inf if limit is None else float(limit)


def concatenate_state(flock: Flock) -> Float32[np.ndarray, "B N 2*D"]:
    """Return positions and velocities of all agents."""
    return np.concatenate([flock.positions, flock.velocities], axis=2, dtype=np.float32, casting="same_kind")


class VectorStep(NamedTuple):
    """Result of a step of B flocks; the arrays are the caller's, or torch tensors if so requested."""

    observations: Any
    """(B, N, K, C, D) float32. With automatic restarts, those of restarted flocks are of their new start."""
    rewards: Any
    """(B, N) float32; 0 for agents that did not obey commands in the step."""
    active: Any
    """(B, N), agents that obey commands in the next step: working and silent followers of flocks that fly."""
    terminated: Any
    """(B,), flocks that the scenario's ending has ended in this step."""
    truncated: Any
    """(B,), flocks that have reached the duration in this step and have not ended."""
    info: dict[str, Any]
    """"outcomes" (B,), codes of `Outcome`; if flocks restarted, also "final_observations" (B, N, K, C, D), from before
    the restart."""


class VectorFlocks:
    """B flocks of a scenario in flight, which the caller commands step by step.

        flocks = VectorFlocks("flocking", flocks=32, agents=100, reward="variance+0.01*effort")
        observations, info = flocks.reset()
        for _ in range(1000):
            observations, rewards, active, terminated, truncated, info = flocks.step(policy(observations))

    Steps have the same bits as those of `equiflock.flight`. A restart changes no bit of the other flocks, and the start
    of an episode depends only on the seed, the flock's index and the number of the episode.

    Args:
        scenario: a scenario with or without options, such as "leaders:leaders=2".
        flocks: B.
        agents: N; default: that of the scenario.
        environment: radio, body and failures, which have their own seeds; default: the paper's.
        reward: a name, a weighted sum such as "variance+0.1*effort", or a function of the moment after a step
            (see `equiflock.reward`).
        senses: observations of the agents; default: `paper_senses()`.
        seed: random seed of the starts.
        duration: of an episode, in seconds; default: that of the scenario.
        time_step: dt, in seconds.
        auto_restart: whether flocks that end begin a new episode in the same step; otherwise `reset(mask)` begins it,
            and `step` raises an error before that.
        arrays: kind of the results, "numpy" or "torch". `step` takes both; nothing is copied from one to the other.
    """

    def __init__(
        self,
        scenario: str = "flocking",
        flocks: int = 1,
        agents: int | None = None,
        *,
        environment: Environment | None = None,
        reward: str | Reward = "variance",
        senses: Senses | None = None,
        seed: int = 0,
        duration: float | None = None,
        time_step: float = 0.01,
        auto_restart: bool = True,
        arrays: ArrayKind = "numpy",
    ) -> None:
        self.scenario = scenario
        self._options: dict[str, Any] = {} if agents is None else {"agents": check_count("agents", agents)}
        self.environment = DEFAULT_ENVIRONMENT if environment is None else environment
        self.senses = paper_senses() if senses is None else senses
        self.seed = check_count("seed", seed, least=0)
        self.time_step = check_positive("time_step", time_step)
        self.auto_restart = auto_restart
        self._reward = make_reward(reward)
        self._use_torch = check_choice("arrays", arrays, ("numpy", "torch")) == "torch"
        if self._use_torch:
            require_torch("arrays='torch'")
        self._episodes = np.zeros(check_count("flocks", flocks), np.int64)
        first = self._make_scenario(0)
        self._rules = first
        self.duration = first.duration if duration is None else duration
        self.steps = count_steps(self.duration, time_step)
        """Steps of an episode."""
        self._starts: Flock | None = self._draw_starts(np.arange(flocks))
        self.shape = self._starts.shape
        """(B, N, D)."""
        self._flight: Flight | None = None
        # A flight checks its parts, such as the environment, before the first reset.
        self._make_flight(self._starts)
        self.environment.check_duration(self.duration)
        self._moment: Moment | None = None
        self._active = np.zeros(self.shape[:2], bool)
        self._all_active = False
        self._ended = np.zeros(flocks, bool)
        self._any_ended = False
        self._next_end = 0
        """Step of the flight before which no flock reaches the end of its episode."""

    @property
    def observation_shape(self) -> tuple[int, int, int]:
        """(K, C, D), of one agent."""
        return self.senses.hops, self.senses.width, self.shape[2]

    @property
    def moment(self) -> Moment:
        """The present moment, valid until the next step; raise InputError before the first reset."""
        if self._moment is None:
            raise InputError("there is no flock in flight yet: call reset() first")
        return self._moment

    @property
    def active(self) -> Bool[np.ndarray, "B N"]:
        """(B, N), agents that obey commands in the next step, none before the first reset."""
        return as_read_only(self._active)

    def reset(self, mask: Any = None, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode of all flocks, or of those of a mask; return observations and an info dict.

        Observations are (B, N, K, C, D), "active" in the dict is as in `VectorStep`. Raise InputError if the mask is no
        mask of the flocks.

        Args:
            mask: (B,), the flocks that begin anew; the others keep their bits.
            seed: replaces the seed, and all flocks begin their first episode, at step 0 of a new flight.
        """
        if self._flight is None or seed is not None:
            if mask is not None and not np.asarray(mask).all():
                raise InputError("the first reset, and one with a seed, begin all flocks: omit mask")
            self._begin_flight(seed)
        else:
            self._restart(self._check_mask(mask))
        return self._convert(self.moment.observations.copy()), {"active": self._convert(self._active.copy())}

    def step(self, accelerations: Any) -> VectorStep:
        """Execute a step with these accelerations (B, N, D), those of agents that do not obey commands ignored.

        Raise InputError before the first reset, if a flock has ended and has not been reset, or if the accelerations
        are not finite numbers of that shape.
        """
        before, loop = self.moment, self._flight
        assert loop is not None
        if self._any_ended:
            which = np.flatnonzero(self._ended).tolist()
            listed = ", ".join(map(str, which[:MAX_LISTED_FLOCKS])) + (", .." if len(which) > MAX_LISTED_FLOCKS else "")
            raise InputError(f"step() needs flocks that fly, and {listed} of {len(self)} have ended: call reset(mask)")
        # A reward reads the moment before only if the step will be executed.
        if self._reward.reads_before:
            accelerations = check_step_accelerations(accelerations, self.shape)
            self._reward.begin_step(before)
        active, all_active, uses_last_step = self._active, self._all_active, self._reward.uses_last_step
        # The flight overwrites the arrays of the moment before.
        velocities = before.flock.velocities.copy() if uses_last_step else None
        moment = after = loop.step(accelerations)
        if velocities is not None:
            commands = np.asarray(accelerations, np.float64)
            commands = commands if all_active else np.where(active[..., None], commands, 0.0)
            after = moment.with_last_step(LastStep(velocities, commands))
        rewards = self._reward(after)
        if not all_active:
            rewards = np.where(active, rewards, 0.0)
        self._set_moment(moment)
        terminated, truncated = ~moment.flying, self._ended & moment.flying
        info: dict[str, Any] = {"outcomes": moment.outcomes.copy()}
        if self.auto_restart and self._any_ended:
            info["final_observations"] = self._convert(moment.observations.copy())
            self._restart(self._ended)
        return VectorStep(
            self._convert(self.moment.observations.copy()),
            self._convert(rewards.astype(np.float32)),
            self._convert(self._active.copy()),
            self._convert(terminated),
            self._convert(truncated),
            info,
        )

    def __len__(self) -> int:
        return len(self._episodes)

    def _begin_flight(self, seed: int | None) -> None:
        """Begin the first episode of all flocks."""
        if seed is not None:
            self.seed = check_count("seed", seed, least=0)
            self._episodes[:] = 0
            self._starts = None
        starts = self._draw_starts(np.arange(len(self))) if self._starts is None else self._starts
        self._starts = None
        self._flight = self._make_flight(starts)
        self._reward.begin_flight(self._flight)
        self._set_restarted(next(self._flight), np.ones(len(self), bool))

    def _restart(self, mask: Bool[np.ndarray, " B"]) -> None:
        """Begin the next episode of the flocks of a mask."""
        if not mask.any():
            return
        assert self._flight is not None
        self._episodes[mask] += 1
        self._set_restarted(self._flight.restart(mask, self._draw_starts(np.flatnonzero(mask))), mask)

    def _set_restarted(self, moment: Moment, mask: Bool[np.ndarray, " B"]) -> None:
        """Store the moment at which the flocks of a mask begin; raise InputError if one ends at once."""
        # Their roles and ends are new.
        self._all_active, self._next_end = False, 0
        self._set_moment(moment)
        if (at_once := self._ended & mask).any():
            outcome = Outcome(int(moment.outcomes[at_once][0]))
            raise InputError(f"a flock of the scenario {self.scenario} has ended at its start: {outcome.message}")

    def _set_moment(self, moment: Moment) -> None:
        """Store the present moment, which agents obey commands in the next step, and which flocks have ended."""
        self._moment, flock, flying = moment, moment.flock, moment.flying
        all_flying = bool(flying.all())
        if not (self._all_active and all_flying and flock.all_working):
            roles = flock.roles if flock.all_working else flock.effective_roles
            self._active = (roles == FOLLOWER) & flying[:, None]
            self._all_active = bool(self._active.all())
        # Between two ends of episodes no flock needs to be looked at.
        if self._any_ended or not all_flying or moment.step >= self._next_end:
            is_over = moment.flock_steps >= self.steps
            self._ended = ~flying | is_over
            self._any_ended = bool(self._ended.any())
            self._next_end = int(moment.start_steps[~is_over].min(initial=moment.step)) + self.steps

    def _check_mask(self, mask: Any) -> Bool[np.ndarray, " B"]:
        """Return a mask of flocks, all by default; raise InputError if it is none."""
        checked = np.ones(len(self), bool) if mask is None else np.asarray(mask)
        if checked.shape != (len(self),) or checked.dtype != bool:
            raise InputError(
                f"mask must be booleans of shape ({len(self)},); got {checked.dtype} of shape {checked.shape}"
            )
        return checked

    def _make_scenario(self, seed: int) -> Scenario:
        """Return the scenario with one flock of a seed."""
        return make_scenario(self.scenario, {"flocks": 1, "seed": seed, "split": SPLIT}, **self._options)

    def _draw_starts(self, which: NDArray[np.int64]) -> Flock:
        """Draw the starts of the present episodes of some flocks."""
        drawn = []
        for b in which.tolist():
            seed = make_rng(self.seed, "vector_flocks", b, int(self._episodes[b])).integers(2**63)
            drawn.append(self._make_scenario(int(seed)).draw()[0])
        arrays = (np.concatenate(parts) for parts in zip(*(each.arrays for each in drawn), strict=True))
        return Flock.view(*arrays, comm_radius=drawn[0].comm_radius)

    def _make_flight(self, starts: Flock) -> Flight:
        """Return a flight without a controller, under the rules of the scenario."""
        return flight(
            starts,
            None,
            time_step=self.time_step,
            senses=self.senses,
            environment=self.environment,
            **build_flight_options(self._rules),
        )

    def _convert(self, array: NDArray[Any]) -> Any:
        """Return the array, or a torch tensor that shares its memory."""
        if not self._use_torch:
            return array
        import torch

        return torch.from_numpy(array)
