"""Observations are the paper's, agree with the dense twin, respect every symmetry, and reach no farther than K hops."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import ortho_group

from equiflock._runtime import threads
from equiflock._runtime.checks import InputError
from equiflock._runtime.threads import MAX_SMALL_FLOCK
from equiflock.features import Aggregation, paper_senses
from equiflock.flock import Flock, Role
from equiflock.observations.aggregation import DelayedAggregation, Obstacles, observe
from equiflock.observations.orbit import Orbit
from equiflock.observations.radio import Radio
from equiflock.scenarios import random_disk
from tests import twins
from tests.flocks import flocks

AGGREGATION = st.sampled_from(["sum", "mean"])
ORBIT = st.sampled_from([None, Orbit(), Orbit(gravity_break=0.2, dodge_angle=0.7, near=0.5, slow=2.0)])


def wandering(flock: Flock, steps: int) -> list[Flock]:
    """The flock at several instants, moving straight on."""
    return [dataclasses.replace(flock, positions=flock.positions + 0.1 * n * flock.velocities) for n in range(steps)]


@pytest.mark.slow
@given(flocks(failed=True), st.integers(1, 4), AGGREGATION, ORBIT, st.sampled_from(["nearest", "all"]))
def test_observations_match_the_dense_result(
    flock: Flock, hops: int, aggregation: Aggregation, orbit: Orbit | None, obstacles: Obstacles
) -> None:
    senses = DelayedAggregation(paper_senses(aggregation, hops), comm_radius=1.0, orbit=orbit, obstacles=obstacles)
    B, N, D = flock.shape
    expected = np.zeros((B, N, hops, 3, D))
    for now in wandering(flock, 4):
        known = senses.observe(now)
        assert np.isfinite(known).all()
        for b in range(B):
            adjacency = twins.find_neighbours(now, b, 1.0)
            expected[b] = twins.aggregate(now, b, expected[b], adjacency, senses.senses, orbit, obstacles)
            scale = np.abs(expected[b]).max() + 1.0
            np.testing.assert_allclose(known[b], expected[b], rtol=2e-5, atol=3e-6 * scale)


@given(flocks(failed=True), AGGREGATION, ORBIT)
def test_fixed_topology_keeps_neighbours_at_any_distance(
    flock: Flock, aggregation: Aggregation, orbit: Orbit | None
) -> None:
    senses = DelayedAggregation(paper_senses(aggregation, 2, "fixed"), comm_radius=1.0, orbit=orbit)
    # Some may fail after the graph was made.
    first = dataclasses.replace(flock, conditions=None)
    expected = np.zeros((*flock.shape[:2], 2, 3, flock.shape[2]))
    for now in (first, dataclasses.replace(flock, positions=3.0 * flock.positions)):
        known = senses.observe(now)
        for b in range(len(flock)):
            adjacency = twins.find_neighbours(dataclasses.replace(now, positions=flock.positions), b, 1.0)
            expected[b] = twins.aggregate(now, b, expected[b], adjacency, senses.senses, orbit)
            scale = np.abs(expected[b]).max() + 1.0
            np.testing.assert_allclose(known[b], expected[b], rtol=2e-5, atol=3e-6 * scale)


def test_without_a_past_only_the_first_hop_is_nonzero() -> None:
    flock = Flock([[[0.0, 0.0], [0.5, 0.0]]], [[[1.0, 0.0], [0.0, 2.0]]])
    known = observe(flock, paper_senses("mean", 3), comm_radius=1.0)
    assert known.shape == (1, 2, 3, 3, 2)
    assert known[0, 0, 0].tolist() == [[1.0, -2.0], [-8.0, 0.0], [-2.0, 0.0]]
    assert not known[0, :, 1:].any()


def test_information_travels_one_hop_per_step() -> None:
    """Agents 0 .. 4 in a row, neighbours of the next. Only agent 4 ever moves relative to its neighbour."""
    line = np.stack([np.arange(5.0) * 0.9, np.zeros(5)], axis=1)[None]
    still = Flock(line, np.zeros_like(line))
    kick = np.zeros_like(line)
    kick[0, 4, 1] = 1.0
    senses = DelayedAggregation(paper_senses("mean", 3), comm_radius=1.0)
    relative_velocity = [
        senses.observe(dataclasses.replace(still, velocities=kick if n == 0 else np.zeros_like(kick)))[
            0, :, :, 0, 1
        ].copy()
        for n in range(4)
    ]
    # z^1 at t = 0: agents 3 and 4 notice; agent 3 receives from 2 as well, so its mean halves.
    assert relative_velocity[0][:, 0].tolist() == [0, 0, 0, -0.5, 1]
    # z^2 a step later: means over neighbours of what those knew.
    assert relative_velocity[1][:, 1].tolist() == [0, 0, -0.25, 0.5, -0.5]
    assert not relative_velocity[1][:, 0].any()
    # z^3 after two steps, and nothing is remembered longer than K steps.
    np.testing.assert_allclose(relative_velocity[2][:, 2], [0, -0.125, 0.25, -0.375, 0.5])
    assert not relative_velocity[3].any()


@given(flocks(roles=False), st.integers(0, 2**32 - 1))
def test_observations_are_equivariant(flock: Flock, seed: int) -> None:
    # Where a pair is within a hair of R, a rotation's rounding may change the graph.
    offsets = flock.positions[:, :, None] - flock.positions[:, None]
    assume(np.abs(np.sqrt(np.square(offsets).sum(axis=-1)) - 1.0).min() > 1e-6 and np.abs(flock.positions).max() < 10)
    turn = ortho_group.rvs(flock.shape[2], random_state=seed)
    turned = Flock(flock.positions @ turn.T, flock.velocities @ turn.T)
    expected = observe(flock, paper_senses("sum", 3)) @ turn.T
    close = 1e-5 * np.abs(expected).max(axis=(1, 2, 3, 4), keepdims=True) * np.ones_like(expected) + 1e-6
    assert (np.abs(observe(turned, paper_senses("sum", 3)) - expected) <= close).all()


@given(flocks(roles=False), st.integers(-1000, 1000))
def test_observations_are_invariant_to_translation_and_boost(flock: Flock, shift: int) -> None:
    # Whole numbers keep float64's relative vectors exact, so not a bit may change in them.
    positions = np.round(flock.positions * 2**10) / 2**10
    flock = Flock(positions, np.round(flock.velocities * 2**10) / 2**10)
    moved = Flock(flock.positions + shift, flock.velocities - shift)
    for one, other in zip(
        observe(flock, paper_senses("mean", 3)), observe(moved, paper_senses("mean", 3)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6 * (1 + np.abs(one).max()))


@given(flocks(), st.randoms(use_true_random=False))
def test_observations_are_permutation_equivariant(flock: Flock, random: Any) -> None:
    order = list(range(flock.shape[1]))
    random.shuffle(order)
    shuffled = Flock(flock.positions[:, order], flock.velocities[:, order], flock.roles[:, order])
    # Ties of the nearest obstacle agent are broken by index, so all of them must be here.
    senses, others = (DelayedAggregation(paper_senses("mean", 3), comm_radius=1.0, obstacles="all") for _ in range(2))
    expected = senses.observe(flock)[:, order]
    np.testing.assert_allclose(others.observe(shuffled), expected, rtol=1e-4, atol=1e-5 * (1 + np.abs(expected).max()))


@pytest.mark.parametrize("agents", [300, MAX_SMALL_FLOCK + 1])
def test_results_do_not_depend_on_the_number_of_threads(agents: int) -> None:
    rng = np.random.default_rng(2)
    flock = Flock(rng.uniform(-30, 30, (3, agents, 2)), rng.normal(size=(3, agents, 2)))
    results = []
    for count in (1, 2, 5):
        with threads.use(count):
            senses = DelayedAggregation(paper_senses("mean", 3), comm_radius=1.0)
            for _ in range(3):
                known = senses.observe(flock)
            results.append(known.tobytes())
    assert results[0] == results[1] == results[2]


@given(flocks(), AGGREGATION)
def test_large_and_small_flock_paths_are_bit_identical(flock: Flock, aggregation: Aggregation) -> None:
    results = []
    for small in (10**9, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys.modules["equiflock.observations.aggregation"], "MAX_SMALL_FLOCK", small)
            patch.setattr(sys.modules["equiflock.observations.aggregation_kernels"], "AGENTS_PER_THREAD", 4)
            senses = DelayedAggregation(paper_senses(aggregation, 2), comm_radius=1.0)
            results.append([senses.observe(now).tobytes() for now in wandering(flock, 3)])
    assert results[0] == results[1]


def test_coincident_agents_have_zero_position_features() -> None:
    flock = Flock(np.zeros((1, 2, 2)), [[[1.0, 0.0], [0.0, 0.0]]])
    known = observe(flock, paper_senses("sum", 1))[0, 0, 0]
    assert known.tolist() == [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]


def test_thousands_of_coincident_agents_stay_finite() -> None:
    positions = np.zeros((1, 4000, 2))
    positions[0, ::2] = 1e-160
    known = observe(Flock(positions, np.ones((1, 4000, 2))), paper_senses("sum", 3))
    assert np.isfinite(known).all()


def test_observations_of_a_lone_agent_are_zero() -> None:
    assert not observe(Flock(np.ones((1, 1, 2)), np.ones((1, 1, 2))), paper_senses("mean", 3)).any()


def test_leaders_and_obstacle_agents_observe_nothing_but_count_in_the_mean() -> None:
    positions = np.array([[[0.0, 0.0], [0.5, 0.0], [0.0, 0.5]]])
    velocities = np.array([[[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]])
    known = observe(
        Flock(positions, velocities, [[Role.FOLLOWER, Role.LEADER, Role.OBSTACLE]]), paper_senses("mean", 3)
    )
    assert not known[0, 1:].any()
    assert known[0, 0, 0].tolist() == [[1.0, 0.0], [-4.0, -4.0], [-1.0, -1.0]]


def test_observations_of_ended_flocks_are_zero() -> None:
    flock = Flock(np.random.default_rng(0).uniform(-1, 1, (3, 20, 2)), np.ones((3, 20, 2)))
    senses = DelayedAggregation(paper_senses("mean", 2), comm_radius=1.0)
    all_of_them = senses.observe(flock).copy()
    some = senses.observe(flock, np.array([True, False, True]))
    assert not some[1].any()
    assert (some[[0, 2], :, 0] == all_of_them[[0, 2], :, 0]).all()


def test_replace_keeps_histories_of_kept_agents() -> None:
    rng = np.random.default_rng(7)
    flock = Flock(rng.uniform(-1, 1, (2, 12, 2)), rng.normal(size=(2, 12, 2)))
    keep = np.arange(12) % 3 > 0
    remaining = Flock(flock.positions[:, keep], flock.velocities[:, keep])
    extended = Flock(
        np.concatenate([remaining.positions, np.full((2, 1, 2), 50.0)], axis=1),
        np.concatenate([remaining.velocities, np.zeros((2, 1, 2))], axis=1),
    )
    for topology in ("dynamic", "fixed"):
        senses = DelayedAggregation(paper_senses("mean", 2, topology), comm_radius=1.0)
        before = senses.observe(flock).astype(float)
        senses.replace(extended, keep)
        known = senses.observe(extended)
        for b in range(2):
            adjacency = twins.adjacency(remaining.positions[b], remaining.roles[b], 1.0)
            expected = twins.aggregate(remaining, b, before[b, keep], adjacency, senses.senses)
            np.testing.assert_allclose(known[b, :-1], expected, rtol=1e-4, atol=1e-4)
        assert not known[:, -1].any()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"senses": "mean"}, r"senses must be a Senses, such as equiflock\.paper_senses\(\); got 'mean'"),
        ({"senses": paper_senses(), "comm_radius": -1.0}, "comm_radius must be a finite number above 0"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        observe(Flock(np.zeros((1, 1, 2)), np.zeros((1, 1, 2))), **options)


def test_out_of_range_state_is_rejected_and_never_becomes_nan() -> None:
    far = Flock(np.full((1, 2, 2), 1e20), np.zeros((1, 2, 2)))
    # As in a flight that diverges: a new flock would not be accepted.
    still = np.zeros((1, 2, 2))
    fast = Flock.view(still, still + 1e300, *Flock(still, still).arrays[2:], comm_radius=1.0)
    for flock in (far, fast):
        for topology in ("dynamic", "fixed"):
            with pytest.raises(InputError, match="off the scale"):
                DelayedAggregation(paper_senses("sum", 1, topology), comm_radius=1.0).observe(flock)


def test_largest_accepted_values_do_not_overflow() -> None:
    positions = np.zeros((1, 3000, 2))
    velocities = np.full((1, 3000, 2), 1e20)
    velocities[0, ::2] *= -1
    senses = DelayedAggregation(paper_senses("sum", 3), comm_radius=1.0)
    for _ in range(4):
        assert np.isfinite(senses.observe(Flock(positions, velocities))).all()


def test_follower_that_becomes_a_leader_receives_nothing() -> None:
    flock = Flock(np.array([[[0.0, 0.0], [0.5, 0.0], [0.0, 0.5]]]), np.ones((1, 3, 2)))
    senses = DelayedAggregation(paper_senses("sum", 1, "fixed"), comm_radius=1.0)
    assert senses.observe(flock)[0, 0].any()
    led = dataclasses.replace(flock, roles=[[Role.LEADER, Role.FOLLOWER, Role.FOLLOWER]])
    senses.replace(led, np.ones(3, bool))
    known = senses.observe(led)
    assert not known[0, 0].any()
    assert known[0, 1].any()


def test_number_of_agents_changes_only_by_replace() -> None:
    senses = DelayedAggregation(paper_senses("sum", 1), comm_radius=1.0)
    senses.observe(Flock(np.zeros((1, 3, 2)), np.zeros((1, 3, 2))))
    with pytest.raises(InputError, match="use replace"):
        senses.observe(Flock(np.zeros((1, 4, 2)), np.zeros((1, 4, 2))))


def test_order_in_memory_does_not_change_observations() -> None:
    flock = random_disk(1, 3_500, seed=2, radius_rule="constant-density")
    order = np.random.default_rng(1).permutation(3_500)
    other = Flock(flock.positions[:, order], flock.velocities[:, order])
    here, there = (DelayedAggregation(paper_senses("sum", 3), comm_radius=1.0) for _ in range(2))
    for _ in range(3):
        known, also = here.observe(flock), there.observe(other, agent_ids=order)
        assert np.array_equal(known[:, order], also)
    more = np.random.default_rng(2).permutation(3_500)
    there.renumber(more)
    again = Flock(other.positions[:, more], other.velocities[:, more])
    assert np.array_equal(here.observe(flock)[:, order[more]], there.observe(again, agent_ids=order[more]))


@pytest.mark.parametrize("hops", [1, 3])
def test_loaded_memory_is_what_agents_observed_at_the_step_before(hops: int) -> None:
    first, second = wandering(random_disk(2, 30, seed=1), 2)
    whole, loaded = (DelayedAggregation(paper_senses("mean", hops)) for _ in range(2))
    loaded.load_memory(second, whole.observe(first)[:, :, : hops - 1])
    assert loaded.observe(second).tobytes() == whole.observe(second).tobytes()


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("radio", [None, Radio(packet_loss=0.3)], ids=str)
def test_steps_that_are_rolled_back_leave_no_trace(steps: int, radio: Radio | None) -> None:
    path = wandering(random_disk(2, 30, seed=1), 4)
    ours, twin = (DelayedAggregation(paper_senses("mean", 3), radio=radio) for _ in range(2))
    for now in path:
        arguments = ours.begin_steps(now, np.arange(2), steps)
        arguments.current[:] = np.nan
        if steps > 1:
            arguments.previous[:] = np.nan
        ours.rollback()
        assert ours.observe(now).tobytes() == twin.observe(now).tobytes()


def test_observations_that_do_not_fit_into_memory_are_refused_before_allocation() -> None:
    with pytest.raises(InputError, match=r"observing 1,000,000,000 hops of 30 agents needs .* GiB, .*: lower hops"):
        observe(random_disk(agents=30), paper_senses("mean", 10**9))
