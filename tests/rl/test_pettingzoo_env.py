"""One flock through PettingZoo: its own tests, agents that leave, pictures, and bad input."""

from __future__ import annotations

import importlib.util
from functools import partial
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError

pytest.importorskip("pettingzoo", reason="the extra rl is not installed")
from pettingzoo.test import parallel_api_test, parallel_seed_test, render_test
from pettingzoo.utils.conversions import parallel_to_aec

FRAIL = ef.Environment(radio=ef.Radio(packet_loss=0.3), failures=ef.Failures(rate=1.0))
make_env = partial(ef.parallel_env, "flocking", 10, duration=0.5)


@pytest.mark.parametrize("environment", [None, FRAIL], ids=["default", "failures"])
def test_the_tests_of_pettingzoo_pass(environment: ef.Environment | None, capsys: pytest.CaptureFixture[str]) -> None:
    parallel_api_test(make_env(environment=environment), num_cycles=100)
    parallel_seed_test(partial(make_env, environment=environment), num_cycles=20)
    assert "Passed Parallel API test" in capsys.readouterr().out


def test_the_picture_test_of_pettingzoo_passes() -> None:
    render_test(lambda render_mode: parallel_to_aec(make_env(render_mode=render_mode)))


def test_spaces_and_state_have_the_shapes_of_one_agent_and_of_all() -> None:
    env = make_env(senses=ef.paper_senses(hops=2))
    observations, infos = env.reset(seed=1)
    assert env.agents == env.possible_agents == list(observations) == list(infos)
    assert env.observation_space("agent_3").contains(observations["agent_3"])
    assert observations["agent_3"].shape == (2, 3, 2)
    flock = env.flocks.moment.flock
    assert env.state_space.contains(env.state())
    np.testing.assert_allclose(
        env.state(), np.concatenate([flock.positions[0], flock.velocities[0]], axis=1), rtol=1e-6
    )
    assert not env.action_space("agent_3").is_bounded()
    limited = make_env(environment=ef.Environment(body=ef.DoubleIntegrator(max_acceleration=4.0)))
    assert limited.action_space("agent_3").high.tolist() == [4.0, 4.0]


def test_steps_have_the_bits_of_the_arrays() -> None:
    env, flocks = make_env(reward="effort"), ef.VectorFlocks("flocking", 1, 10, reward="effort")
    observations, _ = env.reset()
    first, _ = flocks.reset()
    np.testing.assert_array_equal(np.stack(list(observations.values())), first[0])
    commands = np.random.default_rng(0).normal(size=(10, 2)).astype(np.float32)
    observations, rewards, *_ = env.step(dict(zip(env.agents, commands, strict=True)))
    step = flocks.step(commands[None])
    np.testing.assert_array_equal(np.stack(list(observations.values())), step.observations[0])
    np.testing.assert_array_equal(list(rewards.values()), step.rewards[0])


def rest(env: Any) -> Any:
    """Step with zero accelerations."""
    return env.step({agent: np.zeros(2) for agent in env.agents})


def test_agents_that_fail_are_terminated_and_leave() -> None:
    env = make_env(environment=ef.Environment(failures=ef.Failures(agents=4, time=0.02)))
    env.reset()
    assert not any(rest(env)[2].values())
    observations, _, terminations, truncations, _ = rest(env)
    left = {agent for agent, over in terminations.items() if over}
    assert len(left) == 4 and set(env.agents) == set(env.possible_agents) - left
    assert len(observations) == 10 and not any(truncations.values())
    assert set(rest(env)[0]) == set(env.agents)
    env.reset()
    assert env.agents == env.possible_agents


def test_leaders_and_obstacle_agents_never_act() -> None:
    env = ef.parallel_env("obstacles:sides=12", 10)
    env.reset()
    assert len(env.possible_agents) == 22 and len(env.agents) == 8


def test_all_agents_are_truncated_at_the_duration() -> None:
    env = ef.parallel_env("flocking", 10, duration=0.02)
    env.reset()
    assert not any(rest(env)[3].values())
    _, _, terminations, truncations, _ = rest(env)
    assert all(truncations.values()) and not any(terminations.values()) and env.agents == []


def test_a_flock_that_ends_says_why() -> None:
    env = ef.parallel_env("obstacles", 10, duration=5.0)
    env.reset()
    # Half of the agents fly away, so that the flock is disconnected soon.
    while env.agents:
        push = {agent: np.array([50.0 if int(agent[6:]) % 2 else -50.0, 0.0]) for agent in env.agents}
        _, _, terminations, _, infos = env.step(push)
    assert all(terminations.values())
    assert {info["outcome"] for info in infos.values()} <= {"DISCONNECTED", "COLLIDED", "HIT_OBSTACLE"}


def test_a_picture_shows_the_flock_and_its_trails() -> None:
    env = make_env(render_mode="rgb_array")
    with pytest.raises(InputError, match=r"there is no flock to draw yet: call reset\(\) first"):
        env.render()
    env.reset()
    first = env.render()
    rest(env)
    assert first.shape == (400, 400, 3) and len(np.unique(first.reshape(-1, 3), axis=0)) > 20
    assert (env.render() != first).any()
    with pytest.raises(InputError, match=r"render\(\) needs render_mode='rgb_array'; got 'human'"):
        make_env(render_mode="human").render()


def test_wrong_actions_are_refused_in_one_line() -> None:
    env = make_env(environment=ef.Environment(failures=ef.Failures(agents=1)))
    with pytest.raises(InputError, match=r"there is no flock in flight yet: call reset\(\) before step\(\)"):
        env.step({})
    env.reset()
    rest(env)
    (gone,) = set(env.possible_agents) - set(env.agents)
    good = {agent: np.zeros(2) for agent in env.agents}
    some = env.agents[0]
    for actions, message in [
        ({**good, gone: np.zeros(2)}, f"actions must be those of env.agents: '{gone}' is not among them"),
        ({agent: good[agent] for agent in env.agents[1:]}, f"actions must be those of env.agents: {some} has none"),
        ({**good, some: np.zeros(3)}, rf"the action of {some} must be finite numbers of shape \(2,\)"),
        ({**good, some: [np.nan, 0.0]}, rf"the action of {some} must be finite numbers of shape \(2,\)"),
        ({**good, some: "left"}, rf"the action of {some} must be finite numbers of shape \(2,\)"),
    ]:
        with pytest.raises(InputError, match=message) as error:
            env.step(actions)
        assert "\n" not in str(error.value)
    while env.agents:
        rest(env)
    with pytest.raises(InputError, match=r"the episode has ended: call reset\(\) before step\(\)"):
        env.step({})


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"parallel_env needs gymnasium and pettingzoo: pip install 'equiflock\[rl\]'"):
        ef.parallel_env()
    with pytest.raises(InputError, match=r"torchrl_env needs torch and torchrl and tensordict: pip install 'equi"):
        ef.torchrl_env()
