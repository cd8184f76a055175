"""One flock as a parallel environment of PettingZoo."""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from jaxtyping import Float32, UInt8
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from equiflock._runtime.checks import InputError, shorten_repr
from equiflock.outcomes import Outcome
from equiflock.plotting.flock_picture import TRAIL_SECONDS
from equiflock.plotting.snapshots import draw_image
from equiflock.rl.vector_flocks import VectorFlocks, concatenate_state, get_acceleration_bound
from equiflock.simulation.trajectory import STATIC_ARRAYS, Trajectory

Observation = Float32[np.ndarray, "K C D"]
Action = Float32[np.ndarray, " D"]
MOVING_ARRAYS = "positions", "velocities", "conditions"
"""Arrays of a flock that a step changes."""


class FlockParallelEnv(ParallelEnv[str, Observation, Action]):  # type: ignore[misc]
    """One flock as a parallel environment; `equiflock.parallel_env` makes it.

    Args:
        flocks: a batch of one flock, without automatic restarts.
        render_mode: "rgb_array" for `render()`; None: no pictures.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "equiflock_v0",
        "render_modes": ["rgb_array"],
        "is_parallelizable": True,
    }

    def __init__(self, flocks: VectorFlocks, render_mode: str | None = None) -> None:
        self.flocks = flocks
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": max(round(1 / flocks.time_step), 1)}  # type: ignore[misc]
        _, N, D = flocks.shape
        self.possible_agents = [f"agent_{index}" for index in range(N)]
        self.agents: list[str] = []
        self._index = {agent: index for index, agent in enumerate(self.possible_agents)}
        bound = get_acceleration_bound(flocks.environment)
        self.observation_spaces = {
            agent: spaces.Box(-np.inf, np.inf, flocks.observation_shape, np.float32) for agent in self.possible_agents
        }
        self.action_spaces = {agent: spaces.Box(-bound, bound, (D,), np.float32) for agent in self.possible_agents}
        self.state_space = spaces.Box(-np.inf, np.inf, (N, 2 * D), np.float32)
        self._has_begun = False
        self._past: deque[tuple[NDArray[Any], ...]] = deque(maxlen=round(TRAIL_SECONDS / flocks.time_step) + 1)

    def observation_space(self, agent: str) -> spaces.Box:
        """Return the space of an agent's observations (K, C, D)."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Box:
        """Return the space of an agent's accelerations (D,)."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """Begin a new episode, the first one of a seed if given; `options` are ignored."""
        (observations,), info = self.flocks.reset(seed=seed)
        (active,) = info["active"]
        self._has_begun = True
        self.agents = [self.possible_agents[index] for index in np.flatnonzero(active)]
        self._past.clear()
        self._remember()
        return self._split(observations, self.agents), {agent: {} for agent in self.agents}

    def step(
        self, actions: dict[str, Action]
    ) -> tuple[dict[str, Observation], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Execute a step with the accelerations of all `agents`.

        Raise InputError before the first reset, after the end of the episode, or if the actions are not those of
        `agents`, or not finite numbers of shape (D,).
        """
        before = self.agents
        observations, rewards, active, terminated, truncated, info = self.flocks.step(self._join(actions))
        has_ended, is_cut = bool(terminated[0]), bool(truncated[0])
        self._remember()
        indices = [self._index[agent] for agent in before]
        remaining = active[0, indices].tolist()
        terminations = {agent: has_ended or not stays for agent, stays in zip(before, remaining, strict=True)}
        truncations = {agent: is_cut and stays for agent, stays in zip(before, remaining, strict=True)}
        values = dict(zip(before, rewards[0, indices].tolist(), strict=True))
        self.agents = [] if has_ended or is_cut else [agent for agent in before if not terminations[agent]]
        note = {"outcome": Outcome(int(info["outcomes"][0])).name} if has_ended else {}
        infos = {agent: dict(note) for agent in before}
        return self._split(observations[0], before), values, terminations, truncations, infos

    def state(self) -> Float32[np.ndarray, "N 2*D"]:
        """Return positions and velocities of all agents, (N, 2 D)."""
        return np.asarray(concatenate_state(self.flocks.moment.flock)[0])

    def render(self) -> UInt8[np.ndarray, "height width 3"]:
        """Return a picture of the flock with trails; raise InputError unless `render_mode` is "rgb_array"."""
        if self.render_mode != "rgb_array":
            raise InputError(f"render() needs render_mode='rgb_array'; got {shorten_repr(self.render_mode)}")
        if not self._past:
            raise InputError("there is no flock to draw yet: call reset() first")
        return draw_image(self._build_trajectory())

    def close(self) -> None:
        """Release nothing: there are no windows or processes."""

    def _join(self, actions: dict[str, Action]) -> Float32[np.ndarray, "1 N D"]:
        """Return the actions of all agents as an array, zero for agents that left."""
        if not self.agents:
            hint = "the episode has ended" if self._has_begun else "there is no flock in flight yet"
            raise InputError(f"{hint}: call reset() before step()")
        if actions.keys() != set(self.agents):
            missing, left = set(self.agents) - actions.keys(), actions.keys() - set(self.agents)
            name = min(missing or left, key=str)
            problem = f"{name} has none" if missing else f"{shorten_repr(name)} is not among them"
            raise InputError(f"actions must be those of env.agents: {problem}")
        joined = np.zeros(self.flocks.shape)
        D = joined.shape[2]
        for agent, action in actions.items():
            given = np.asarray(action)
            if given.shape != (D,) or given.dtype.kind not in "fiu" or not np.isfinite(given).all():
                raise InputError(f"the action of {agent} must be finite numbers of shape ({D},); got {action!r:.80}")
            joined[0, self._index[agent]] = given
        return joined

    def _split(self, observations: Float32[np.ndarray, "N K C D"], agents: list[str]) -> dict[str, Observation]:
        """Return the observations of some agents by their names."""
        return {agent: observations[self._index[agent]] for agent in agents}

    def _remember(self) -> None:
        """Keep a copy of the present flock for pictures with trails."""
        if self.render_mode is not None:
            flock = self.flocks.moment.flock
            self._past.append(tuple(getattr(flock, name).copy() for name in MOVING_ARRAYS))

    def _build_trajectory(self) -> Trajectory:
        """Return the last steps of the episode, as long as trails are."""
        moment = self.flocks.moment
        moving: dict[str, Any] = dict(zip(MOVING_ARRAYS, map(np.stack, zip(*self._past, strict=True)), strict=True))
        frames, *shape = moving["positions"].shape
        last = int(moment.flock_steps[0])
        return Trajectory(
            times=np.arange(last + 1 - frames, last + 1) * moment.time_step,
            accelerations=np.zeros((frames - 1, *shape)),
            steps=moment.flock_steps.copy(),
            outcomes=moment.outcomes.copy(),
            time_step=moment.time_step,
            comm_radius=moment.comm_radius,
            **moving,
            **{name: getattr(moment.flock, name).copy() for name in STATIC_ARRAYS},
        )
