"""Flocks as arrays: the bits of `equiflock.flight`, restarts of single flocks, seeds, torch tensors and bad input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.outcomes import Outcome
from equiflock.scenarios.registry import build_flight_options

BUSY = ef.Environment(
    radio=ef.Radio(packet_loss=0.3, delay=1),
    body=ef.DoubleIntegrator(max_acceleration=4.0, lag=0.1),
    failures=ef.Failures(rate=1.0, kind="stopped"),
)
"""Every part differs from the default."""
SMALL_DISK = ef.RandomDisk(agents=10)


def draw_commands(flocks: ef.VectorFlocks, steps: int, seed: int = 0) -> NDArray[Any]:
    return np.random.default_rng(seed).normal(size=(steps, *flocks.shape))


def run(flocks: ef.VectorFlocks, commands: NDArray[Any]) -> list[tuple[Any, ...]]:
    """Return the arrays of all steps after a reset."""
    flocks.reset()
    return [flocks.step(each)[:5] for each in commands]


def assert_same_bits(first: Any, second: Any) -> None:
    for ours, theirs in zip(first, second, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("scenario", ["flocking", "leaders:leaders=2", "obstacles"])
@pytest.mark.parametrize("environment", [None, BUSY], ids=["default", "busy"])
def test_steps_have_the_bits_of_a_flight(scenario: str, environment: ef.Environment | None) -> None:
    flocks = ef.VectorFlocks(scenario, 2, 12, environment=environment, time_step=0.05, auto_restart=False)
    observations, info = flocks.reset()
    assert info["active"].any()
    start = ef.Flock(*flocks.moment.flock.arrays, comm_radius=flocks.moment.comm_radius)
    rules = build_flight_options(ef.make_scenario(scenario))
    loop = ef.flight(start, None, senses=flocks.senses, time_step=0.05, environment=environment, **rules)
    np.testing.assert_array_equal(observations, next(loop).observations)
    compared = 0
    for commands in draw_commands(flocks, 15):
        step, moment = flocks.step(commands), loop.step(commands)
        np.testing.assert_array_equal(step.terminated, ~moment.flying)
        if step.terminated.any():
            break
        compared += 1
        np.testing.assert_array_equal(step.observations, moment.observations)
        np.testing.assert_array_equal(flocks.moment.flock.positions, moment.flock.positions)
        np.testing.assert_array_equal(step.active, moment.flock.effective_roles == ef.Role.FOLLOWER)
    assert compared >= 1


def test_results_are_the_callers_own() -> None:
    flocks = ef.VectorFlocks("flocking", 2, 12)
    observations, info = flocks.reset()
    step = flocks.step(np.zeros(flocks.shape))
    kept = [array.copy() for array in (observations, info["active"], *step[:5])]
    for _ in range(3):
        flocks.step(np.ones(flocks.shape))
    for array, copy in zip((observations, info["active"], *step[:5]), kept, strict=True):
        np.testing.assert_array_equal(array, copy)
        assert array.flags.writeable
    assert (step.observations.shape, step.observations.dtype) == ((2, 12, 3, 3, 2), np.float32)
    assert (step.rewards.shape, step.rewards.dtype) == ((2, 12), np.float32)


@pytest.mark.parametrize("reward", ["variance+0.1*effort", "imitation:expert=etdagnn+1*connectivity"])
def test_a_restart_changes_no_bit_of_the_other_flocks(reward: str) -> None:
    options: dict[str, Any] = {"environment": BUSY, "reward": reward, "auto_restart": False, "time_step": 0.05}
    flocks, other = (ef.VectorFlocks("flocking", 3, 12, **options) for _ in range(2))
    commands = draw_commands(flocks, 9)
    expected = run(other, commands)
    flocks.reset()
    mask = np.array([True, False, True])
    for n, each in enumerate(commands):
        if n in (3, 4, 7):
            flocks.reset(mask)
        step = flocks.step(each)
        for ours, theirs in zip(step[:5], expected[n], strict=True):
            np.testing.assert_array_equal(ours[1], theirs[1])
    assert flocks.moment.flock_steps.tolist() == [2, 9, 2]


def test_flocks_that_reach_the_duration_restart_by_themselves() -> None:
    flocks = ef.VectorFlocks("flocking", 2, 12, duration=0.3, time_step=0.1)
    commands = draw_commands(flocks, 7)
    first, _ = flocks.reset()
    steps = [flocks.step(each) for each in commands]
    assert [step.truncated.tolist() for step in steps] == [[n in (2, 5)] * 2 for n in range(7)]
    assert not any(step.terminated.any() for step in steps)
    assert ["final_observations" in step.info for step in steps] == [n in (2, 5) for n in range(7)]
    # The last observations of an episode are not the first of the next one, nor are those the same in every episode.
    assert (steps[2].info["final_observations"] != steps[2].observations).any()
    assert (steps[2].observations != first).any() and (steps[5].observations != steps[2].observations).any()
    # One flock alone has the same starts as in a batch.
    alone = ef.VectorFlocks("flocking", 1, 12, duration=0.3, time_step=0.1)
    alone.reset()
    for n, each in enumerate(commands):
        np.testing.assert_array_equal(alone.step(each[:1]).observations[0], steps[n].observations[0])


@pytest.mark.usefixtures("own_registry")
def test_flocks_that_end_are_terminated_and_restart() -> None:
    @ef.scenario("brief")
    @dataclass(frozen=True)
    class Brief:
        success_outcomes: ClassVar[tuple[Outcome, ...]] = (Outcome.ENDED,)
        disk: ef.RandomDisk = SMALL_DISK

        def draw(self, stop: Any = None) -> ef.Flock:
            return self.disk.draw(stop)

        def ending(self) -> Any:
            return lambda times, flock, flying: (times > 0.15) & (np.arange(len(flock)) == 1)

    flocks = ef.VectorFlocks("brief", 3, time_step=0.1)
    steps = run(flocks, draw_commands(flocks, 4))
    assert [step[3].tolist() for step in steps] == [[False, n % 2 == 1, False] for n in range(4)]
    assert not any(step[4].any() for step in steps)
    held = ef.VectorFlocks("brief", 3, time_step=0.1, auto_restart=False)
    held.reset()
    held.step(np.zeros(held.shape))
    step = held.step(np.zeros(held.shape))
    assert step.info["outcomes"].tolist() == [Outcome.FLYING, Outcome.ENDED, Outcome.FLYING]
    assert not step.active[1].any() and step.active[0].all()
    with pytest.raises(InputError, match=r"step\(\) needs flocks that fly, and 1 of 3 have ended: call reset\(mask\)"):
        held.step(np.zeros(held.shape))
    held.reset(step.terminated)
    assert held.step(np.zeros(held.shape)).active.all()


@pytest.mark.usefixtures("own_registry")
def test_a_scenario_that_ends_at_once_is_refused() -> None:
    @ef.scenario("stillborn")
    @dataclass(frozen=True)
    class Stillborn:
        disk: ef.RandomDisk = SMALL_DISK

        def draw(self, stop: Any = None) -> ef.Flock:
            return self.disk.draw(stop)

        def ending(self) -> Any:
            return lambda times, flock, flying: times >= 0.0

    with pytest.raises(InputError, match="a flock of the scenario stillborn has ended at its start: the ending's"):
        ef.VectorFlocks("stillborn").reset()


def test_failed_agents_are_inactive_and_without_reward_and_a_restart_repairs_them() -> None:
    failures = ef.Failures(agents=3, time=0.1, kind="drifting")
    flocks = ef.VectorFlocks(
        "flocking", 2, 12, environment=ef.Environment(failures=failures), duration=0.4, time_step=0.1
    )
    steps = run(flocks, draw_commands(flocks, 5))
    assert [step[2].sum() for step in steps] == [18, 18, 18, 24, 18]
    # An agent that fails during a step is still rewarded for it.
    assert (steps[0][1] != 0).all() and (steps[1][1] == 0).sum() == 6
    np.testing.assert_array_equal(steps[1][1] == 0, ~steps[0][2])


def test_silent_agents_still_obey() -> None:
    environment = ef.Environment(failures=ef.Failures(agents=3, kind="silent"))
    assert ef.VectorFlocks("flocking", 1, 12, environment=environment).reset()[1]["active"].all()


def test_seeds_repeat_and_differ() -> None:
    commands = draw_commands(flocks := ef.VectorFlocks("flocking", 2, 12, duration=0.03, seed=3), 8)
    first = run(flocks, commands)
    assert_same_bits(first, run(ef.VectorFlocks("flocking", 2, 12, duration=0.03, seed=3), commands))
    # A reset with the seed repeats all episodes; one without begins the next.
    flocks.reset(seed=3)
    assert_same_bits(first, [flocks.step(each)[:5] for each in commands])
    observations, _ = flocks.reset()
    other, _ = flocks.reset(seed=4)
    again, _ = flocks.reset(seed=4)
    assert (observations != other).any()
    np.testing.assert_array_equal(other, again)


def test_torch_tensors_share_memory_and_have_the_same_bits() -> None:
    torch = pytest.importorskip("torch")
    plain, tensors = (
        ef.VectorFlocks("flocking", 2, 12, arrays=kind, duration=0.02)  # type: ignore[arg-type]
        for kind in ("numpy", "torch")
    )
    observations, info = tensors.reset()
    plain.reset()
    assert observations.dtype == torch.float32 and info["active"].dtype == torch.bool
    for commands in draw_commands(plain, 4).astype(np.float32):
        ours, theirs = tensors.step(torch.from_numpy(commands)), plain.step(commands)
        assert isinstance(ours.observations, torch.Tensor)
        assert_same_bits([[each.numpy() for each in ours[:5]]], [theirs[:5]])
    # NumPy's results do not change if commands are tensors, and the other way round.
    assert isinstance(plain.step(torch.zeros(2, 12, 2)).rewards, np.ndarray)
    with pytest.raises(InputError, match=r"use .detach\(\) on the tensor"):
        plain.step(torch.zeros(2, 12, 2, requires_grad=True))


@pytest.mark.parametrize(
    "commands",
    [np.zeros((1, 12, 2)), np.zeros((2, 12)), np.full((2, 12, 2), np.nan), np.full((2, 12, 2), np.inf), "a", None],
    ids=["flocks", "dimensions", "nan", "infinity", "text", "none"],
)
def test_wrong_commands_are_refused_and_change_nothing(commands: Any) -> None:
    flocks = ef.VectorFlocks("flocking", 2, 12, reward="imitation:expert=etdagnn")
    expected = run(flocks, good := draw_commands(flocks, 2))
    flocks.reset(seed=0)
    first = flocks.step(good[0])
    with pytest.raises(
        InputError, match=r"accelerations must be (finite numbers of shape \(B, N, D\) = \(2, 12, 2\)|an ar)"
    ):
        flocks.step(commands)
    assert_same_bits([first[:5], flocks.step(good[1])[:5]], expected)


def test_a_step_before_the_first_reset_is_refused() -> None:
    flocks = ef.VectorFlocks("flocking", 2, 12)
    for call in (lambda: flocks.step(np.zeros(flocks.shape)), lambda: flocks.moment):
        with pytest.raises(InputError, match=r"there is no flock in flight yet: call reset\(\) first"):
            call()
    with pytest.raises(InputError, match="the first reset, and one with a seed, begin all flocks: omit mask"):
        flocks.reset([True, False])
    flocks.reset()
    with pytest.raises(InputError, match=r"mask must be booleans of shape \(2,\); got int64 of shape \(3,\)"):
        flocks.reset([0, 1, 1])
    np.testing.assert_array_equal(flocks.reset([False, False])[0], flocks.moment.observations)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scenario": "floking"}, "did you mean 'flocking'"),
        ({"flocks": 0}, "flocks must be a whole number of at least 1"),
        ({"agents": 2}, "agents must be more than min_degree"),
        ({"scenario": "flocking:agents=10", "agents": 12}, "option 'agents' is given twice"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"duration": 0.0}, "duration must be a finite number above 0"),
        ({"time_step": "fast"}, "time_step must be a finite number above 0"),
        ({"arrays": "jax"}, "arrays must be one of 'numpy', 'torch'"),
        ({"environment": "lossy"}, "environment must be an Environment"),
        ({"senses": "all"}, "senses must be a Senses"),
        ({"environment": ef.Environment(failures=ef.Failures(agents=1, time=9.0))}, "fail_time must be at most"),
    ],
)
def test_wrong_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ef.VectorFlocks(**options)
