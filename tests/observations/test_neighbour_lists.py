"""Neighbour lists match the graph, in its order, for any block, batch and candidates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equiflock.features import paper_senses
from equiflock.flock import Flock
from equiflock.graph.cell_list import make_cell_list, sort_into_cells
from equiflock.graph.radius_graph import radius_graph
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.observations.neighbour_lists import (
    BIT_POSITIONS,
    DE_BRUIJN,
    MAX_BLOCK_CELLS,
    NeighbourLists,
    Records,
    SortedCells,
    compute_cells_per_block,
    gather_records,
    list_batch,
    make_batch_buffers,
    make_records,
)
from tests import twins
from tests.flocks import flocks


def listed(flock: Flock, b: int, most: int, agents: int, room: int) -> dict[int, tuple[list[int], Any]]:
    """Return neighbours and r_ij of every agent, by blocks of `most` cells and batches of `agents` agents."""
    _, N, D = flock.shape
    cell_list = make_cell_list(N)
    shape = sort_into_cells(flock.positions[b], 1.0, cell_list)
    order, starts, _ = cell_list
    state = make_records(N, D, 0, False)
    previous = np.zeros((N, 3 * D), np.float32)
    gather_records(flock.positions[b], flock.velocities[b], previous, 0, order, state, 0, N)
    records = Records(*state, order, np.empty(0, np.int64), flock.roles[b], flock.groups[b], False)
    # Smaller buffers than usual, so that a few agents fill a batch.
    buffers = make_batch_buffers(N, D, False)
    senders, offsets = buffers.lists.senders[: N + room], buffers.lists.offsets[:, : N + room].copy()
    lists = NeighbourLists(senders, offsets, np.empty(agents, np.uintp))
    buffers = buffers._replace(lists=lists)
    result = {}
    c, done, last = 0, np.uintp(0), int(np.prod(shape))
    while c < last:
        s = int(starts[c] + done)
        cells = SortedCells(starts, shape)
        c, done, count = list_batch(c, done, last, records, cells, most, 1.0, buffers, tuple(range(D)))
        ends = [0, *lists.ends[: int(count)].tolist()]
        for a in range(int(count)):
            part = slice(ends[a], ends[a + 1])
            result[int(order[s + a])] = order[lists.senders[part]].tolist(), lists.offsets[:D, part].T.copy()
        done = np.uintp(done)
    return result


def crowd(D: int, agents: int = 300) -> Flock:
    """Return agents in a few cells: several words of candidates for every agent."""
    rng = np.random.default_rng(D)
    return Flock(rng.uniform(-1.2, 1.2, (1, agents, D)), rng.normal(size=(1, agents, D)))


def check_lists(flock: Flock, most: int, agents: int, room: int) -> None:
    graph = radius_graph(flock, 1.0)
    for b in range(len(flock)):
        lists = listed(flock, b, most, agents, room)
        assert sorted(lists) == list(range(flock.shape[1]))
        for i, (senders, offsets) in lists.items():
            assert senders == graph.neighbours(b, i).tolist()
            expected = (flock.positions[b, i] - flock.positions[b, senders]).astype(np.float32)
            assert np.array_equal(offsets, expected)


@given(flocks(), st.integers(1, MAX_BLOCK_CELLS), st.integers(1, 40), st.integers(0, 60))
def test_lists_match_the_graph(flock: Flock, most: int, agents: int, room: int) -> None:
    check_lists(flock, most, agents, room)


@pytest.mark.parametrize("D", [2, 3])
@pytest.mark.parametrize(("most", "agents", "room"), [(1, 128, 4096), (3, 7, 0), (16, 128, 500)])
def test_lists_of_a_dense_flock_match_the_graph(D: int, most: int, agents: int, room: int) -> None:
    check_lists(crowd(D), most, agents, room)


@pytest.mark.slow
@pytest.mark.parametrize("D", [2, 3])
def test_observations_of_a_dense_flock_match_the_twin(D: int) -> None:
    flock, sensing = crowd(D, agents=180), DelayedAggregation(paper_senses("mean", 2), comm_radius=1.0)
    adjacency = twins.adjacency(flock.positions[0], flock.roles[0], 1.0)
    expected = np.zeros((180, 2, 3, D))
    for _ in range(2):
        known = sensing.observe(flock)[0]
        expected = twins.aggregate(flock, 0, expected, adjacency, sensing.senses)
        np.testing.assert_allclose(known, expected, rtol=2e-5, atol=3e-6 * (np.abs(expected).max() + 1.0))


@given(flocks(), st.sampled_from(["sum", "mean"]), st.integers(1, 3))
def test_fixed_graph_and_neighbour_search_are_bit_identical(flock: Flock, aggregation: Any, hops: int) -> None:
    dynamic, fixed = (
        DelayedAggregation(paper_senses(aggregation, hops, topology), comm_radius=1.0)  # type: ignore[arg-type]
        for topology in ("dynamic", "fixed")
    )
    for _ in range(3):
        assert dynamic.observe(flock).tobytes() == fixed.observe(flock).tobytes()


def test_bit_positions_table() -> None:
    for n in range(64):
        assert BIT_POSITIONS[(int(DE_BRUIJN) << n & 2**64 - 1) >> 58] == n


@pytest.mark.parametrize(("each", "cells"), [(1, 16), (3, 4), (10, 1), (1000, 1)])
def test_blocks_of_dense_flocks_have_fewer_cells(each: int, cells: int) -> None:
    # Twenty cells in a row, in the plane.
    starts = np.arange(0, 21 * each, each).astype(np.uintp)
    assert compute_cells_per_block(SortedCells(starts, (20, 1, 1))) == cells
