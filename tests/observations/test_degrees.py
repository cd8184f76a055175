"""|N_i| is what the kernels count, and older hops may be divided by the sender's instead of the receiver's."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import equiflock as ef
from equiflock._runtime import threads
from equiflock._runtime.checks import NumericRangeError
from equiflock._runtime.threads import MAX_SMALL_FLOCK
from equiflock.features import Aggregation, Senses, Topology, paper_senses
from equiflock.flock import Flock, Role
from equiflock.graph.radius_graph import radius_graph
from equiflock.observations.aggregation import DelayedAggregation, Obstacles, observe
from equiflock.observations.orbit import Orbit, count_neighbours
from tests import twins
from tests.flocks import flocks
from tests.observations.test_aggregation import AGGREGATION, wandering

OBSTACLES = st.sampled_from(["nearest", "all"])
OWN = Senses((("inverse-square", "sum"), ("velocity", "mean")), 3, hop_mean="sender")


@given(flocks(), OBSTACLES, st.integers(0, 2))
def test_degrees_are_those_of_the_dense_graph(flock: Flock, obstacles: Obstacles, left_out: int) -> None:
    active = np.flatnonzero(np.arange(len(flock)) != left_out)
    graph = radius_graph(flock, 1.0)
    # The listed senders count wherever they are now, so that flock is blown up.
    far = dataclasses.replace(flock, positions=3.0 * flock.positions)
    for found in (
        count_neighbours(flock, active, 1.0, nearest_only=obstacles == "nearest"),
        count_neighbours(far, active, 1.0, graph, obstacles == "nearest"),
    ):
        for b in range(len(flock)):
            adjacency = twins.adjacency(flock.positions[b], flock.roles[b], 1.0)
            expected = twins.count_neighbours(adjacency, flock.roles[b], obstacles)
            assert found[b].tolist() == (expected if b != left_out else 0 * expected).tolist()


def assert_dense(
    flock: Flock, senses: Senses, orbit: Orbit | None = None, obstacles: Obstacles = "nearest", steps: int = 5
) -> None:
    """Every flock at every step gives what the twin gives."""
    sensing = DelayedAggregation(senses, comm_radius=1.0, orbit=orbit, obstacles=obstacles)
    B, N, D = flock.shape
    expected = np.zeros((B, N, senses.hops, senses.width, D))
    first = [twins.adjacency(flock.positions[b], flock.roles[b], 1.0) for b in range(B)]
    for now in wandering(flock, steps):
        known = sensing.observe(now)
        for b in range(B):
            fixed = senses.topology == "fixed"
            adjacency = first[b] if fixed else twins.adjacency(now.positions[b], now.roles[b], 1.0)
            expected[b] = twins.aggregate(now, b, expected[b], adjacency, senses, orbit, obstacles)
            scale = np.abs(expected[b]).max() + 1.0
            np.testing.assert_allclose(known[b], expected[b], rtol=2e-5, atol=1e-5 * scale)


@given(flocks(), st.integers(1, 4), AGGREGATION, OBSTACLES, st.sampled_from(["dynamic", "fixed"]))
def test_sender_mean_matches_the_dense_result(
    flock: Flock, hops: int, aggregation: Aggregation, obstacles: Obstacles, topology: Topology
) -> None:
    assert_dense(flock, paper_senses(aggregation, hops, topology, "sender"), Orbit(), obstacles)


@pytest.mark.slow
@given(flocks())
def test_sender_mean_of_declared_channels_matches_the_dense_result(flock: Flock) -> None:
    assert_dense(flock, OWN)


@pytest.mark.slow
@given(flocks(), st.integers(2, 4))
def test_sender_mean_of_large_flocks_matches_the_dense_result(flock: Flock, hops: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["equiflock.observations.aggregation"], "MAX_SMALL_FLOCK", 0)
        patch.setattr(sys.modules["equiflock.observations.aggregation_kernels"], "AGENTS_PER_THREAD", 4)
        assert_dense(flock, paper_senses("mean", hops, hop_mean="sender"))


def test_sender_mean_of_a_star_is_undivided() -> None:
    """Agent 0 has three neighbours, which have no others; the first of them moves, for one step."""
    star = np.array([[[0.0, 0.0], [0.9, 0.0], [-0.45, 0.78], [-0.45, -0.78]]])
    velocities = np.zeros_like(star)
    velocities[0, 1, 0] = 6.0
    sensing = DelayedAggregation(paper_senses("mean", 2, hop_mean="sender"))
    first = sensing.observe(Flock(star, velocities))
    assert first[0, :, 0, 0, 0].tolist() == [-2.0, 6.0, 0.0, 0.0]
    second = sensing.observe(Flock(star, np.zeros_like(star)))
    # 6 / 1 from the one that moved, rather than the mean 6 / 3; and -2 / 3 of the middle, rather than -2.
    np.testing.assert_allclose(second[0, :, 1, 0, 0], [6.0, -2 / 3, -2 / 3, -2 / 3], rtol=1e-6)
    # The caller may still read the observations of the step before.
    assert first[0, :, 0, 0, 0].tolist() == [-2.0, 6.0, 0.0, 0.0]


def test_both_means_agree_if_all_degrees_are_equal() -> None:
    rng = np.random.default_rng(0)
    flock = Flock(rng.uniform(-0.2, 0.2, (2, 9, 2)), rng.uniform(-0.5, 0.5, (2, 9, 2)))
    receiver, sender = (DelayedAggregation(paper_senses("mean", 3, hop_mean=who)) for who in ("receiver", "sender"))
    for now in wandering(flock, 4):
        np.testing.assert_allclose(sender.observe(now), receiver.observe(now), rtol=1e-5, atol=1e-5)


def test_sender_mean_does_not_change_the_first_hop() -> None:
    flock = ef.random_disk(2, 50, seed=4)
    for hops in (1, 3):
        usual, other = (paper_senses("sum", hops, hop_mean=who) for who in ("receiver", "sender"))
        assert np.array_equal(observe(flock, usual), observe(flock, other))


def test_observations_of_ended_flocks_are_zero() -> None:
    flock, flying = ef.random_disk(3, 30, seed=1), np.array([True, False, True])
    some, everyone = (DelayedAggregation(paper_senses("mean", 3, hop_mean="sender")) for _ in range(2))
    for _ in range(3):
        known, whole = some.observe(flock, flying), everyone.observe(flock)
        assert not known[1].any()
        assert np.array_equal(known[[0, 2]], whole[[0, 2]])
    assert known[0, :, 2].any()
    assert not some.observe(flock, np.zeros(3, bool)).any()


@pytest.mark.parametrize("agents", [300, MAX_SMALL_FLOCK + 1])
def test_sender_mean_does_not_depend_on_threads_or_order_in_memory(agents: int) -> None:
    flock = ef.random_disk(1, agents, seed=2, radius_rule="constant-density")
    order = np.random.default_rng(1).permutation(agents) if agents > MAX_SMALL_FLOCK else np.arange(agents)
    other = Flock(flock.positions[:, order], flock.velocities[:, order])
    results = []
    for count in (1, 3):
        with threads.use(count):
            here, there = (DelayedAggregation(paper_senses("sum", 3, hop_mean="sender")) for _ in range(2))
            for _ in range(3):
                known, also = (
                    here.observe(flock),
                    there.observe(other, agent_ids=order if agents > MAX_SMALL_FLOCK else None),
                )
                assert np.array_equal(known[:, order], also)
            results.append(known.tobytes())
    assert results[0] == results[1]


def test_replace_keeps_histories_and_new_leaders_relay_nothing() -> None:
    flock = ef.random_disk(1, 30, seed=7)
    sensing = DelayedAggregation(paper_senses("mean", 3, hop_mean="sender"))
    before = np.stack([sensing.observe(flock).copy() for _ in range(3)])[-1].astype(float)
    keep = np.arange(30) % 3 > 0
    roles = np.where(np.arange(20) < 4, Role.LEADER, Role.FOLLOWER)[None].astype(np.int8)
    rest = Flock(flock.positions[:, keep], flock.velocities[:, keep], roles)
    sensing.replace(rest, keep)
    adjacency = twins.adjacency(rest.positions[0], rest.roles[0], 1.0)
    expected = twins.aggregate(rest, 0, before[0, keep], adjacency, sensing.senses)
    np.testing.assert_allclose(sensing.observe(rest)[0], expected, rtol=1e-4, atol=1e-4)


def test_out_of_range_state_is_rejected() -> None:
    far = Flock(np.full((1, 2, 2), 1e20), np.zeros((1, 2, 2)))
    with pytest.raises(NumericRangeError, match="off the scale"):
        observe(far, paper_senses("sum", 2, hop_mean="sender"))


@pytest.mark.parametrize("agents", [100, MAX_SMALL_FLOCK + 1])
def test_compiled_network_uses_its_hop_mean(agents: int) -> None:
    start: Any = ef.random_disk(1, agents, seed=3, radius_rule="constant-density")
    network: Any = ef.load_module("etdagnn")
    network.senses = dataclasses.replace(network.senses, hop_mean="sender")
    run = ef.simulate(start, network, duration=0.05)
    usual = ef.simulate(start, ef.load("etdagnn"), duration=0.05)
    assert run.config["senses"]["hop_mean"] == "sender"
    # Nothing differs before there is a past.
    assert np.array_equal(run.positions[:2], usual.positions[:2])
    assert not np.array_equal(run.positions, usual.positions)
