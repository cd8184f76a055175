"""Sums over all pairs of a flock are double loops, in memory O(N), and the same on any number of threads."""

from __future__ import annotations

import dataclasses
import math
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import equiflock as ef
from equiflock import features
from equiflock._runtime import threads
from equiflock._runtime.checks import InputError, NumericRangeError
from equiflock.controllers.classical.pair_law import BLOCK, MAX_DISTANCE, sum_over_all_pairs
from equiflock.features import Channel
from equiflock.flock import Condition, Flock, Role
from equiflock.observations.aggregation import observe
from tests import twins
from tests.flocks import flocks


@pytest.fixture(autouse=True, scope="module")
def own_features() -> Iterator[None]:
    """Features with options, of positions and of velocities, one of <r, v> too."""
    before = dict(features.FEATURES.parts)

    @ef.feature("near", vector="position")
    def near(square: float, strength: float = 1.0, reach: float = 0.5) -> float:
        return strength / (reach * reach + square)

    @ef.feature("closing", vector="velocity", among="others")
    def closing(square: float, inner: float, gain: float = 0.5) -> float:
        return gain * inner / (1.0 + square)

    yield
    features.FEATURES.parts.clear()
    features.FEATURES.parts.update(before)


NAMES = (
    "velocity",
    "position",
    "inverse-square",
    "inverse-fourth",
    "near",
    "near:reach=2:strength=-3",
    "near:strength=0.1",
    "closing",
    "closing:gain=-2",
)
"""With any of these, and among any, every sum is a number."""
AMONG = ("", ":among=all", ":among=same", ":among=others", ":among=obstacles")
WITH_AMONG = st.builds("{}{}".format, st.sampled_from(NAMES), st.sampled_from(AMONG))
CHANNELS = st.lists(st.tuples(WITH_AMONG, st.sampled_from(["sum", "mean"])), min_size=1, max_size=4).map(tuple)


def with_groups(flock: Flock, seed: int) -> Flock:
    groups = np.random.default_rng(seed).integers(0, 3, flock.shape[:2])
    return dataclasses.replace(flock, groups=groups)


def assert_double_loops(flock: Flock, channels: tuple[Channel, ...], exclusion_radius: float = -1.0) -> None:
    found = sum_over_all_pairs(flock, channels, exclusion_radius=exclusion_radius)
    assert found.shape == (*flock.shape[:2], len(channels), flock.shape[2])
    for b in range(len(flock)):
        expected = twins.over_everyone(flock, b, channels, exclusion_radius)
        # Large terms of near agents may cancel.
        sizes = np.abs(expected).max(axis=(0, 2), initial=0.0)[:, None]
        np.testing.assert_array_less(np.abs(found[b] - expected), 1e-9 * np.abs(expected) + 1e-11 * (1.0 + sizes))


@given(flocks(failed=True), st.integers(0, 99), CHANNELS, st.sampled_from([-1.0, 0.0, 1.0, 2.5]))
def test_every_choice_of_channels_is_a_double_loop(
    flock: Flock, seed: int, channels: tuple[Channel, ...], exclusion_radius: float
) -> None:
    assert_double_loops(with_groups(flock, seed), channels, exclusion_radius)


@pytest.mark.parametrize("agents", [BLOCK, BLOCK + 1, 2 * BLOCK + 37])
@pytest.mark.parametrize("D", [2, 3])
def test_more_agents_than_a_block_are_all_counted(agents: int, D: int) -> None:
    rng = np.random.default_rng(agents)
    # Few followers, so that the double loops are short; the flock is the others, too.
    roles = np.full((2, agents), Role.LEADER, np.int8)
    roles[:, rng.permutation(agents)[:8]] = Role.FOLLOWER
    roles[:, [0, BLOCK - 1, agents - 1]] = Role.FOLLOWER
    positions, velocities = rng.uniform(-3, 3, (2, 2, agents, D))
    flock = Flock(positions, velocities, roles, groups=rng.integers(0, 2, (2, agents)))
    assert_double_loops(flock, (("near", "mean"), ("velocity", "sum"), ("closing:among=same", "mean")))


def test_a_mean_is_one_nth_of_the_sum() -> None:
    rng = np.random.default_rng(0)
    flock = Flock(*rng.normal(size=(2, 3, 20, 2)))
    total, mean = np.moveaxis(sum_over_all_pairs(flock, (("near", "sum"), ("near", "mean"))), 2, 0)
    np.testing.assert_allclose(mean, total / 20, rtol=1e-15)


def test_the_mean_of_velocities_is_taken_over_the_agents_own_kind_and_itself() -> None:
    velocities = np.array([[[6.0, 0.0], [0.0, 0.0], [3.0, 0.0], [1.0, 0.0]]])
    flock = Flock(np.arange(8.0).reshape(1, 4, 2), velocities, groups=[[0, 0, 0, 1]])
    channels: tuple[Channel, ...] = tuple((f"velocity:among={who}", "mean") for who in ("all", "same", "others"))
    assert sum_over_all_pairs(flock, channels)[0, 0, :, 0].tolist() == [6.0 - 2.5, 6.0 - 3.0, 6.0 - 1.0]
    # A silent agent does not count but still receives: the mean leaves out its own velocity.
    silent = dataclasses.replace(flock, conditions=[[Condition.SILENT] + [Condition.WORKING] * 3])
    found = sum_over_all_pairs(silent, channels)[0, :2, :, 0]
    np.testing.assert_allclose(found[0], [6.0 - 4 / 3, 6.0 - 1.5, 6.0 - 1.0])
    np.testing.assert_allclose(found[1], [0.0 - 4 / 3, 0.0 - 1.5, 0.0 - 1.0])


def test_nobody_but_followers_has_sums_and_obstacle_agents_are_in_none() -> None:
    roles = [[Role.FOLLOWER, Role.LEADER, Role.OBSTACLE]]
    flock = Flock([[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]], np.zeros((1, 3, 2)), roles)
    found = sum_over_all_pairs(flock, (("position", "sum"), ("position:among=others", "sum")))
    assert found.tolist() == [[[[-1.0, 0.0], [0.0, 0.0]]] + [[[0.0, 0.0]] * 2] * 2]


@given(flocks(roles=False), CHANNELS)
def test_those_within_a_distance_and_those_beyond_it_are_everybody(flock: Flock, channels: tuple[Channel, ...]) -> None:
    sums: tuple[Channel, ...] = tuple((name, "sum") for name, _ in channels)
    all_pairs, beyond = (sum_over_all_pairs(flock, sums, exclusion_radius=distance) for distance in (-1.0, 1.0))
    within = observe(flock, ef.Senses((*sums, ("position", "sum"))))[:, :, 0, :-1]  # more than the paper's channels
    size = 1.0 + np.abs(within).max() + np.abs(all_pairs).max()
    np.testing.assert_allclose(within + beyond, all_pairs, rtol=1e-5, atol=1e-6 * size)


@pytest.mark.parametrize("D", [2, 3])
def test_coincident_agents_push_nowhere_and_their_velocities_count_in_full(D: int) -> None:
    velocities = np.zeros((1, 3, D))
    velocities[0, 0] = 1.0
    flock = Flock(np.ones((1, 3, D)), velocities)
    found = sum_over_all_pairs(flock, (("inverse-fourth", "sum"), ("velocity", "sum"), ("velocity", "mean")))
    assert not found[:, :, 0].any()
    assert found[0, :, 1, 0].tolist() == [2.0, -1.0, -1.0]
    assert found[0, :, 2, 0].tolist() == [2 / 3, -1 / 3, -1 / 3]
    # They are at a distance of 0, which is not beyond 0.
    assert not sum_over_all_pairs(flock, (("velocity", "sum"),), exclusion_radius=0.0).any()


@pytest.mark.parametrize("aggregation", ["sum", "mean"])
@pytest.mark.parametrize("among", AMONG)
def test_a_single_agent_has_sums_of_nothing(aggregation: Any, among: str) -> None:
    found = sum_over_all_pairs(Flock([[[1.0, 2.0]]], [[[3.0, 4.0]]]), ((f"velocity{among}", aggregation),))
    assert found.tolist() == [[[[0.0, 0.0]]]]


def test_one_thread_and_several_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, shares, found = np.random.default_rng(1), [], set()
    flock = with_groups(Flock(*rng.uniform(-3, 3, (2, 3, 300, 2))), 0)
    run_parallel = threads.run_parallel

    def counted(kernel: Any, parts: Any) -> Any:
        shares.append(len(parts))
        return run_parallel(kernel, parts)

    monkeypatch.setattr(threads, "run_parallel", counted)
    for count in (1, 2, 3):
        with threads.use(count):
            found.add(sum_over_all_pairs(flock, (("near", "sum"), ("closing", "mean"))).tobytes())
    assert shares == [1, 2, 3]
    assert len(found) == 1


def test_flocks_of_a_batch_know_nothing_of_each_other() -> None:
    rng, channels = np.random.default_rng(2), (("near", "sum"), ("velocity:among=same", "mean"))
    flock = with_groups(Flock(*rng.uniform(-3, 3, (2, 4, 50, 3))), 1)
    whole = sum_over_all_pairs(flock, channels)
    assert all(whole[b : b + 1].tobytes() == sum_over_all_pairs(flock[b], channels).tobytes() for b in range(4))


def test_memory_is_that_of_the_sums() -> None:
    large, channels = Flock(*np.random.default_rng(0).uniform(-30, 30, (2, 1, 3000, 2))), (("near", "sum"),)
    sum_over_all_pairs(large, channels)
    tracemalloc.start()
    sum_over_all_pairs(large, channels)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The sums are 48 kB, a block some 20 kB on each thread; an array of all pairs would be 72 MB.
    assert peak < 200_000 * threads.count()


def test_a_weight_that_is_not_finite_at_some_distance_is_refused_in_one_line(own_registry: None) -> None:
    @ef.feature("steep", vector="position")
    def steep(square: float, power: float = 6.0) -> float:
        return float(square**power)

    flock = Flock(np.zeros((1, 2, 2)), np.zeros((1, 2, 2)))
    for name in ("steep", "steep:power=-6"):
        with pytest.raises(InputError, match=rf"'{name}' must be finite, .* from 1e-08 to 1e\+06; got") as caught:
            sum_over_all_pairs(flock, ((name, "sum"),))
        assert "\n" not in str(caught.value)
    sum_over_all_pairs(flock, (("steep:power=0.5", "sum"),))


def test_sums_of_agents_that_are_farther_or_faster_than_a_weight_was_tried_for_are_refused(own_registry: None) -> None:
    @ef.feature("far", vector="position")
    def far(square: float) -> float:
        return math.sqrt(2.0 * MAX_DISTANCE**2 - square)

    @ef.feature("fast", vector="position")
    def fast(square: float, inner: float) -> float:
        return math.sqrt(2.0 - inner / math.sqrt(square))  # up to a speed of 2 along r

    positions, velocities = np.array([[[1.0, 0.0], [0.0, 0.0]]]), np.array([[[1.0, 0.0], [0.0, 0.0]]])
    channels = (("velocity", "mean"), ("far", "sum"), ("fast", "sum"))
    assert np.isfinite(sum_over_all_pairs(Flock(positions * MAX_DISTANCE, velocities), channels)).all()
    for wrong in (Flock(positions * 2.0 * MAX_DISTANCE, velocities), Flock(positions, velocities * 3.0)):
        with pytest.raises(
            NumericRangeError, match="must be finite numbers; one of velocity, far, fast is off the scale"
        ):
            sum_over_all_pairs(wrong, channels)
