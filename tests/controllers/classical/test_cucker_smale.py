"""Cucker and Smale's law: its equation, the mean velocity that it keeps, and who comes to fly as one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equiflock.flock import Flock
from equiflock.simulation.metrics import velocity_variance
from tests.controllers.classical.pairwise import accelerations, assert_equal, fly, gap, head_on, over_pairs, pairs
from tests.flocks import flocks

STRENGTH = 10.0
"""The law's default."""


@given(flocks(roles=False), st.sampled_from(["cucker-smale", "cucker-smale-local"]), st.sampled_from([0.0, 0.4, 3.0]))
def test_the_law_is_its_equation(flock: Flock, name: str, beta: float) -> None:
    _, v, distance = pairs(flock)
    terms = -7.0 * v / (1.0 + distance**2) ** beta
    expected = over_pairs(flock, terms, name, "mean")
    assert_equal(accelerations(flock, name, strength=7.0, beta=beta), expected, terms, name)


def spread(dimensions: int, seed: int = 0) -> Flock:
    """Four flocks of 30 agents over 200 distances, as fast as 10 per second each way."""
    rng = np.random.default_rng(seed)
    return Flock(rng.uniform(-100, 100, (4, 30, dimensions)), rng.normal(size=(4, 30, dimensions)) * 10.0)


# The theorem: for beta <= 1/2 every flock comes to fly as one, at the mean velocity of its start.


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize(("beta", "time_step", "duration"), [(0.0, 0.1, 20.0), (0.25, 0.1, 60.0), (0.5, 4.0, 12_000.0)])
def test_for_beta_up_to_one_half_every_flock_aligns(
    dimensions: int, beta: float, time_step: float, duration: float
) -> None:
    start = spread(dimensions)
    assert velocity_variance(start).min() > 100.0
    run = fly(start, "cucker-smale", time_step, duration, beta=beta)
    assert velocity_variance(run)[-1].max() < 1e-6
    before, after = (array.mean(axis=1) for array in run.velocities)
    assert np.abs(after - before).max() < 1e-12 * np.abs(before).max()


@pytest.mark.parametrize("beta", [0.25, 1.0])
def test_mean_velocity_is_constant(beta: float) -> None:
    def mean(moment: object) -> np.ndarray:
        return moment.flock.velocities.mean(axis=1)[:, 0]  # type: ignore[attr-defined]

    kept = fly(spread(2, seed=1), "cucker-smale", 0.01, 5.0, {"mean": mean}, beta=beta).series["mean"]
    assert np.abs(kept - kept[0]).max() < 1e-12 * np.abs(kept[0]).max()


def test_local_law_does_not_keep_the_mean_velocity() -> None:
    # Agents with different numbers of neighbours change each other's velocity by different amounts.
    flock = Flock([[[0.0, 0.0], [0.9, 0.0], [1.8, 0.0]]], [[[3.0, 0.0], [0.0, 0.0], [0.0, 0.0]]])
    before, after = fly(flock, "cucker-smale-local", 0.01, 0.2).velocities.mean(axis=2)[:, 0]
    assert abs(after[0] - before[0]) > 0.05
    before, after = fly(flock, "cucker-smale", 0.01, 0.2).velocities.mean(axis=2)[:, 0]
    assert abs(after[0] - before[0]) < 1e-14


# Beyond 1/2 not from every start. Two agents on a line that part at a speed u: du/dr = - strength phi(r), so that
#     u(r) = u0 - strength (integral of phi from r0 to r),
# which for beta = 1 is u0 - strength (atan r - atan r0), and ends at u0 - strength (pi/2 - atan r0) if that is above 0.


@pytest.mark.slow
def test_for_beta_one_two_fast_agents_never_align() -> None:
    speed, distance = 20.0, 1.0
    limit = speed - STRENGTH * (math.pi / 2 - math.atan(distance))
    assert limit == pytest.approx(12.146, abs=1e-3)
    start = head_on(-speed, distance)
    run = fly(start, "cucker-smale", 5e-4, 3.0, [velocity_variance, gap], beta=1.0)
    parted = run.velocities[-1, 0, 0, 0] - run.velocities[-1, 0, 1, 0]
    # The variance of two agents is (u / 2)^2: it falls, and never to that of the limit.
    variances = run.series["velocity_variance"][:, 0]
    assert (np.diff(variances) < 0).all() and variances[-1] > (limit / 2) ** 2
    left = STRENGTH * (math.pi / 2 - math.atan(run.series["gap"][-1, 0]))
    assert parted - left == pytest.approx(limit, rel=5e-3)


@pytest.mark.slow
def test_for_beta_one_half_the_same_agents_align() -> None:
    # u = 0 where asinh r = asinh r0 + u0 / strength.
    run = fly(head_on(-20.0, 1.0), "cucker-smale", 0.001, 10.0, [gap], beta=0.5)
    assert velocity_variance(run)[-1, 0] < 1e-6
    assert run.series["gap"][-1, 0] == pytest.approx(math.sinh(math.asinh(1.0) + 2.0), rel=0.02)


@pytest.mark.slow
def test_for_beta_one_two_fast_groups_never_align() -> None:
    # Let w be the least speed at which an agent of one group leaves one of the other along the line between the
    # groups, and g the least gap between them. No agent is pulled back faster than by strength phi(g) u0 / 2 on each
    # side, and g' >= w, so w dw/dg >= - strength phi(g) u0: w^2 >= u0^2 - 2 u0 strength (pi/2 - atan g0) at all times.
    # The mean velocities of two equal groups differ by w at least, so the variance is (w / 2)^2 at least.
    rng, speed, groups = np.random.default_rng(0), 20.0, np.repeat([0.0, 1.0], 10)
    positions = rng.uniform(-0.5, 0.5, (5, 20, 2)) + groups[:, None] * [2.0, 0.0]
    start = Flock(positions, np.broadcast_to((groups[:, None] - 0.5) * [speed, 0.0], positions.shape))
    gaps = positions[:, 10:, 0].min(axis=1) - positions[:, :10, 0].max(axis=1)
    least = speed**2 - 2.0 * speed * STRENGTH * (math.pi / 2 - np.arctan(gaps))
    assert least.min() > 10.0
    apart = fly(start, "cucker-smale", 0.002, 10.0, [velocity_variance], beta=1.0).series["velocity_variance"]
    assert (apart.min(axis=0) > least / 4.0).all()
    together = fly(start, "cucker-smale", 0.05, 100.0, beta=0.5)
    assert velocity_variance(together)[-1].max() < 1e-6
