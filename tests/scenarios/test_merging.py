"""Two flocks start out of range, fly towards each other, and have merged when connected with equal velocities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.outcomes import Outcome
from equiflock.scenarios.merging import MERGED, Merging, UntilMerged
from equiflock.scenarios.registry import build_flight_options, find_failed_flights
from tests.simple import Push

SCENARIO = Merging(ef.RandomDisk(flocks=4, agents=41, seed=2), gap=1.4, approach_speed=0.7)


@pytest.fixture(scope="module")
def start() -> ef.Flock:
    return SCENARIO.draw()


def test_the_two_groups_start_out_of_range(start: ef.Flock) -> None:
    assert start.shape == (4, 41, 2)
    assert (start.groups == [0] * 21 + [1] * 20).all()
    assert (ef.components(start) == start.groups).all()
    nearest = np.linalg.norm(start.positions[:, :21, None] - start.positions[:, None, 21:], axis=-1).min(axis=(1, 2))
    assert (nearest >= 1.4).all()


def test_each_flies_towards_the_other(start: ef.Flock) -> None:
    for b in range(4):
        way = start.velocities[b, 0]
        assert np.linalg.norm(way) == pytest.approx(0.7)
        np.testing.assert_allclose(start.velocities[b], np.where(start.groups[b, :, None] == 0, way, -way))
        ahead = start.positions[b] @ way / 0.7
        assert ahead[21:].min() - ahead[:21].max() == pytest.approx(1.4)


def test_flocks_depend_on_the_seed_but_not_on_their_number(start: ef.Flock) -> None:
    few = Merging(ef.RandomDisk(flocks=2, agents=41, seed=2), gap=1.4, approach_speed=0.7).draw()
    assert (few.positions == start.positions[:2]).all()
    assert (Merging(ef.RandomDisk(flocks=2, agents=41, seed=3)).draw().positions != few.positions).any()


def test_three_dimensions_work() -> None:
    start = ef.make_scenario("merging", agents=30, dimensions=3).draw()
    assert (ef.components(start) == start.groups).all()


def test_groups_have_merged_when_connected_with_small_velocity_variance() -> None:
    still, moving = [[0.0, 0.0]] * 2, [[0.0, 0.0], [1.0, 0.0]]
    near, far = [[0.0, 0.0], [0.9, 0.0]], [[0.0, 0.0], [1.1, 0.0]]
    flock = ef.Flock([near, near, far, near], [still, moving, still, still])
    ended = UntilMerged(0.1)(1.0, flock, np.array([True, True, True, False]))
    assert ended.tolist() == [MERGED, Outcome.FLYING, Outcome.FLYING, Outcome.FLYING]


def test_a_trained_controller_merges_them_and_the_decentralized_law_does_not() -> None:
    scenario = ef.make_scenario("merging:flocks=3")
    failed = {}
    for name in ("etdagnn", "tanner-dynamic"):
        run = ef.simulate(
            scenario.draw(), ef.load(name), duration=4.0, keep_every=None, **build_flight_options(scenario)
        )
        failed[name] = find_failed_flights(scenario, run.outcome).sum()
    assert failed == {"etdagnn": 0, "tanner-dynamic": 3}
    assert run.outcome == (Outcome.TIME_UP,) * 3


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"gap": 1.0}, "gap must be above 1"),
        ({"approach_speed": 0.0}, "approach_speed must be a finite number above 0"),
        ({"variance": -1.0}, "variance must be a finite number above 0"),
        ({"agents": 5}, "agents must be more than min_degree = 2"),
        ({"agents": 1, "min_degree": 0}, "merging needs at least 2 agents; got 1"),
    ],
)
def test_invalid_merging_options_raise_errors(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.make_scenario("merging", **options)


def test_groups_that_only_meet_have_not_merged() -> None:
    slow = Merging(ef.RandomDisk(flocks=2, agents=40), approach_speed=0.3)
    run = ef.simulate(slow.draw(), Push(0.0), duration=8.0, time_step=0.05, ending=slow.ending(), keep_every=None)
    assert run.outcome == (ef.Outcome.TIME_UP,) * 2
