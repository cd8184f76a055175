"""The bonding law: its equation, and agents that end 2 R0 apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import equiflock as ef
from equiflock.flock import Flock
from equiflock.simulation.metrics import velocity_variance
from tests import twins
from tests.controllers.classical.pairwise import Array, accelerations, assert_equal, fly, over_pairs, pairs
from tests.flocks import flocks

APART = 0.9
"""2 R0, by default."""


@pytest.mark.slow
@given(flocks(roles=False), st.sampled_from(["bonding", "bonding-local"]), st.sampled_from([0.0, 0.45, 3.0]))
def test_the_law_is_its_equation(flock: Flock, name: str, half_distance: float) -> None:
    r, v, distance = pairs(flock)
    inner = (v * r).sum(axis=-1, keepdims=True)
    bonds = 3.0 * inner / (2.0 * distance**2) + 5.0 * (distance - 2.0 * half_distance) / (2.0 * distance)
    terms = -7.0 * v / (1.0 + distance**2) ** 0.3 - bonds * r
    expected = over_pairs(flock, terms, name, "mean")
    found = accelerations(flock, name, strength=7.0, beta=0.3, brake=3.0, spring=5.0, half_distance=half_distance)
    assert_equal(found, expected, terms, name)


@pytest.mark.parametrize("name", ["bonding", "bonding-local"])
def test_spring_has_length_twice_r0(name: str) -> None:
    for distance, way in ((0.7, 1.0), (APART, 0.0), (0.95, -1.0)):
        flock = Flock([[[distance, 0.0], [0.0, 0.0]]], np.zeros((1, 2, 2)))
        first, second = accelerations(flock, name)[0]
        assert np.sign(np.round(first[0], 5)) == way
        np.testing.assert_allclose(first, -second, atol=1e-12)


def test_brake_acts_along_the_line_between_agents_only() -> None:
    flock = Flock([[[APART, 0.0], [0.0, 0.0]]], [[[1.0, 2.0], [0.0, 0.0]]])
    # K1 <v, r> / (2 |r|^2) towards the other agent, and 1/N.
    found = accelerations(flock, "bonding", strength=0.0, spring=0.0, brake=20.0)[0]
    np.testing.assert_allclose(found, [[-5.0, 0.0], [5.0, 0.0]], atol=1e-12)


@pytest.mark.parametrize(("agents", "dimensions"), [(3, 2), (4, 3), (2, 2), (2, 3), (3, 3)])
def test_three_agents_in_the_plane_and_four_in_space_end_twice_r0_apart(agents: int, dimensions: int) -> None:
    rng = np.random.default_rng(0)
    start = Flock(rng.uniform(-2, 2, (30, agents, dimensions)), rng.normal(size=(30, agents, dimensions)) * 2.0)
    run = fly(start, "bonding", 0.01, 12.0)
    distances = np.array([twins.distances(positions) for positions in run.positions[-1]])
    np.testing.assert_allclose(distances, APART, rtol=1e-3)
    assert velocity_variance(run)[-1].max() < 1e-6


def test_centralized_springs_compress_large_flocks() -> None:
    start = ef.random_disk(flocks=2, agents=50, seed=0)
    nearest = neighbour_distances(fly(start, "bonding", 0.01, 10.0).positions[-1])
    assert np.median(nearest) < APART / 2


def neighbour_distances(positions: Array, comm_radius: float = 1.0) -> Array:
    """Return, for each agent with neighbours, the median distance from up to six nearest within R."""
    found = []
    for flock in positions:
        for i, place in enumerate(flock):
            distances = np.sort(np.sqrt(np.square(np.delete(flock, i, axis=0) - place).sum(axis=-1)))[:6]
            if distances[0] <= comm_radius:
                found.append(np.median(distances[distances <= comm_radius]))
    return np.array(found)


@pytest.mark.parametrize("agents", [50, 100])
@pytest.mark.parametrize("dimensions", [2, 3])
def test_local_law_ends_with_neighbours_twice_r0_apart(agents: int, dimensions: int) -> None:
    start = ef.random_disk(flocks=5, agents=agents, seed=0, dimensions=dimensions)
    begun, ended = (neighbour_distances(each) for each in fly(start, "bonding-local", 0.01, 10.0).positions)
    assert len(ended) > 0.9 * 5 * agents
    assert np.median(ended) == pytest.approx(APART, rel=0.01)
    assert (np.abs(ended / APART - 1.0) < 0.05).mean() > 0.9
    assert (np.abs(begun / APART - 1.0) < 0.05).mean() < 0.3  # so it was no matter of the start
