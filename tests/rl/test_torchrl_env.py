"""Flocks through TorchRL: its check of specs, rollouts with restarts, seeds, and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError

pytest.importorskip("torchrl", reason="the extra rl is not installed")
import torch
from torchrl.envs.utils import check_env_specs

LIMITED = ef.Environment(body=ef.DoubleIntegrator(max_acceleration=4.0), failures=ef.Failures(rate=1.0))


@pytest.mark.parametrize("environment", [None, LIMITED], ids=["default", "limited"])
def test_the_check_of_torchrl_passes(environment: ef.Environment | None) -> None:
    env = ef.torchrl_env("flocking", 3, 10, environment=environment)
    check_env_specs(env, seed=1)
    assert env.batch_size == (3,) and env.group_map == {"agents": [f"agent_{i}" for i in range(10)]}
    actions = env.full_action_spec["agents", "action"]
    assert actions.shape == (3, 10, 2)
    assert actions.space.high.max() == 4.0 if environment else actions.space.high.min() > 1e30


def test_a_rollout_has_the_bits_of_the_arrays_and_restarts() -> None:
    env = ef.torchrl_env("flocking", 2, 10, duration=0.03, reward="effort+1*variance")
    flocks = ef.VectorFlocks("flocking", 2, 10, duration=0.03, reward="effort+1*variance")
    data = env.rollout(7, break_when_any_done=False)
    observations, _ = flocks.reset()
    for n in range(7):
        now = data[:, n]
        np.testing.assert_array_equal(now["agents", "observation"].numpy(), observations)
        step = flocks.step(now["agents", "action"].numpy())
        observations = step.observations
        last = step.info.get("final_observations", observations)
        np.testing.assert_array_equal(now["next", "agents", "observation"].numpy(), last)
        np.testing.assert_array_equal(now["next", "agents", "reward"][..., 0].numpy(), step.rewards)
        np.testing.assert_array_equal(now["next", "done"][..., 0].numpy(), step.truncated)
    assert data["next", "truncated"].sum() == 4


def test_single_flocks_restart_without_a_change_of_the_others() -> None:
    first, second = (ef.torchrl_env("flocking", 3, 10) for _ in range(2))
    torch.manual_seed(0)
    data = first.rollout(4)
    now = second.reset()
    for n in range(4):
        now.set(("agents", "action"), data[:, n]["agents", "action"])
        now = second.step(now)["next"]
        np.testing.assert_array_equal(now["state"][1].numpy(), data[1, n]["next", "state"].numpy())
        now = second.reset(now.set("_reset", torch.tensor([[n == 1], [False], [True]])))
    assert (now["state"][0] != data[0, 3]["next", "state"]).any()


def test_failed_agents_are_masked() -> None:
    env = ef.torchrl_env("flocking", 2, 10, environment=ef.Environment(failures=ef.Failures(agents=4, time=0.02)))
    data = env.rollout(4)
    assert data["agents", "mask"].sum((0, 2)).tolist() == [20, 20, 12, 12]


def test_seeds_repeat() -> None:
    def fly(seed: int) -> Any:
        env = ef.torchrl_env("flocking", 2, 10, duration=0.03)
        env.set_seed(seed)
        torch.manual_seed(0)
        return env.rollout(6, break_when_any_done=False)["state"]

    assert (fly(1) == fly(1)).all() and (fly(1) != fly(2)).any()


def test_gradients_do_not_pass_and_wrong_actions_are_refused() -> None:
    env = ef.torchrl_env("flocking", 2, 10, duration=0.02)
    now = env.reset()
    with pytest.raises(InputError, match=r"accelerations must be finite numbers of shape \(B, N, D\)"):
        env.step(now.clone().set(("agents", "action"), torch.full((2, 10, 2), torch.nan)))
    zeros = torch.zeros((2, 10, 2), requires_grad=True)
    for _ in range(2):
        now = env.step(now.set(("agents", "action"), zeros))["next"]
    assert now["done"].all() and not now["agents", "reward"].requires_grad
    with pytest.raises(
        InputError, match=r"step\(\) needs flocks that fly, and 0, 1 of 2 have ended: call reset\(mask\)"
    ):
        env.step(now.set(("agents", "action"), zeros))
