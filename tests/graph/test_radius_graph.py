"""The graph is exactly the dense one, for every flock, in memory O(N + edges)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

import equiflock as ef
from equiflock._runtime import threads
from equiflock._runtime.checks import InputError
from equiflock.flock import Flock, Role
from equiflock.graph.radius_graph import components, compute_connectivity, radius_graph
from tests import twins
from tests.flocks import flocks


@given(flocks(failed=True))
def test_cell_list_matches_the_dense_graph(flock: Flock) -> None:
    graph = radius_graph(flock, 1.0)
    for b in range(len(flock)):
        dense = twins.find_neighbours(flock, b, 1.0)
        for i in range(flock.shape[1]):
            neighbours = graph.neighbours(b, i)
            assert len(set(neighbours.tolist())) == len(neighbours)
            assert sorted(neighbours.tolist()) == np.flatnonzero(dense[i]).tolist()
        assert (graph.degrees[b] == dense.sum(axis=1)).all()
        assert sorted(graph.edges(b).tolist()) == np.argwhere(dense).tolist()


@given(flocks(failed=True))
def test_components_are_those_of_a_plain_search(flock: Flock) -> None:
    labels = components(flock, 1.0)
    for b in range(len(flock)):
        assert labels[b].tolist() == twins.components(flock, b, 1.0).tolist()


@pytest.mark.parametrize("radius", [0.01, 0.3, 7.0, 1e4])
def test_any_radius_gives_the_dense_graph(radius: float) -> None:
    flock = Flock(np.random.default_rng(0).normal(size=(1, 60, 2)), np.zeros((1, 60, 2)))
    dense = twins.adjacency(flock.positions[0], flock.roles[0], radius)
    assert (radius_graph(flock, radius).degrees[0] == dense.sum(axis=1)).all()


def test_radius_is_inclusive() -> None:
    line = np.array([[[0.0, 0.0], [1.0, 0.0], [0.0, np.nextafter(1.0, 2.0)]]])
    graph = radius_graph(Flock(line, np.zeros_like(line)), 1.0)
    assert graph.neighbours(0, 0).tolist() == [1]
    assert graph.neighbours(0, 2).tolist() == []


def test_thousands_in_one_cell_are_all_neighbours() -> None:
    positions = np.random.default_rng(0).uniform(0.3, 0.6, (1, 3000, 2))
    degrees = radius_graph(Flock(positions, np.zeros_like(positions)), 1.0).degrees
    assert (degrees == 2999).all()


def test_leaders_and_obstacle_agents_send_but_do_not_receive() -> None:
    positions = np.zeros((1, 3, 2))
    flock = Flock(positions, positions, [[Role.FOLLOWER, Role.LEADER, Role.OBSTACLE]])
    graph = radius_graph(flock, 1.0)
    assert sorted(graph.neighbours(0, 0).tolist()) == [1, 2]
    assert graph.degrees[0].tolist() == [2, 0, 0]


def test_leaders_without_followers_are_separate_components() -> None:
    positions = np.array([[[0.0, 0.0], [0.5, 0.0], [9.0, 0.0]]])
    flock = Flock(positions, np.zeros_like(positions), [[Role.LEADER, Role.LEADER, Role.FOLLOWER]])
    assert components(flock, 1.0).tolist() == [[0, 1, 2]]


def test_neighbours_are_ordered_by_cell_then_index() -> None:
    positions = np.array([[[0.5, 0.5], [1.2, 0.5], [-0.2, 0.5], [0.6, 0.5], [0.5, -0.1], [0.4, 0.5]]])
    graph = radius_graph(Flock(positions, np.zeros_like(positions)), 1.0)
    assert graph.neighbours(0, 0).tolist() == [4, 2, 3, 5, 1]


def test_negative_indices_count_from_the_end() -> None:
    positions = np.array([[[0.0, 0.0], [0.5, 0.0]]] * 2)
    graph = radius_graph(Flock(positions, np.zeros_like(positions)), 1.0)
    assert graph.neighbours(-1, -1).tolist() == [0]
    assert graph.edges(-1).tolist() == [[0, 1], [1, 0]]
    with pytest.raises(IndexError):
        graph.neighbours(0, 2)


def test_graph_does_not_depend_on_the_number_of_threads() -> None:
    flock = Flock(np.random.default_rng(1).uniform(-9, 9, (40, 300, 2)), np.zeros((40, 300, 2)))
    with threads.use(1):
        one = radius_graph(flock, 1.0)
    with threads.use(3):
        three = radius_graph(flock, 1.0)
    assert (one.starts == three.starts).all()
    assert (one.senders == three.senders).all()


@pytest.mark.parametrize("radius", [0.0, -1.0, float("nan"), float("inf")])
def test_a_radius_must_be_a_positive_number(radius: float) -> None:
    flock = Flock(np.zeros((1, 1, 2)), np.zeros((1, 1, 2)))
    with pytest.raises(InputError, match="comm_radius must be a finite number above 0"):
        radius_graph(flock, radius)


def test_out_of_range_positions_are_rejected() -> None:
    flock = Flock(np.full((1, 2, 2), 1e12), np.zeros((1, 2, 2)))
    with pytest.raises(InputError, match="within 2e\\+09 radii of the origin"):
        compute_connectivity(flock, 1.0)


@pytest.mark.parametrize("wrong", [None, "flock", np.zeros((1, 3, 2))])
def test_argument_must_be_a_flock(wrong: Any) -> None:
    for function in (ef.radius_graph, ef.components, lambda flock: ef.observe(flock, ef.paper_senses())):
        with pytest.raises(InputError, match=r"flock must be an equiflock\.Flock; got"):
            function(wrong)
    for metric in (ef.metrics.velocity_variance, ef.metrics.component_count, ef.metrics.diameter):
        with pytest.raises(InputError, match="a metric needs a Flock, a Moment or a Trajectory; got"):
            metric(wrong)


def test_a_graph_that_does_not_fit_into_memory_is_refused_before_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    flock = ef.random_disk(agents=100)
    edges = len(radius_graph(flock).senders)
    monkeypatch.setattr("equiflock._runtime.memory.read_physical_memory", lambda: 8.0 * edges)
    radius_graph(flock)
    monkeypatch.setattr("equiflock._runtime.memory.read_physical_memory", lambda: 8.0 * edges - 1)
    with pytest.raises(
        InputError, match=f"a graph of {edges:,} edges needs .* GiB, more than this machine has: spread"
    ):
        radius_graph(flock)
