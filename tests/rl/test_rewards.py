"""Rewards by name, as weighted sums and as functions, against slow, obvious twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.protocols import LastStep, Moment
from equiflock.rl.rewards import make_reward
from tests.flocks import flocks


def make_moment(flock: ef.Flock, accelerations: NDArray[Any] | None = None) -> Moment:
    """Return the first moment of a flight of a flock, after a step with these accelerations."""
    moment = next(ef.flight(flock, None, senses=ef.paper_senses()))
    commands = np.zeros(flock.shape) if accelerations is None else accelerations
    return moment.with_last_step(LastStep(flock.velocities.copy(), commands))


def compute_twin(name: str, flock: ef.Flock, accelerations: NDArray[Any]) -> NDArray[Any]:
    """Return a reward by loops over agents."""
    B, N, _ = flock.shape
    result = np.zeros((B, N))
    working, labels = flock.working, ef.components(flock)
    for b in range(B):
        mean = flock.velocities[b, working[b]].mean(axis=0) if working[b].any() else np.zeros(flock.shape[2])
        for i in range(N):
            if name == "variance":
                result[b, i] = -((flock.velocities[b, i] - mean) ** 2).sum()
            elif name == "effort":
                result[b, i] = -(accelerations[b, i] ** 2).sum()
            elif name == "connectivity" and working[b, i]:
                others = [j for j in range(N) if working[b, j] and j != i]
                apart = sum(labels[b, j] != labels[b, i] for j in others)
                result[b, i] = -apart / max(len(others), 1)
            elif name == "collision" and flock.effective_roles[b, i] == ef.Role.FOLLOWER:
                distances = np.linalg.norm(flock.positions[b] - flock.positions[b, i], axis=1)
                result[b, i] = -(np.delete(distances, i) <= 0.1).sum()
    return result


@pytest.mark.parametrize("name", ["variance", "effort", "connectivity", "collision"])
@given(flock=flocks(failed=True), seed=st.integers(0, 2**32))
def test_a_reward_agrees_with_its_twin_for_agents_that_obey(name: str, flock: ef.Flock, seed: int) -> None:
    commands = np.random.default_rng(seed).normal(size=flock.shape)
    got = make_reward(name)(make_moment(flock, commands))
    obeys = flock.effective_roles == ef.Role.FOLLOWER
    np.testing.assert_allclose(got[obeys], compute_twin(name, flock, commands)[obeys], rtol=1e-9, atol=1e-9)


def test_the_mean_of_variance_is_minus_the_velocity_variance() -> None:
    moment = make_moment(ef.random_disk(3, 20, seed=1))
    np.testing.assert_allclose(
        make_reward("variance")(moment).mean(axis=1), -ef.metrics.velocity_variance(moment.flock)
    )


def test_leaders_are_followed_by_flying_with_their_velocity() -> None:
    flock = ef.make_scenario("leaders:leaders=2", agents=10).draw()
    (leads,) = flock.roles == ef.Role.LEADER
    target = flock.velocities[0, leads].mean(axis=0)
    expected = -((flock.velocities[0] - target) ** 2).sum(axis=1)
    np.testing.assert_allclose(make_reward("leaders")(make_moment(flock))[0], expected)
    with pytest.raises(InputError, match="'leaders' needs a leader in every flock"):
        make_reward("leaders")(make_moment(ef.random_disk(1, 10)))


def fly_with(reward: str, commander: str, steps: int = 5, **options: Any) -> NDArray[Any]:
    """Return the rewards of flights that a controller commands."""
    law: Any = ef.load(commander)
    rewards = []
    flocks = ef.VectorFlocks("flocking", 2, 12, reward=reward, senses=law.senses, time_step=0.05, **options)
    observations, _ = flocks.reset()
    for _ in range(steps):
        moment = flocks.moment
        commands = law(moment.flock, observations) if getattr(law, "privileged", False) else law(observations)
        observations, values, *_ = flocks.step(commands)
        rewards.append(values)
    return np.stack(rewards)


def test_who_commands_as_the_expert_does_is_rewarded_with_zero() -> None:
    assert not fly_with("imitation:expert=etdagnn", "etdagnn").any()
    # Restarts erase the past of the expert's observations, too.
    assert not fly_with("imitation:expert=etdagnn", "etdagnn", duration=0.15).any()
    assert not fly_with("imitation", "tanner").any()
    assert (fly_with("imitation:clamp=3", "etdagnn") < 0).any()


def test_a_reward_may_be_a_weighted_sum_whose_first_weight_is_one() -> None:
    commands = np.random.default_rng(0).normal(size=(2, 10, 2))
    moment = make_moment(ef.random_disk(2, 10, seed=1), commands)
    expected = make_reward("variance")(moment) + 0.1 * make_reward("effort")(moment)
    np.testing.assert_array_equal(make_reward("variance+0.1*effort")(moment), expected)
    near = make_reward("2*collision:min_separation=0.5")(moment)
    assert (near < 0).any() and (near % 2 == 0).all()


@pytest.mark.usefixtures("own_registry")
def test_users_register_functions_and_classes_with_options() -> None:
    @ef.reward("slow")
    def slow(moment: Moment, limit: float = 1.0) -> NDArray[Any]:
        return -np.maximum(np.linalg.norm(moment.flock.velocities, axis=-1) - limit, 0.0)

    @ef.reward("alive")
    class Alive:
        def __init__(self, amount: float = 1.0) -> None:
            self.amount = amount

        def __call__(self, moment: Moment) -> NDArray[Any]:
            return np.full(moment.flock.shape[:2], self.amount)

    assert ef.reward_names() == (
        "variance",
        "leaders",
        "effort",
        "connectivity",
        "collision",
        "imitation",
        "slow",
        "alive",
    )
    moment = make_moment(ef.random_disk(1, 10))
    np.testing.assert_array_equal(make_reward("slow:limit=100+1*alive:amount=3")(moment), 3.0)
    with pytest.raises(InputError, match="a reward named 'slow' is already registered"):
        ef.reward("slow")
    with pytest.raises(InputError, match="must be a function of a Moment, or a class; got 3"):
        ef.reward("three")(3)  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("variace", r"reward must be one of 'variance'.*; did you mean 'variance'\?"),
        ("variance+effort", r"reward must be a name, or several .* such as variance\+0.1\*effort"),
        ("collision:near=1", "reward 'collision' cannot be made: TypeError"),
        ("effort:by=1", "reward 'effort' cannot be made: TypeError"),
        ("collision:min_separation=0", "min_separation must be a finite number above 0"),
        ("imitation:expert=tannr", "did you mean 'tanner'"),
        (3, "reward must be a name, a sum such as"),
        (dict, "reward must be a name, a sum such as"),
    ],
)
def test_an_unknown_reward_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_reward(given)


@pytest.mark.parametrize("answer", [np.zeros(10), np.zeros((10, 1)), np.full((1, 10), np.nan), "none", None])
def test_a_reward_of_the_wrong_shape_or_nan_is_refused(answer: Any) -> None:
    def odd(moment: Moment) -> Any:
        return answer

    with pytest.raises(InputError, match=r"the reward 'odd' must return finite numbers of shape \(B, N\) = \(1, 10\)"):
        make_reward(odd)(make_moment(ef.random_disk(1, 10)))


def test_a_registered_reward_must_say_that_it_reads_the_step_before() -> None:
    moment = next(ef.flight(ef.random_disk(1, 10), None, senses=ef.paper_senses()))
    with pytest.raises(InputError, match="must be registered with uses_last_step=True"):
        make_reward("effort")(moment)
