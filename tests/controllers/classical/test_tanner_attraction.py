"""Tanner's laws whose agents attract each other from a distance on, and the expert that aims at leaders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import equiflock as ef
from equiflock.controllers import load
from equiflock.flock import Condition, Flock, Role
from equiflock.observations.aggregation import observe
from tests import twins
from tests.controllers.classical.test_tanner import accelerations, in_whole_arrays
from tests.controllers.classical.test_tanner_options import LAWS
from tests.flocks import flocks


def by_the_book(flock: Flock, b: int, everyone: bool, attraction: float, aim: str) -> NDArray[Any]:
    """a_i = - sum_j (v_i - v_j) - sum_j grad U(|r_ij|), agent by agent, for U(r) = d^2 / r^2 + ln r^2; no clamp.

    Whose aim are the leaders flies as if every v_j were their mean.
    """
    positions, velocities, roles = flock.positions[b], flock.velocities[b], flock.roles[b]
    neighbours, sends = twins.find_neighbours(flock, b, 1.0), (roles != Role.OBSTACLE) & ~flock.muted[b]
    leaders = np.flatnonzero((roles == Role.LEADER) & sends)
    seen = velocities.copy()
    if aim == "leaders" and len(leaders):
        seen[:] = velocities[leaders].mean(axis=0)
    result = np.zeros_like(positions)
    for i in np.flatnonzero((roles == Role.FOLLOWER) & (flock.conditions[b] <= Condition.SILENT)):
        for j in range(len(positions)):
            if neighbours[i, j]:
                offset, square = positions[i] - positions[j], twins.square_distance(positions[i], positions[j])
                result[i] -= 2.0 * offset * (1.0 - attraction**2 / square) / square
            if sends[j] if everyone else neighbours[i, j]:
                result[i] -= velocities[i] - seen[j]
    return result


@given(
    flocks(max_agents=12, failed=True),
    st.sampled_from(LAWS),
    st.sampled_from([0.5, 0.8, 1.3]),
    st.sampled_from(["flock", "leaders"]),
)
def test_a_law_with_another_attraction_or_aim_is_its_double_sum(
    flock: Flock, name: str, attraction: float, aim: str
) -> None:
    aims = {"aim": aim} if name == "tanner" else {}
    found = accelerations(flock, name, clamp=None, attraction=attraction, **aims)
    for b in range(len(flock)):
        expected = by_the_book(flock, b, name == "tanner", attraction, aims.get("aim", "flock"))
        # Sums of float32 that almost cancel are as exact as the largest of their terms.
        size = 1.0 + np.abs(expected).max(initial=0.0)
        np.testing.assert_allclose(found[b], expected, rtol=1e-4, atol=1e-4 * size)


def test_agents_attract_each_other_beyond_the_attraction_distance() -> None:
    flock = Flock([[[0.0, 0.0], [0.9, 0.0]]], np.zeros((1, 2, 2)))
    for attraction, pulled in ((0.8, True), (0.9, None), (1.0, False)):
        (first, second), _ = accelerations(flock, "tanner", attraction=attraction)[0].T
        assert first == pytest.approx(-second)
        assert first == pytest.approx(0.0, abs=1e-5) if pulled is None else (first > 0.1) == pulled


def test_attraction_keeps_a_slowly_separating_pair_connected() -> None:
    flock, apart = Flock([[[0.0, 0.0], [0.9, 0.0]]], [[[-0.1, 0.0], [0.1, 0.0]]]), {}
    for attraction in (0.8, 1.0):
        run = ef.simulate(flock, load("tanner-dynamic", attraction=attraction), duration=5.0, keep_every=500)
        apart[attraction] = float(np.ptp(run.positions[-1, 0, :, 0]))
    assert apart[0.8] == pytest.approx(0.8, abs=0.05)
    assert apart[1.0] > 1.0


@given(flocks(roles=False, failed=True))
def test_aim_changes_no_bit_without_leaders(flock: Flock) -> None:
    np.testing.assert_array_equal(accelerations(flock, "tanner", aim="leaders"), accelerations(flock, "tanner"))


def test_flock_that_aims_at_leaders_reaches_their_velocity() -> None:
    rng = np.random.default_rng(0)
    roles = [[Role.LEADER] * 2 + [Role.FOLLOWER] * 18]
    velocities = rng.normal(size=(1, 20, 2))
    velocities[0, :2] = [3.0, 0.0]
    flock, apart = Flock(rng.uniform(-0.8, 0.8, (1, 20, 2)), velocities, roles), {}
    for aim in ("flock", "leaders"):
        run = ef.simulate(flock, load("tanner", aim=aim), duration=0.3)
        apart[aim] = float(np.linalg.norm(run.velocities[-1, 0, 2:].mean(axis=0) - [3.0, 0.0]))
    assert apart["leaders"] < 0.1 < apart["flock"]


@given(flocks(), st.sampled_from(["tanner", "tanner-dynamic"]))
def test_default_options_change_no_bit(flock: Flock, name: str) -> None:
    observations = observe(flock, load(name).senses)
    known = (flock, observations) if name == "tanner" else (observations,)
    free: Any = load(name, clamp=None, attraction=1.0)
    # The law in whole arrays, whose sums run in the same order.
    expected = in_whole_arrays(flock, observations, name == "tanner", None)
    if name == "tanner":
        total = np.zeros_like(flock.velocities[:, 0])
        for i in range(flock.shape[1]):
            total = total + np.where(flock.roles[:, i, None] != Role.OBSTACLE, flock.velocities[:, i], 0.0)
        count = (flock.roles != Role.OBSTACLE).sum(axis=1)[:, None, None]
        sums = observations[:, :, 0].astype(np.float64)
        expected = total[:, None] - count * flock.velocities - 2.0 * (sums[:, :, 2] - sums[:, :, 1])
    np.testing.assert_array_equal(free(*known), expected)
