"""The environments of PettingZoo and TorchRL, whose packages are imported at the first call: they are an extra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from equiflock._runtime.imports import require_modules
from equiflock.features import Senses
from equiflock.rl.rewards import Reward
from equiflock.simulation.environment import Environment

if TYPE_CHECKING:
    from equiflock.rl.pettingzoo_env import FlockParallelEnv
    from equiflock.rl.torchrl_env import FlockEnv

EXTRA = "rl"


def parallel_env(
    scenario: str = "flocking",
    agents: int | None = None,
    *,
    environment: Environment | None = None,
    reward: str | Reward = "variance",
    senses: Senses | None = None,
    seed: int = 0,
    duration: float | None = None,
    time_step: float = 0.01,
    render_mode: str | None = None,
) -> FlockParallelEnv:
    """Return one flock of a scenario as a parallel environment of PettingZoo; needs the extra `rl`.

    Agents are called agent_0, agent_1, ..; `agents` has those that obey commands: leaders and obstacle agents never
    do, and an agent that stops or drifts is terminated and leaves. Observations are (K, C, D), actions accelerations
    (D,), bounded by those of the body; `state()` is (N, 2 D), positions and velocities.

    Args:
        scenario: a scenario with or without options, such as "leaders:leaders=2".
        agents: N; default: that of the scenario.
        environment: radio, body and failures; default: the paper's.
        reward: a name, a weighted sum such as "variance+0.1*effort", or a function of the moment after a step.
        senses: observations of the agents; default: `paper_senses()`.
        seed: random seed of the starts, until `reset(seed=..)` sets another.
        duration: of an episode, in seconds; default: that of the scenario.
        time_step: dt, in seconds.
        render_mode: "rgb_array" for `render()`; None: no pictures.
    """
    require_modules(EXTRA, "parallel_env", "gymnasium", "pettingzoo")
    from equiflock.rl.pettingzoo_env import FlockParallelEnv
    from equiflock.rl.vector_flocks import VectorFlocks

    flocks = VectorFlocks(
        scenario,
        1,
        agents,
        environment=environment,
        reward=reward,
        senses=senses,
        seed=seed,
        duration=duration,
        time_step=time_step,
        auto_restart=False,
    )
    return FlockParallelEnv(flocks, render_mode)


def torchrl_env(
    scenario: str = "flocking",
    flocks: int = 32,
    agents: int | None = None,
    *,
    environment: Environment | None = None,
    reward: str | Reward = "variance",
    senses: Senses | None = None,
    seed: int = 0,
    duration: float | None = None,
    time_step: float = 0.01,
) -> FlockEnv:
    """Return B flocks of a scenario as a batched environment of TorchRL; needs the extra `rl`.

    The batch size is (B,). The group "agents" has the observations (B, N, K, C, D), actions (B, N, D), rewards
    (B, N, 1) and mask (B, N) of agents that obey commands; `done`, `terminated` and `truncated` (B, 1) are of whole
    flocks. "state" (B, N, 2 D) has positions and velocities, for critics only. A flock that is done must be reset
    before the next step, as rollouts and collectors do.

    Args:
        scenario: a scenario with or without options, such as "leaders:leaders=2".
        flocks: B.
        agents: N; default: that of the scenario.
        environment: radio, body and failures; default: the paper's.
        reward: a name, a weighted sum such as "variance+0.1*effort", or a function of the moment after a step.
        senses: observations of the agents; default: `paper_senses()`.
        seed: random seed of the starts, until `set_seed` sets another.
        duration: of an episode, in seconds; default: that of the scenario.
        time_step: dt, in seconds.
    """
    require_modules(EXTRA, "torchrl_env", "torch", "torchrl", "tensordict")
    from equiflock.rl.torchrl_env import FlockEnv
    from equiflock.rl.vector_flocks import VectorFlocks

    return FlockEnv(
        VectorFlocks(
            scenario,
            flocks,
            agents,
            environment=environment,
            reward=reward,
            senses=senses,
            seed=seed,
            duration=duration,
            time_step=time_step,
            auto_restart=False,
            arrays="torch",
        )
    )
