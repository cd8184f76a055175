"""Algebraic connectivity is the second-smallest eigenvalue of the graph's Laplacian."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import equiflock as ef
from equiflock.flock import Condition, Role
from equiflock.graph import algebraic_connectivity as subject
from equiflock.graph.algebraic_connectivity import compute_algebraic_connectivity


def build_flock(positions: np.ndarray, **arrays: np.ndarray) -> ef.Flock:
    return ef.Flock(positions, np.zeros_like(positions), comm_radius=1.0, **arrays)


def compute_slowly(positions: np.ndarray) -> float:
    """The eigenvalue of the dense Laplacian of agents within R = 1."""
    distances = np.linalg.norm(positions[:, None] - positions[None], axis=-1)
    joined = (distances <= 1.0) & ~np.eye(len(positions), dtype=bool)
    return float(np.linalg.eigvalsh(np.diag(joined.sum(axis=0)) - joined)[1])


@pytest.mark.parametrize("dense_agents", [64, 3], ids=["dense", "sparse"])
@given(agents=st.integers(4, 40), size=st.floats(0.3, 4.0), seed=st.integers(0, 999))
def test_it_agrees_with_a_dense_eigenvalue(dense_agents: int, agents: int, size: float, seed: int) -> None:
    positions = np.random.default_rng(seed).uniform(0.0, size, (1, agents, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subject, "MAX_DENSE_AGENTS", dense_agents)
        (found,) = compute_algebraic_connectivity(build_flock(positions))
    assert found == pytest.approx(compute_slowly(positions[0]), abs=1e-8)


def test_known_graphs_have_their_known_values() -> None:
    N = 8
    line = np.stack([0.9 * np.arange(N), np.zeros(N)], axis=1)
    complete = 0.01 * np.random.default_rng(0).normal(size=(N, 2))
    apart = line * 2.0
    found = compute_algebraic_connectivity(build_flock(np.stack([line, complete, apart])))
    assert found == pytest.approx([2.0 - 2.0 * np.cos(np.pi / N), N, 0.0])


def test_failed_agents_and_obstacles_do_not_count_and_leaders_do() -> None:
    line = np.stack([0.9 * np.arange(4.0), np.zeros(4)], axis=1)[None]
    path_of_three = 1.0
    last = np.array([[0, 0, 0, 1]])
    failed = build_flock(line, conditions=np.where(last, Condition.STOPPED, Condition.WORKING).astype(np.int8))
    led = build_flock(line[:, :3], roles=np.array([[Role.LEADER, Role.FOLLOWER, Role.FOLLOWER]], np.int8))
    for flock in (failed, led):
        assert compute_algebraic_connectivity(flock) == pytest.approx([path_of_three])


def test_a_flock_of_one_has_no_connectivity() -> None:
    assert compute_algebraic_connectivity(build_flock(np.zeros((1, 1, 2)))).tolist() == [0.0]
