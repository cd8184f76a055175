"""An obstacle stands in front of the flock, beyond R of all agents, and leaders fly past it."""

from __future__ import annotations

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from tests import twins

COURSE = ef.ObstacleCourse(ef.RandomDisk(flocks=8, agents=60, seed=3), sides=24)


@pytest.fixture(scope="module")
def start() -> ef.Flock:
    return COURSE.draw()


def test_the_rim_is_a_regular_polygon_with_sides_of_the_least_separation(start: ef.Flock) -> None:
    assert start.shape == (8, 84, 2)
    assert ((start.roles == ef.Role.OBSTACLE).sum(axis=1) == 24).all()
    rim = start.positions[:, 60:]
    np.testing.assert_allclose(np.linalg.norm(rim - np.roll(rim, 1, axis=1), axis=-1), 0.1)
    centre = rim.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(np.linalg.norm(rim - centre, axis=-1), COURSE.radius)
    assert not start.velocities[:, 60:].any()


def test_the_centre_is_ahead_just_beyond_r_of_all_agents(start: ef.Flock) -> None:
    for b in range(8):
        flock, centre = start.positions[b, :60], start.positions[b, 60:].mean(axis=0)
        pairs = [(np.linalg.norm(p - q), i, j) for i, p in enumerate(flock) for j, q in enumerate(flock[:i])]
        _, i, j = max(pairs)
        middle, apart = (flock[i] + flock[j]) / 2, flock[i] - flock[j]
        assert abs((centre - middle) @ apart) < 1e-9
        assert np.linalg.norm(flock - centre, axis=1).min() == pytest.approx(COURSE.radius + 1.0, rel=1e-6)
        heading = (centre - middle) / np.linalg.norm(centre - middle)
        np.testing.assert_allclose(start.velocities[b, :60], np.broadcast_to(heading, (60, 2)), atol=1e-12)
        assert not twins.adjacency(start.positions[b], start.roles[b], 1.0)[:60, 60:].any()
        facing = start.positions[b, 60] - centre
        np.testing.assert_allclose(facing, -COURSE.radius * heading, atol=1e-9)


def test_leaders_stay_clear_of_the_obstacle(start: ef.Flock) -> None:
    assert ((start.roles == ef.Role.LEADER).sum(axis=1) == 2).all()
    centre = start.positions[:, 60:].mean(axis=1)
    for b, i in np.argwhere(start.roles == ef.Role.LEADER):
        way = start.positions[b, i] + np.linspace(0, 20, 2001)[:, None] * start.velocities[b, i]
        assert np.linalg.norm(way - centre[b], axis=1).min() >= COURSE.radius + 0.1 - 1e-9


def test_the_obstacle_stands_on_either_side(start: ef.Flock) -> None:
    plain = COURSE.disk.draw()
    sides = set()
    for b in range(8):
        i, j = max(
            (
                (np.linalg.norm(p - q), i, j)
                for i, p in enumerate(plain.positions[b])
                for j, q in enumerate(plain.positions[b][:i])
            )
        )[1:]
        apart = plain.positions[b, i] - plain.positions[b, j]
        sides.add(bool(apart[0] * start.velocities[b, 0, 1] - apart[1] * start.velocities[b, 0, 0] > 0))
    assert sides == {True, False}


def test_a_course_depends_on_the_seed_but_not_on_the_number_of_flocks(start: ef.Flock) -> None:
    few = ef.ObstacleCourse(ef.RandomDisk(flocks=3, agents=60, seed=3), sides=24).draw()
    assert (few.positions == start.positions[:3]).all()
    assert (few.roles == start.roles[:3]).all()


def test_a_flock_without_possible_leaders_is_redrawn_and_finally_raises_an_error() -> None:
    narrow = ef.RandomDisk(flocks=6, agents=12, seed=0, disk_radius=0.9)
    start = ef.ObstacleCourse(narrow, sides=46).draw()
    plain = narrow.draw()
    redrawn = (start.positions[:, :12] != plain.positions).any(axis=(1, 2))
    assert redrawn.any()
    assert ((start.roles == ef.Role.LEADER).sum(axis=1) == 2).all()
    with pytest.raises(InputError, match="none of 100 flocks has 2 agents that can lead past an obstacle of 54 sides"):
        ef.ObstacleCourse(narrow, sides=54).draw()


def test_its_options_reach_the_ending() -> None:
    ending = ef.ObstacleCourse(clear_time=2.0, obstacle_node="each", awareness="flock").ending()
    assert (ending.clear_time, ending.obstacle_node, ending.awareness) == (2.0, "each", "flock")
    assert ef.ObstacleCourse().ending().awareness == "followers"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sides": 2}, "sides must be a whole number of at least 3; got 2"),
        ({"clear_time": 0.0}, "clear_time must be a finite number above 0"),
        ({"obstacle_node": "ones"}, "obstacle_node must be one of 'one', 'each'"),
        ({"awareness": "leaders"}, "awareness must be one of 'followers', 'flock'; got 'leaders'"),
        ({"leaders": 0}, "leaders must be a whole number of at least 1; got 0"),
        ({"disk": ef.RandomDisk(dimensions=3)}, "an obstacle course needs dimensions = 2; got 3"),
    ],
)
def test_invalid_course_options_raise_errors(options: dict[str, object], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.ObstacleCourse(**options)


def test_a_flock_instead_of_a_disk_raises_an_error() -> None:
    with pytest.raises(InputError, match=r"disk must be an equiflock.RandomDisk; got Flock\("):
        ef.ObstacleCourse(ef.random_disk())
