"""Cucker and Dong's law: its equation, and the core that no two agents come within."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq

import equiflock as ef
from equiflock.flock import Flock
from equiflock.simulation.metrics import minimum_separation, velocity_variance
from tests.controllers.classical.pairwise import accelerations, assert_equal, fly, gap, head_on, imploding, pairs
from tests.flocks import flocks

NAME = "cucker-dong"
STRENGTH, BETA, REPULSION, CORE, THETA = 10.0, 0.4, 0.015, 0.05, 1.75
"""The law's defaults."""


@given(flocks(roles=False), st.sampled_from([0.0, 0.05, 0.7]), st.sampled_from([1.0, 1.75]))
def test_the_law_is_its_equation(flock: Flock, core: float, theta: float) -> None:
    r, v, distance = pairs(flock)
    N = flock.shape[1]
    # Lambda as the paper has it, a sum over pairs.
    disorder = np.sqrt(np.square(v).sum(axis=(1, 2, 3)) / 2 / N)[:, None, None, None]
    push = np.maximum(distance**2 - core**2, 1e-6) ** -theta
    terms = -STRENGTH / N * v / (1.0 + distance**2) ** BETA + 0.3 * disorder * push * r
    found = accelerations(flock, NAME, repulsion=0.3, core=core, theta=theta)
    assert_equal(found, terms.sum(axis=2), terms, NAME)


def test_lambda_excludes_obstacles_and_muted_agents() -> None:
    # A silent agent receives messages, but the others do not receive its own.
    positions, velocities = [[[0.0, 0.0], [0.3, 0.0], [0.9, 0.0]]], [[[1.0, 0.0], [1.0, 0.0], [9.0, 0.0]]]
    flock = Flock(positions, velocities, conditions=[[0, 0, ef.Condition.SILENT]])
    assert not accelerations(flock, NAME)[0, :2].any()  # the two of the flock fly as one
    assert accelerations(flock, NAME)[0, 2].any()


def test_repulsion_vanishes_as_velocities_align() -> None:
    flock = Flock(np.random.default_rng(0).uniform(-0.2, 0.2, (1, 20, 2)), np.ones((1, 20, 2)))
    np.testing.assert_array_equal(accelerations(flock, NAME), 0.0)


# The theorem. For two agents Lambda = |v_ij| / sqrt(2), so that two that meet head-on at a speed u stop where
#     integral from r to r0 of strength phi(s) + sqrt(2) repulsion s (s^2 - core^2)^-theta ds = u0,
# which is somewhere outside the core for every u0, as the integral diverges there.


def stop_at(speed: float) -> float:
    """Where two agents stop that begin 1 apart."""

    def pushed(distance: float) -> float:
        return float((distance**2 - CORE**2) ** (1.0 - THETA) / (2.0 * (THETA - 1.0)))

    def left(distance: float) -> float:
        aligned = quad(lambda s: (1.0 + s * s) ** -BETA, distance, 1.0)[0]
        return float(speed - STRENGTH * aligned - 2.0**0.5 * REPULSION * (pushed(distance) - pushed(1.0)))

    return float(brentq(left, CORE * (1.0 + 1e-6), 1.0))


@pytest.mark.slow
@pytest.mark.parametrize("speed", [8.0, 12.0, 16.0])
def test_two_agents_stop_outside_the_core(speed: float) -> None:
    # They come to rest only in the end; what is left to fly after half a second is little.
    nearest = fly(head_on(speed), NAME, 2e-4, 0.5, [gap]).series["gap"].min()
    assert nearest > CORE
    assert nearest == pytest.approx(stop_at(speed), rel=0.03)


@pytest.mark.parametrize("speed", [12.0, 16.0])
def test_without_repulsion_agents_collide(speed: float) -> None:
    assert fly(head_on(speed), "cucker-smale", 2e-4, 0.5, [gap]).series["gap"].min() < 0.0


@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [2, 3])
def test_converging_flocks_stay_outside_the_core(dimensions: int) -> None:
    start, nearest = imploding(10, 30, dimensions, rate=20.0), {}
    for name in (NAME, "cucker-smale"):
        series = fly(start, name, 2e-4, 0.15, [minimum_separation]).series
        nearest[name] = series["minimum_separation"].min(axis=0)
    assert nearest[NAME].min() > CORE
    assert nearest["cucker-smale"].max() < CORE / 10


@pytest.mark.slow
def test_default_law_keeps_default_flocks_outside_the_core() -> None:
    # With its clamp, and at the usual time step, which the theorem knows nothing of.
    start, nearest = ef.random_disk(flocks=10, agents=100, seed=0), {}
    for name in (NAME, "cucker-smale"):
        run = ef.simulate(start, ef.load(name), duration=2.0, keep_every=None, record=[minimum_separation])
        nearest[name] = run.series["minimum_separation"].min(axis=0)
        assert velocity_variance(run)[-1].max() < 0.01
    assert nearest[NAME].min() > CORE
    assert np.median(nearest["cucker-smale"]) < CORE / 2
