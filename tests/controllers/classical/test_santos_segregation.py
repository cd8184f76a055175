"""The segregating law: its equation, which is the gradient of its potential, and the distances that agents like."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equiflock.controllers.classical.santos_segregation import segregation_gradient
from equiflock.flock import Flock
from equiflock.simulation.metrics import minimum_separation, velocity_variance
from tests.controllers.classical.pairwise import (
    Array,
    accelerations,
    assert_equal,
    fly,
    neighbour_mask,
    over_pairs,
    pairs,
)
from tests.flocks import flocks

NAMES = ("segregation", "segregation-local")
WITHIN, BETWEEN = 0.4, 1.0
"""The distances that agents like here."""
PUBLISHED = {"gain": 1.0, "within": WITHIN, "between": BETWEEN, "unit": 1.0}
"""The law in the units of its paper."""


def potential(distance: Array, liked: Array | float) -> Array:
    """U(r) = (r - d)^2 / 2 + ln r + d / r."""
    return (distance - liked) ** 2 / 2.0 + np.log(distance) + liked / distance


def kin(flock: Flock) -> Array:
    """(B, N, N, 1), whether two agents are of the same group."""
    return (flock.groups[:, :, None] == flock.groups[:, None])[..., None]


@given(flocks(roles=False), st.integers(0, 99), st.sampled_from(NAMES))
def test_the_law_is_its_equation(flock: Flock, seed: int, name: str) -> None:
    flock = dataclasses.replace(flock, groups=np.random.default_rng(seed).integers(0, 3, flock.shape[:2]))
    r, v, distance = pairs(flock)
    liked = np.where(kin(flock), 0.3, 0.8)
    terms = -2.0 * v - 3.0 * (distance - liked) * (1.0 + 0.2**2 / distance**2) * r / distance
    expected = over_pairs(flock, terms, name, "sum")
    found = accelerations(flock, name, alignment=2.0, gain=3.0, within=0.3, between=0.8, unit=0.2)
    assert_equal(found, expected, terms * neighbour_mask(flock) if name.endswith("local") else terms, name)


@pytest.mark.parametrize("liked", [0.0, 0.4, 1.0, 5.0])
def test_the_feature_is_the_gradient_of_the_potential(liked: float) -> None:
    distances, step = np.geomspace(0.05, 20.0, 200), 1e-6
    slope = (potential(distances + step, liked) - potential(distances - step, liked)) / (2.0 * step)
    weights = np.array([segregation_gradient(distance**2, liked, 1.0) for distance in distances.tolist()])
    np.testing.assert_allclose(weights * distances, slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_agents_at_rest_accelerate_down_the_potential_of_the_flock(name: str, dimensions: int) -> None:
    rng = np.random.default_rng(2)
    flock = Flock(
        rng.uniform(-0.8, 0.8, (1, 12, dimensions)), np.zeros((1, 12, dimensions)), groups=rng.integers(0, 3, (1, 12))
    )
    counted = ~np.eye(12, dtype=bool)[None, ..., None] & (neighbour_mask(flock) if name.endswith("local") else True)
    liked = np.where(kin(flock), WITHIN, BETWEEN)

    def total(positions: Array) -> float:
        _, _, distance = pairs(dataclasses.replace(flock, positions=positions))
        return float(np.where(counted, potential(distance, liked), 0.0).sum() / 2.0)

    slope, step = np.zeros_like(flock.positions), 1e-6
    for place in np.ndindex(*slope.shape):
        there, back = flock.positions.copy(), flock.positions.copy()
        there[place], back[place] = there[place] + step, back[place] - step
        slope[place] = (total(there) - total(back)) / (2.0 * step)
    np.testing.assert_allclose(accelerations(flock, name, **PUBLISHED), -slope, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("groups", "liked"), [([0, 0], WITHIN), ([0, 1], BETWEEN)])
def test_two_agents_settle_at_the_preferred_distance(groups: list[int], liked: float) -> None:
    distances = np.array([0.1, 0.5, 0.9, 1.0, 1.1, 2.0, 10.0]) * liked
    assert potential(distances, liked).argmin() == 3
    positions = np.stack([[[distance, 0.0], [0.0, 0.0]] for distance in distances])
    start = Flock(positions, np.zeros_like(positions), groups=[groups] * len(distances))
    pushes = accelerations(start, "segregation", **PUBLISHED)[:, 0, 0]
    np.testing.assert_array_equal(np.sign(pushes.round(12)), [1, 1, 1, 0, -1, -1, -1])
    ended = fly(start, "segregation", 0.002, 15.0, **PUBLISHED).positions[-1]
    np.testing.assert_allclose(ended[:, 0, 0] - ended[:, 1, 0], liked, rtol=1e-3)


@pytest.mark.slow
def test_energy_decreases_velocities_align_and_agents_do_not_collide() -> None:
    rng = np.random.default_rng(0)
    start = Flock(rng.uniform(-1.5, 1.5, (5, 15, 2)), rng.normal(size=(5, 15, 2)), groups=rng.integers(0, 3, (5, 15)))

    def energy(moment: object) -> Array:
        flock: Flock = moment.flock  # type: ignore[attr-defined]
        _, v, distance = pairs(flock)
        own = np.eye(15, dtype=bool)[None, ..., None]
        height = np.where(own, 0.0, potential(distance, np.where(kin(flock), WITHIN, BETWEEN))).sum(axis=(1, 2, 3)) / 2
        # The energy of motion about the mean velocity, which the law keeps.
        return height + np.square(v).sum(axis=(1, 2, 3)) / 4 / 15

    energies = fly(start, "segregation", 2e-3, 1.0, {"energy": energy}, **PUBLISHED).series["energy"]
    assert (np.diff(energies, axis=0) < 0.0).all()
    run = fly(start, "segregation", 5e-3, 20.0, [minimum_separation], **PUBLISHED)
    # U is positive, so that of the nearest pair is never more than the energy of the start.
    nearest = run.series["minimum_separation"].min(axis=0)
    assert min(potential(np.array([WITHIN, BETWEEN]), np.array([WITHIN, BETWEEN]))) > 0.0
    assert (potential(nearest, WITHIN) < energies[0]).all() and nearest.min() > 0.04
    first, last = velocity_variance(run)
    assert (last < 1e-2 * first).all()
    assert np.abs(np.diff(run.velocities.mean(axis=2), axis=0)).max() < 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_flock_of_one_group_has_one_preferred_distance(name: str) -> None:
    flock = Flock(*np.random.default_rng(0).uniform(-1, 1, (2, 1, 20, 2)))
    assert np.array_equal(*(accelerations(flock, name, between=between) for between in (1.0, 7.0)))
