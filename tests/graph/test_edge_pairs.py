"""Pairs and differences of edges agree with sets of Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from equiflock.graph.edge_pairs import Edges, pair_edges, subtract_edges
from tests.plotting.player.frame_reader import unpair


def draw_edges(agents: int, share: float, rng: np.random.Generator) -> Edges:
    """Return random edges without loops, those of a receiver in any order."""
    mask = rng.random((agents, agents)) < share
    np.fill_diagonal(mask, False)
    edges = rng.permutation(np.argwhere(mask))
    return edges[np.argsort(edges[:, 0], kind="stable")]


@given(st.integers(1, 12), st.sampled_from([0.0, 0.2, 0.7, 1.0]), st.integers(0, 1000))
def test_two_edges_between_two_agents_are_one_pair(agents: int, share: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    can_receive = rng.random(agents) < 0.7
    edges = draw_edges(agents, share, rng)
    edges = edges[can_receive[edges[:, 0]]]
    pairs, singles = pair_edges(edges, can_receive)
    present = set(map(tuple, edges.tolist()))
    assert set(map(tuple, singles.tolist())) == {(i, j) for i, j in present if can_receive[j] and (j, i) not in present}
    assert len({frozenset(pair) for pair in pairs.tolist()}) == len(pairs)
    assert unpair(pairs, singles, can_receive).tolist() == sorted(edges.tolist())


@given(st.integers(1, 12), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 1000))
def test_differences_are_those_of_sets(agents: int, share: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges, others = draw_edges(agents, share, rng), draw_edges(agents, 0.4, rng)
    expected = [edge for edge in edges.tolist() if edge not in others.tolist()]
    assert subtract_edges(edges, others, agents).tolist() == expected
