"""Reynolds' three rules: their equation, and what each does alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import equiflock as ef
from equiflock.flock import Flock
from equiflock.simulation.metrics import velocity_variance
from tests.controllers.classical.pairwise import accelerations, assert_equal, fly, neighbour_mask, over_pairs, pairs
from tests.flocks import flocks

NAME = "reynolds"


def only(rule: str, weight: float = 1.0) -> dict[str, Any]:
    """The options by which the other rules say nothing."""
    return {**dict.fromkeys(("alignment", "cohesion", "separation"), 0.0), rule: weight}


@given(flocks(roles=False), st.sampled_from([0.0, 0.2, 0.9, 3.0]))
def test_the_law_is_its_equation(flock: Flock, nearer: float) -> None:
    r, v, distance = pairs(flock)
    push = np.maximum(1.0 / distance**2 - 1.0 / nearer**2, 0.0) if nearer > 0.0 else 0.0
    terms = -2.0 * v - 3.0 * r + 0.7 * push * r
    # Those out of reach are far away, and no part of the sums.
    expected, size = over_pairs(flock, terms, NAME, "mean"), terms * neighbour_mask(flock)
    assert_equal(
        accelerations(flock, NAME, alignment=2.0, cohesion=3.0, separation=0.7, distance=nearer), expected, size, NAME
    )


def test_alignment_approaches_the_mean_velocity_of_neighbours() -> None:
    velocities = [[[1.0, 0.0], [3.0, 2.0], [5.0, -4.0], [9.0, 9.0]]]
    flock = Flock([[[0.0, 0.0], [0.5, 0.0], [0.0, 0.5], [5.0, 0.0]]], velocities)
    np.testing.assert_allclose(accelerations(flock, NAME, **only("alignment", 2.0))[0, 0], [6.0, -2.0], rtol=1e-6)
    rng = np.random.default_rng(0)
    near = Flock(rng.uniform(-0.3, 0.3, (1, 20, 3)), rng.normal(size=(1, 20, 3)), comm_radius=100.0)
    run = fly(near, NAME, 0.01, 4.0, **only("alignment", 5.0))
    assert velocity_variance(run)[-1, 0] < 1e-6


def test_cohesion_pulls_towards_the_centre_of_neighbours() -> None:
    flock = Flock([[[0.0, 0.0], [0.5, 0.0], [0.1, 0.6], [5.0, 0.0]]], np.zeros((1, 4, 2)))
    np.testing.assert_allclose(accelerations(flock, NAME, **only("cohesion", 2.0))[0, 0], [0.6, 0.6], rtol=1e-6)
    # It looks at places alone.
    moving = Flock(flock.positions, np.random.default_rng(0).normal(size=(1, 4, 2)))
    assert np.array_equal(*(accelerations(each, NAME, **only("cohesion")) for each in (flock, moving)))


@pytest.mark.parametrize("nearer", [0.1, 0.5])
def test_separation_acts_below_its_distance_only(nearer: float) -> None:
    for distance in (0.5 * nearer, 0.99 * nearer, nearer, 1.5 * nearer):
        flock = Flock([[[distance, 0.0], [0.0, 0.0]]], [[[1.0, 1.0], [-1.0, 1.0]]])
        found = accelerations(flock, NAME, **only("separation", 2.0), distance=nearer)[0]
        size = 2.0 * max(1.0 / distance - distance / nearer**2, 0.0)
        np.testing.assert_allclose(found, [[size, 0.0], [-size, 0.0]], rtol=1e-5, atol=1e-5 / nearer)


def test_separation_is_continuous_at_its_distance() -> None:
    # Two agents at rest that fly apart: u^2 / 2 = 2 (ln(d / r0) - (1 - (r0 / d)^2) / 2), and constant from d on.
    start = Flock([[[0.1, 0.0], [0.0, 0.0]]], np.zeros((1, 2, 2)))
    run = fly(start, NAME, 1e-4, 0.3, **only("separation"), distance=0.4)
    speed = run.velocities[-1, 0, 0, 0] - run.velocities[-1, 0, 1, 0]
    assert speed == pytest.approx(2.0 * (np.log(4.0) - (1.0 - 1.0 / 16.0) / 2.0) ** 0.5, rel=1e-3)
    assert run.positions[-1, 0, 0, 0] - run.positions[-1, 0, 1, 0] > 0.4


def test_zero_gains_give_zero_accelerations() -> None:
    start = ef.random_disk(2, 30, seed=0)
    assert not accelerations(start, NAME, alignment=0.0, cohesion=0.0, separation=0.0).any()


def test_three_rules_align_a_flock_and_keep_distances() -> None:
    start = ef.random_disk(5, 100, seed=0)
    run = ef.simulate(start, ef.load(NAME), duration=5.0, keep_every=None)
    assert (velocity_variance(run)[-1] < 0.1 * velocity_variance(run)[0]).all()
