"""The singular law: its equation, and the distance that no two agents go below for alpha >= 1."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equiflock.flock import Flock
from equiflock.simulation.metrics import minimum_separation, velocity_variance
from tests.controllers.classical.pairwise import (
    Array,
    accelerations,
    assert_equal,
    fly,
    gap,
    head_on,
    imploding,
    over_pairs,
    pairs,
)
from tests.flocks import flocks

NAME = "cucker-smale-singular"
STRENGTH = 10.0
"""The law's default."""


@given(flocks(roles=False), st.sampled_from([NAME, f"{NAME}-local"]), st.sampled_from([0.0, 0.5, 1.0, 2.0]))
def test_the_law_is_its_equation(flock: Flock, name: str, alpha: float) -> None:
    _, v, distance = pairs(flock)
    terms = -7.0 * v / distance**alpha
    expected = over_pairs(flock, terms, name, "mean")
    assert_equal(accelerations(flock, name, strength=7.0, alpha=alpha), expected, terms, name)


# The theorem. Two agents that meet head-on at a speed u: du/dr = strength r^-alpha, so that they stop where
#     strength (integral of r^-alpha from r to r0) = u0,
# which is somewhere above 0 for every u0 if alpha >= 1, as the integral diverges.


def stop_at(alpha: float, speed: float) -> float:
    """Where two agents stop that begin 1 apart."""
    if alpha == 1.0:
        return math.exp(-speed / STRENGTH)
    return float((1.0 + (alpha - 1.0) * speed / STRENGTH) ** (1.0 / (1.0 - alpha)))


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("speed", [10.0, 30.0])
def test_for_alpha_of_at_least_one_two_agents_stop_before_contact(alpha: float, speed: float) -> None:
    run = fly(head_on(speed), NAME, 2e-4, 0.6, [gap], alpha=alpha)
    assert run.series["gap"].min() == pytest.approx(stop_at(alpha, speed), rel=0.01)
    assert velocity_variance(run)[-1, 0] < 1e-6


@pytest.mark.slow
def test_for_alpha_below_one_two_agents_meet() -> None:
    # The integral up to 0 is 2 sqrt(r0) for alpha = 1/2, so agents faster than 2 strength meet, at the speed left over.
    speed = 30.0
    start = head_on(speed)

    def closing(moment: object) -> Array:
        velocities: Array = moment.flock.velocities  # type: ignore[attr-defined]
        return velocities[:, 1, 0] - velocities[:, 0, 0]

    series = fly(start, NAME, 2e-5, 0.1, {"gap": gap, "closing": closing}, alpha=0.5).series
    met = int(np.argmax(series["gap"][:, 0] <= 0.0))
    assert met > 0
    assert series["closing"][met, 0] == pytest.approx(speed - 2.0 * STRENGTH, rel=0.05)
    # A slower pair stops in time.
    assert fly(head_on(15.0), NAME, 2e-4, 1.0, [gap], alpha=0.5).series["gap"].min() == pytest.approx(0.0625, rel=0.05)


def in_file(flocks: int, agents: int) -> Flock:
    """Flocks on a line, at least 0.1 apart, which fly along it at random speeds."""
    rng = np.random.default_rng(1)
    places = np.sort(rng.uniform(0, 2, (flocks, agents)), axis=1) + 0.1 * np.arange(agents)
    speeds = rng.normal(size=(flocks, agents)) * 3.0
    return Flock(*(np.stack([each, np.zeros_like(each)], axis=-1) for each in (places, speeds)))


def least_gap(moment: object) -> Array:
    """The least distance of an agent from the next one on the line, negative once somebody has passed."""
    return np.diff(moment.flock.positions[:, :, 0], axis=1).min(axis=1)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("alpha", "passed"), [(0.5, True), (1.0, False), (2.0, False)])
def test_for_alpha_of_at_least_one_agents_on_a_line_keep_their_order(alpha: float, passed: bool) -> None:
    gaps = fly(in_file(20, 10), NAME, 4e-4, 0.4, [least_gap], alpha=alpha, strength=20.0).series["least_gap"]
    assert gaps[0].min() > 0.1
    assert (gaps.min(axis=0) < 0.0).sum() > 3 if passed else gaps.min() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [2, 3])
def test_for_alpha_of_at_least_one_converging_flocks_do_not_collide(dimensions: int) -> None:
    start, nearest = imploding(10, 30, dimensions, rate=20.0), {}
    for alpha in (0.5, 1.0, 2.0):
        run = fly(start, NAME, 5e-4, 0.3, [minimum_separation], alpha=alpha)
        nearest[alpha] = run.series["minimum_separation"].min(axis=0)
    assert nearest[0.5].max() < 0.003
    assert nearest[1.0].min() > 0.01
    assert nearest[2.0].min() > 0.04
