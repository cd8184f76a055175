"""Disks stand one after the other in the flock's way, and leaders fly straight past all of them."""

from __future__ import annotations

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.scenarios.corridor import Corridor
from equiflock.scenarios.obstacle_shapes import obstacle_disks
from equiflock.scenarios.registry import build_flight_options, find_failed_flights

SCENARIO = Corridor(ef.RandomDisk(flocks=5, agents=60, seed=1), disks=4, sides=8, gap=1.5)


@pytest.fixture(scope="module")
def start() -> ef.Flock:
    return SCENARIO.draw()


def test_each_disk_is_a_separate_obstacle_beyond_r_of_all_agents(start: ef.Flock) -> None:
    assert start.shape == (5, 60 + 4 * 8, 2)
    assert (start.obstacles[:, 60:] == np.repeat(range(4), 8)).all()
    gaps = np.linalg.norm(start.positions[:, :60, None] - start.positions[:, None, 60:], axis=-1)
    assert gaps.min() > 1.0


def test_disks_stand_one_after_the_other_left_and_right_of_the_path(start: ef.Flock) -> None:
    lefts = []
    for b in range(5):
        heading = start.velocities[b, 0]
        assert (start.velocities[b, :60] == heading).all()
        disks = obstacle_disks(start[b])
        assert disks[:, 2] == pytest.approx(SCENARIO.radius)
        offsets = disks[:, :2] - start.positions[b, :60].mean(axis=0)
        assert np.diff(offsets @ heading) == pytest.approx(2 * SCENARIO.radius + 1.5)
        lefts += (offsets @ (-heading[1], heading[0])).tolist()
    assert min(lefts) < -0.5
    assert max(lefts) > 0.5
    assert min(map(abs, lefts)) < 0.3


def test_leaders_stay_clear_of_all_disks(start: ef.Flock) -> None:
    assert ((start.roles == ef.Role.LEADER).sum(axis=1) == 2).all()
    for b, i in np.argwhere(start.roles == ef.Role.LEADER):
        way = start.positions[b, i] + np.linspace(0, 30, 3001)[:, None] * start.velocities[b, i]
        for x, y, radius in obstacle_disks(start[int(b)]):
            assert np.linalg.norm(way - (x, y), axis=1).min() >= radius + 0.1 - 1e-9


def test_flocks_do_not_depend_on_their_number(start: ef.Flock) -> None:
    few = Corridor(ef.RandomDisk(flocks=2, agents=60, seed=1), disks=4, sides=8, gap=1.5).draw()
    assert (few.positions == start.positions[:2]).all()


@pytest.mark.slow
def test_some_flocks_pass_and_some_fail() -> None:
    scenario = ef.make_scenario("corridor:flocks=12:disks=2:sides=6")
    run = ef.simulate(
        scenario.draw(),
        ef.load("etdagnn"),
        duration=scenario.duration,
        keep_every=None,
        **build_flight_options(scenario),
    )
    assert 0 < find_failed_flights(scenario, run.outcome).sum() < 12


def test_a_corridor_without_possible_leaders_raises_an_error() -> None:
    with pytest.raises(InputError, match="none of 100 flocks has 2 agents that can lead past 3 disks of 300 sides"):
        ef.make_scenario("corridor", agents=10, sides=300).draw()
    with pytest.raises(InputError, match="gap must be a finite number above 0"):
        ef.make_scenario("corridor:gap=0")


def test_a_corridor_of_too_many_agents_is_refused_before_allocation() -> None:
    with pytest.raises(InputError, match="obstacle agents included, must be at most 100,000,000; got 1,000,000,100"):
        Corridor(disks=1000, sides=1_000_000)


def test_a_corridor_may_have_thousands_of_disks() -> None:
    start = Corridor(ef.RandomDisk(agents=30, min_separation=1e-5), disks=3000, sides=3, leaders=1).draw()
    assert start.obstacles.max() + 1 == 3000
