"""Leaders are drawn at random, share one velocity, and all other agents are as in the RandomDisk set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.scenarios.leaders import LeaderVelocity

DISK = ef.RandomDisk(flocks=20, agents=30, seed=2)


def test_two_leaders_of_each_flock_share_the_mean_of_their_velocities() -> None:
    start, plain = ef.LeaderFollowing(DISK).draw(), DISK.draw()
    leads = start.roles == ef.Role.LEADER
    assert (leads.sum(axis=1) == 2).all()
    assert (start.positions == plain.positions).all()
    assert (start.velocities[~leads] == plain.velocities[~leads]).all()
    for b in range(20):
        common = plain.velocities[b, leads[b]].mean(axis=0)
        np.testing.assert_array_equal(start.velocities[b, leads[b]], [common, common])
    assert len({tuple(np.flatnonzero(row)) for row in leads}) > 10


def test_other_interpretations_of_the_leaders_velocity() -> None:
    plain = DISK.draw()
    readings = {name: ef.LeaderFollowing(DISK, leader_velocity=name).draw() for name in get_args(LeaderVelocity)}
    leads = readings["first"].roles[0] == ef.Role.LEADER
    own = plain.velocities[0, leads].tolist()
    assert readings["first"].velocities[0, leads][0].tolist() in own
    np.testing.assert_allclose(readings["flock"].velocities[0, leads][0], plain.velocities[0].mean(axis=0))
    assert (np.abs(readings["fresh"].velocities[0, leads]) <= 3).all()
    for start in readings.values():
        assert (start.roles == readings["first"].roles).all()
        np.testing.assert_array_equal(*start.velocities[0, leads])


@pytest.mark.parametrize("dimensions", [2, 3])
def test_a_diagonal_velocity_is_one_draw_for_all_entries(dimensions: Any) -> None:
    disk = replace(DISK, flocks=300, dimensions=dimensions, max_speed=2.0)
    start = ef.LeaderFollowing(disk, leader_velocity="diagonal").draw()
    common = start.velocities[start.roles == ef.Role.LEADER].reshape(300, 2 * dimensions)
    assert (common == common[:, :1]).all()
    assert len(np.unique(common[:, 0])) == 300
    assert np.abs(common).max() <= 2.0
    assert np.isclose(common[:, 0].var(), 4.0 / 3.0, rtol=0.15)  # the variance of a uniform number in [-2, 2]


def test_a_fresh_velocity_follows_the_rule_of_the_disk() -> None:
    disk = replace(DISK, flocks=300, velocities="disc")
    start, entries = (
        ef.LeaderFollowing(each, leader_velocity="fresh").draw() for each in (disk, replace(DISK, flocks=300))
    )
    leads = start.roles == ef.Role.LEADER
    assert (leads == (entries.roles == ef.Role.LEADER)).all()
    assert np.linalg.norm(start.velocities[leads], axis=-1).max() <= 3.0 * (1 + 1e-15)
    assert np.linalg.norm(entries.velocities[leads], axis=-1).max() > 3.0


def test_flocks_do_not_depend_on_their_number() -> None:
    few = ef.LeaderFollowing(ef.RandomDisk(flocks=3, agents=30, seed=2)).draw()
    many = ef.LeaderFollowing(DISK).draw()
    assert (few.roles == many.roles[:3]).all()
    assert (few.velocities == many.velocities[:3]).all()


def test_followers_take_on_the_leaders_velocity() -> None:
    start = ef.LeaderFollowing(ef.RandomDisk(flocks=3, seed=1)).draw()
    run = ef.simulate(start, ef.load("tdagnn-tf-mean"), duration=2.0)
    distance = ef.metrics.mean_leader_velocity_distance(run)
    assert (distance[-1] < 0.5 * distance[0]).all()


def test_invalid_leader_options_raise_errors() -> None:
    with pytest.raises(InputError, match="did you mean 'mean'"):
        ef.LeaderFollowing(DISK, leader_velocity="means")
    with pytest.raises(InputError, match="leaders must be fewer than agents = 30; got 30"):
        ef.LeaderFollowing(DISK, leaders=30)


def test_a_flock_instead_of_a_disk_raises_an_error() -> None:
    with pytest.raises(InputError, match=r"disk must be an equiflock.RandomDisk; got Flock\("):
        ef.LeaderFollowing(ef.random_disk())
