"""Flocks as a batched environment of TorchRL."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.data import Bounded, Categorical, Composite, Unbounded
from torchrl.envs import EnvBase

from equiflock.rl.vector_flocks import VectorFlocks, concatenate_state, get_acceleration_bound

GROUP = "agents"
"""Name of the only group: agents are alike."""
ACTION = GROUP, "action"


class FlockEnv(EnvBase):  # type: ignore[misc]
    """B flocks as a batched environment; `equiflock.torchrl_env` makes it.

    Args:
        flocks: a batch with torch tensors as results, without automatic restarts.
    """

    def __init__(self, flocks: VectorFlocks) -> None:
        B, N, D = flocks.shape
        super().__init__(device=torch.device("cpu"), batch_size=torch.Size([B]))
        self.flocks = flocks
        self.group_map = {GROUP: [f"agent_{index}" for index in range(N)]}
        bound = get_acceleration_bound(flocks.environment)

        def group(**specs: Any) -> Composite:
            return Composite({GROUP: Composite(specs, shape=(B, N))}, shape=(B,))

        shape = B, N, D
        action = Unbounded(shape) if bound == float("inf") else Bounded(-bound, bound, shape)
        self.action_spec = group(action=action)
        self.observation_spec = group(
            observation=Unbounded((B, N, *flocks.observation_shape)), mask=Categorical(2, (B, N), dtype=torch.bool)
        )
        self.observation_spec["state"] = Unbounded((B, N, 2 * D))
        self.reward_spec = group(reward=Unbounded((B, N, 1)))
        flags = {name: Categorical(2, (B, 1), dtype=torch.bool) for name in ("done", "terminated", "truncated")}
        self.done_spec = Composite(flags, shape=(B,))
        self._seed: int | None = None

    def _reset(self, tensordict: TensorDictBase | None = None, **_: Any) -> TensorDictBase:
        """Begin a new episode of all flocks, or of those where "_reset" is True."""
        mask = None if tensordict is None else tensordict.get("_reset", None)
        seed, self._seed = self._seed, None
        observations, info = self.flocks.reset(None if mask is None else mask.reshape(len(self.flocks)), seed=seed)
        ended = torch.zeros((len(self.flocks), 1), dtype=torch.bool)
        return self._pack(observations, info["active"], ended, ended.clone())

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Execute a step with the actions of all agents."""
        step = self.flocks.step(tensordict.get(ACTION).detach())
        result = self._pack(step.observations, step.active, step.terminated[:, None], step.truncated[:, None])
        result.get(GROUP).set("reward", step.rewards[..., None])
        return result

    def _pack(self, observations: Any, active: Any, terminated: Any, truncated: Any) -> TensorDict:
        """Return what agents observe now, and which flocks have ended."""
        B, N, _ = self.flocks.shape
        group = TensorDict({"observation": observations, "mask": active}, batch_size=(B, N))
        state = torch.from_numpy(concatenate_state(self.flocks.moment.flock))
        flags = {"done": terminated | truncated, "terminated": terminated, "truncated": truncated}
        return TensorDict({GROUP: group, "state": state, **flags}, batch_size=(B,))

    def _set_seed(self, seed: int | None) -> None:
        """Let the next reset begin the first episodes of a seed."""
        self._seed = seed
