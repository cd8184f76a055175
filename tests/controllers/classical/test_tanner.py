"""Tanner's laws equal their double sums, turn with the flock, and respect the clamp."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import ortho_group

from equiflock._runtime import threads
from equiflock._runtime.checks import InputError
from equiflock.controllers import load
from equiflock.controllers.classical.tanner import Tanner
from equiflock.features import paper_senses
from equiflock.flock import Condition, Flock, Role
from equiflock.observations.aggregation import observe
from equiflock.scenarios import random_disk
from equiflock.simulation.flight_builder import flight
from tests import twins
from tests.flocks import flocks


def by_the_book(flock: Flock, b: int, everyone: bool, clamp: float, hold: float = 0.0) -> NDArray[Any]:
    """a_i = - sum_j v_ij - sum_j grad U(|r_ij|), agent by agent, and a brake on those who part, if they are held."""
    positions, velocities, roles, muted = flock.positions[b], flock.velocities[b], flock.roles[b], flock.muted[b]
    neighbours = twins.find_neighbours(flock, b, 1.0)
    result = np.zeros_like(positions)
    for i in np.flatnonzero((roles == Role.FOLLOWER) & (flock.conditions[b] <= Condition.SILENT)):
        for j in range(len(positions)):
            if neighbours[i, j]:
                offset, square = positions[i] - positions[j], twins.square_distance(positions[i], positions[j])
                per_fourth, per_square = offset / square**2, offset / square
                result[i] -= 2.0 * (per_square - per_fourth)
                parting = max(float(offset @ (velocities[i] - velocities[j])), 0.0)
                fade = max(square - 0.75**2, 0.0) / (1.0 - 0.75**2)
                result[i] -= hold / neighbours[i].sum() * fade * parting * per_square
            if roles[j] != Role.OBSTACLE and not muted[j] if everyone else neighbours[i, j]:
                result[i] -= velocities[i] - velocities[j]
        norm = np.sqrt((result[i] ** 2).sum())
        result[i] *= min(1.0, clamp / norm) if norm > 0 else 1.0
    return result


def accelerations(flock: Flock, name: str, **options: Any) -> NDArray[Any]:
    return next(flight(flock, load(name, **options), obstacles="all")).accelerations


@given(flocks(max_agents=15, failed=True), st.sampled_from(["tanner", "tanner-dynamic", "tanner-fixed"]))
def test_each_law_is_its_double_sum(flock: Flock, name: str) -> None:
    computed = accelerations(flock, name)
    for b in range(len(flock)):
        expected = by_the_book(flock, b, name == "tanner", 100.0)
        np.testing.assert_allclose(computed[b], expected, rtol=1e-4, atol=1e-3)
    assert np.sqrt(np.square(computed).sum(axis=-1)).max() <= 100.0 * (1 + 1e-12)


@given(flocks(max_agents=15, failed=True), st.floats(0.1, 100.0))
def test_expert_with_hold_is_its_double_sum(flock: Flock, hold: float) -> None:
    computed = accelerations(flock, "tanner", hold=hold)
    for b in range(len(flock)):
        np.testing.assert_allclose(computed[b], by_the_book(flock, b, True, 100.0, hold), rtol=1e-4, atol=1e-3)


def bounded_by_the_book(flock: Flock, b: int, law: Any) -> NDArray[Any]:
    """a_i = - g u / (u + v_0) (v_i - aim) - p sum_j grad U - h mean(leaving), agent by agent, clamped."""
    positions, velocities, roles, muted = flock.positions[b], flock.velocities[b], flock.roles[b], flock.muted[b]
    neighbours, result = twins.find_neighbours(flock, b, 1.0), np.zeros_like(flock.positions[b])
    audible = (roles != Role.OBSTACLE) & ~muted
    leaders = audible & (roles == Role.LEADER)
    aim = velocities[leaders if leaders.any() else audible].mean(axis=0)
    for i in np.flatnonzero((roles == Role.FOLLOWER) & (flock.conditions[b] <= Condition.SILENT)):
        error = velocities[i] - aim
        u = np.sqrt((error**2).sum())
        result[i] -= law.velocity_gain * (u / (u + law.soft_speed) if u > 0 else 0.0) * error
        for j in np.flatnonzero(neighbours[i]):
            offset, square = positions[i] - positions[j], twins.square_distance(positions[i], positions[j])
            result[i] -= 2.0 * law.potential_gain * (offset / square - law.attraction**2 * offset / square**2)
            parting = max(float(offset @ (velocities[i] - velocities[j])), 0.0)
            fade = max(square - 0.75**2, 0.0) / (1.0 - 0.75**2)
            result[i] -= law.hold / neighbours[i].sum() * fade * parting * offset / square
        norm = np.sqrt((result[i] ** 2).sum())
        result[i] *= min(1.0, law.clamp / norm) if norm > 0 else 1.0
    return result


@given(flocks(max_agents=15, failed=True), st.floats(1.0, 50.0), st.floats(0.0, 2.0), st.floats(0.0, 1.0))
def test_bounded_law_is_its_double_sum(flock: Flock, g: float, v_0: float, p: float) -> None:
    law: Any = load("tanner-bounded", velocity_gain=g, soft_speed=v_0, potential_gain=p)
    # At this time step the gain of the schedule is 1.
    computed = next(flight(flock, law, obstacles="all", time_step=law.gain_schedule.period)).accelerations
    for b in range(len(flock)):
        if ((flock.roles[b] != Role.OBSTACLE) & ~flock.muted[b]).any():
            np.testing.assert_allclose(computed[b], bounded_by_the_book(flock, b, law), rtol=1e-4, atol=1e-3)
    assert np.sqrt(np.square(computed).sum(axis=-1)).max() <= law.clamp * (1 + 1e-12)


@pytest.mark.parametrize("options", [{"velocity_gain": 0.0}, {"potential_gain": -1.0}, {"soft_speed": -0.1}])
def test_gains_of_the_expert_must_not_be_negative(options: dict[str, float]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(options))} must be"):
        load("tanner-bounded", **options)


def test_hold_brakes_separating_agents_only() -> None:
    places = [[0.0, 0.0], [0.9, 0.0]]
    apart, together = (Flock([places], [[[0.0, 0.0], [speed, 0.0]]]) for speed in (0.2, -0.2))
    gained = accelerations(apart, "tanner", hold=50.0) - accelerations(apart, "tanner")
    assert gained[0, 0, 0] > 0.0 and np.allclose(gained[0, 0], -gained[0, 1])
    assert np.array_equal(accelerations(together, "tanner", hold=50.0), accelerations(together, "tanner"))
    with pytest.raises(InputError, match="hold must be a finite number of at least 0; got -1"):
        load("tanner", hold=-1.0)


def in_whole_arrays(
    flock: Flock, observations: NDArray[Any], everyone: bool, clamp: float | None, by_entry: bool = False
) -> NDArray[Any]:
    """The laws as plain expressions of whole arrays: the twin of the kernel."""
    sums = observations[:, :, 0].astype(np.float64)
    toward = -sums[:, :, 0]
    if everyone:
        count = (flock.roles != Role.OBSTACLE).sum(axis=1)[:, None, None]
        toward = flock.velocities.sum(axis=1, keepdims=True) - count * flock.velocities
    gradients = 2.0 * (sums[:, :, 2] - sums[:, :, 1]) if sums.shape[2] > 2 else sums[:, :, 1]
    result = toward - gradients
    if clamp is None:
        return result
    if by_entry:
        return np.clip(result, -clamp, clamp)
    norms = np.sqrt(np.square(result).sum(axis=-1, keepdims=True))
    return result * (clamp / np.maximum(norms, clamp))


@given(
    flocks(),
    st.sampled_from(["tanner", "tanner-dynamic"]),
    st.sampled_from([0.5, 100.0, None]),
    st.sampled_from(["norm", "entry"]),
    st.integers(1, 2),
)
def test_kernel_equals_the_vectorized_law(
    flock: Flock, name: str, clamp: float | None, clamp_by: str, hops: int
) -> None:
    law: Any = load(name, clamp=clamp, clamp_by=clamp_by)
    observations = observe(flock, paper_senses("sum", hops=hops))
    known = (flock, observations) if name == "tanner" else (observations,)
    expected = in_whole_arrays(flock, observations, name == "tanner", clamp, clamp_by == "entry")
    np.testing.assert_allclose(law(*known), expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())


def test_the_laws_are_the_same_on_any_number_of_threads_and_any_layout_of_memory() -> None:
    flock, law = random_disk(50, 100, seed=2), Tanner()
    observations = observe(flock, paper_senses("sum", hops=1))
    found = set()
    for count in (1, 2, 3):
        with threads.use(count):
            found.add(law(flock, observations).tobytes())
    found.add(law(flock, np.asfortranarray(observations)).tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("shape", [(1, 5, 1, 2, 2), (1, 5, 0, 3, 2), (1, 4, 1, 3, 2), (1, 5, 1, 3, 3), (1, 5, 3, 2)])
def test_observations_of_another_shape_than_the_flock_raise(shape: tuple[int, ...]) -> None:
    flock = Flock(np.zeros((1, 5, 2)), np.zeros((1, 5, 2)))
    with pytest.raises(InputError, match=r"observations must (be|have)"):
        Tanner()(flock, np.zeros(shape, np.float32))


@given(flocks(roles=False), st.sampled_from(["tanner", "tanner-dynamic"]), st.integers(0, 2**32 - 1))
def test_the_laws_commute_with_rotations_and_reflections(flock: Flock, name: str, seed: int) -> None:
    offsets = np.sqrt(np.square(flock.positions[:, :, None] - flock.positions[:, None]).sum(axis=-1))
    apart = offsets + np.eye(flock.shape[1])
    assume(np.abs(offsets - 1.0).min() > 1e-6 and apart.min() > 1e-3 and np.abs(flock.positions).max() < 10)
    turn = ortho_group.rvs(flock.shape[2], random_state=seed)
    turned = Flock(flock.positions @ turn.T, flock.velocities @ turn.T)
    np.testing.assert_allclose(accelerations(turned, name), accelerations(flock, name) @ turn.T, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["tanner", "tanner-dynamic", "tanner-fixed"])
def test_laws_are_invariant_to_translation_and_common_velocity(name: str) -> None:
    rng = np.random.default_rng(0)
    positions, velocities = np.round(rng.normal(size=(2, 1, 30, 3)) * 2**20) / 2**20
    one = accelerations(Flock(positions, velocities), name)
    other = accelerations(Flock(positions + np.array([5.0, 7.0, -3.0]), velocities - 9.0), name)
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ["tanner", "tanner-dynamic", "tanner-fixed"])
def test_laws_are_permutation_equivariant(name: str) -> None:
    rng = np.random.default_rng(1)
    positions, velocities = rng.uniform(-2, 2, (2, 1, 40, 2))
    order = rng.permutation(40)
    shuffled = accelerations(Flock(positions[:, order], velocities[:, order]), name)
    np.testing.assert_allclose(
        shuffled, accelerations(Flock(positions, velocities), name)[:, order], rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("name", ["tanner-dynamic", "tanner-fixed"])
def test_decentralized_law_depends_on_neighbours_only(name: str) -> None:
    """All agents but the neighbours of agent 0 move elsewhere: no bit of its acceleration changes."""
    rng = np.random.default_rng(2)
    positions, velocities = rng.uniform(-3, 3, (2, 1, 80, 2))
    neighbours = twins.adjacency(positions[0], np.zeros(80), 1.0)[0] | (np.arange(80) == 0)
    elsewhere = np.where(neighbours[:, None], positions[0], 50.0 + 9.0 * positions[0])[None]
    otherwise = np.where(neighbours[:, None], velocities[0], -4.0 * velocities[0])[None]
    one, other = accelerations(Flock(positions, velocities), name), accelerations(Flock(elsewhere, otherwise), name)
    assert one[0, 0].tobytes() == other[0, 0].tobytes()
    expert = [
        accelerations(Flock(*state), "tanner")[0, 0] for state in ((positions, velocities), (elsewhere, otherwise))
    ]
    assert (expert[0] != expert[1]).any()  # the centralized one does use it


@pytest.mark.parametrize("name", ["tanner", "tanner-dynamic", "tanner-fixed"])
def test_clamp_keeps_the_direction(name: str) -> None:
    flock = Flock([[[0.0, 0.0], [0.05, 0.02], [0.3, 0.4]]], [[[1.0, 2.0], [0.0, 0.0], [0.0, 1.0]]])
    free, short = accelerations(flock, name, clamp=None)[0], accelerations(flock, name, clamp=2.0)[0]
    lengths = np.linalg.norm(free, axis=-1)
    assert lengths.max() > 100
    np.testing.assert_allclose(short, free * np.minimum(1, 2.0 / lengths)[:, None], rtol=1e-12)


def test_fixed_law_uses_the_neighbours_of_the_start() -> None:
    """Two agents separate: under the dynamic law for good, while the fixed law pulls them back."""
    flock = Flock([[[0.0, 0.0], [0.9, 0.0]]], [[[-5.0, 0.0], [5.0, 0.0]]])
    final = {}
    for name in ("tanner-fixed", "tanner-dynamic"):
        for moment in flight(flock, load(name), time_step=0.01):
            if moment.step == 2000:
                break
        final[name] = np.ptp(moment.flock.positions[0, :, 0])
    assert final["tanner-dynamic"] > 50
    assert abs(final["tanner-fixed"] - 1.0) < 0.2  # the potential's minimum


def test_only_the_expert_is_privileged() -> None:
    assert load("tanner").privileged  # type: ignore[union-attr]
    for name in ("tanner-dynamic", "tanner-fixed"):
        assert not hasattr(load(name), "privileged")


@pytest.mark.parametrize("clamp", [0.0, -3.0, float("nan")])
def test_a_clamp_is_positive_or_none(clamp: float) -> None:
    with pytest.raises(InputError, match="clamp must be a finite number above 0"):
        load("tanner", clamp=clamp)
