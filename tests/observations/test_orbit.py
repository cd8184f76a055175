"""Followers dodge what is ahead of them, bend around what is beside them, and turn with the world."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError
from equiflock.features import paper_senses
from equiflock.flock import Flock, Role
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.observations.orbit import Orbit
from tests import twins

ANGLES = st.floats(0.0, 2 * math.pi)


def taken(way: tuple[float, float], velocity: tuple[float, float], orbit: Orbit | None = None) -> NDArray[Any]:
    """-v_ij that a follower at the origin takes an obstacle agent to have, alone with it."""
    flock = Flock([[[0.0, 0.0], way]], [[velocity, [0.0, 0.0]]], [[Role.FOLLOWER, Role.OBSTACLE]])
    senses = DelayedAggregation(paper_senses("sum", 1), comm_radius=1.0, orbit=orbit or Orbit())
    return -senses.observe(flock)[0, 0, 0, 0]


def test_an_obstacle_ahead_to_the_left_is_dodged_to_the_right_and_the_other_way_round() -> None:
    size = math.exp(-0.5) + math.exp(-1.0)
    left = (0.4, 0.3)
    np.testing.assert_allclose(taken(left, (1.0, 0.0)), size * np.array([0.6, -0.8]), rtol=1e-6)
    np.testing.assert_allclose(taken((0.4, -0.3), (1.0, 0.0)), size * np.array([0.6, 0.8]), rtol=1e-6)


def test_an_obstacle_beside_or_a_little_behind_draws_the_follower_towards_it() -> None:
    size = math.exp(-0.5) + math.exp(-2.0)
    np.testing.assert_allclose(taken((0.0, 0.5), (2.0, 0.0)), [0.0, size], atol=1e-6)
    a_little_behind = (-0.3, 0.4)  # the discriminant is -0.6, so not with 0.5
    np.testing.assert_allclose(
        taken(a_little_behind, (2.0, 0.0), Orbit(gravity_break=0.7)), size * np.array([-0.6, 0.8]), rtol=1e-6
    )


def test_an_obstacle_behind_does_not_attract() -> None:
    size = math.exp(-0.5) + math.exp(-2.0)
    # Tangent to a circle around it: to the right, as it is to the left.
    np.testing.assert_allclose(taken((-0.3, 0.4), (2.0, 0.0)), size * np.array([0.8, 0.6]), rtol=1e-6)


def test_zero_mean_velocity_attracts_and_straight_ahead_counts_as_left() -> None:
    size = math.exp(-0.5) + 1.0
    np.testing.assert_allclose(taken((0.5, 0.0), (0.0, 0.0)), [size, 0.0], atol=1e-6)
    size = math.exp(-0.5) + math.exp(-1.0)
    np.testing.assert_allclose(taken((0.5, 0.0), (1.0, 0.0)), [0.0, -size], atol=1e-6)
    assert not taken((0.0, 0.0), (1.0, 0.0)).any()  # on top of it


def test_heading_is_the_mean_velocity_of_the_follower_and_its_neighbours() -> None:
    """The follower heads left of the obstacle, its neighbour and the mean of both head right of it."""
    way, own, others = (0.5, 0.0), (1.0, 0.5), (1.0, -1.5)
    roles = [[Role.FOLLOWER, Role.OBSTACLE, Role.LEADER, Role.OBSTACLE]]
    places = [[[0.0, 0.0], way, [0.0, 0.6], [0.9, 0.0]]]
    flock = Flock(places, [[own, [0.0, 0.0], others, [0.0, 0.0]]], roles)
    senses = DelayedAggregation(paper_senses("sum", 1), comm_radius=1.0, orbit=Orbit())
    from_leader = np.subtract(own, others)
    mean = np.array([1.0, -0.5])
    expected = from_leader + twins.orbit_velocity(np.array(way), mean, Orbit())
    np.testing.assert_allclose(senses.observe(flock)[0, 0, 0, 0], expected, atol=1e-6)


@given(st.integers(0, 2**32 - 1), ANGLES, st.floats(0.0, 1.0))
def test_virtual_velocity_is_equivariant(seed: int, angle: float, gravity_break: float) -> None:
    rng = np.random.default_rng(seed)
    roles = rng.permutation([Role.OBSTACLE] * 5 + [Role.LEADER] * 2 + [Role.FOLLOWER] * 8).astype(np.int8)
    velocities = rng.normal(size=(15, 2)) * (roles != Role.OBSTACLE)[:, None]
    flock = Flock(rng.uniform(-1, 1, (1, 15, 2)), velocities[None], roles[None])
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    turned = Flock(flock.positions @ turn.T, flock.velocities @ turn.T, flock.roles)
    orbit = Orbit(gravity_break=gravity_break, dodge_angle=1.0)
    one, two = (DelayedAggregation(paper_senses("sum", 1), comm_radius=1.0, orbit=orbit) for _ in range(2))
    expected = one.observe(flock) @ turn.T
    np.testing.assert_allclose(two.observe(turned), expected, rtol=1e-3, atol=1e-5 * (1 + np.abs(expected).max()))


@given(ANGLES, ANGLES, st.floats(0.1, 0.9))
def test_only_the_right_angle_treats_left_and_right_alike(where: float, heading: float, distance: float) -> None:
    way = distance * math.cos(where), distance * math.sin(where)
    velocity = math.cos(heading), math.sin(heading)
    ahead = math.cos(where - heading)
    assume(min(abs(ahead), abs(ahead + 0.5), abs(math.sin(where - heading))) > 1e-3)
    mirrored = taken((way[0], -way[1]), (velocity[0], -velocity[1]))
    np.testing.assert_allclose(mirrored, taken(way, velocity) * [1, -1], rtol=1e-4, atol=1e-6)
    if ahead > 0:
        oblique = Orbit(dodge_angle=1.0)
        skewed = taken((way[0], -way[1]), (velocity[0], -velocity[1]), oblique)
        assert not np.allclose(skewed, taken(way, velocity, oblique) * [1, -1], rtol=1e-2)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"gravity_break": 1.5}, "gravity_break must be from 0 to 1; got 1.5"),
        ({"dodge_angle": 0.0}, "dodge_angle must be above 0 and at most pi/2; got 0.0"),
        ({"near": -1.0}, "near must be a finite number of at least 0; got -1.0"),
        ({"near": 10**400}, "near must be a finite number of at least 0; got 1000"),
        ({"gravity_break": "much"}, "gravity_break must be from 0 to 1; got 'much'"),
        ({"slow": math.nan}, "slow must be a finite number of at least 0; got nan"),
    ],
)
def test_invalid_parameters_are_rejected(options: dict[str, float], text: str) -> None:
    with pytest.raises(InputError, match=text):
        Orbit(**options)


def test_a_flock_without_obstacles_is_unaffected_by_one_with_obstacles_in_the_same_batch() -> None:
    positions = np.array([[[0.0, 0.0], [0.3, 0.2]], [[0.0, 0.0], [0.3, 0.2]]])
    velocities = np.array([[[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])
    flock = Flock(positions, velocities, [[Role.FOLLOWER, Role.OBSTACLE], [Role.FOLLOWER, Role.FOLLOWER]])
    together, alone = (DelayedAggregation(paper_senses("mean", 1), orbit=Orbit()).observe(x) for x in (flock, flock[1]))
    np.testing.assert_array_equal(together[1], alone[0])
