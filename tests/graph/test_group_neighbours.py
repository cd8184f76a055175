"""Whoever is among its own group has nearest neighbours of whom more than half are of that group."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equiflock._runtime import threads
from equiflock._runtime.checks import InputError
from equiflock.flock import Condition, Flock
from equiflock.graph.radius_graph import has_own_group_majority
from equiflock.scenarios import random_disk
from tests.flocks import flocks


def slow(flock: Flock, b: int, i: int, nearest: int) -> set[bool]:
    """The answers that are right: two if it depends on who of those at the same distance is counted."""
    working, groups, positions = flock.working[b], flock.groups[b], flock.positions[b]
    if not working[i]:
        return {False}
    squares = np.square(positions - positions[i]).sum(axis=1)
    others = [j for j in range(len(groups)) if j != i and working[j] and squares[j] <= flock.comm_radius**2]
    kept = min(nearest, len(others))
    # Those nearer than the last that is kept are in any case, of those as far as it some are.
    limit = sorted(squares[others])[kept - 1] if kept else 0.0
    sure = [groups[j] == groups[i] for j in others if squares[j] < limit]
    equal = [groups[j] == groups[i] for j in others if squares[j] == limit]
    left = kept - len(sure)
    most = sum(sure) + min(sum(equal), left)
    least = sum(sure) + max(0, left - (len(equal) - sum(equal)))
    return {2 * own > kept for own in range(least, most + 1)}


@given(flocks(failed=True), st.integers(0, 99), st.integers(1, 7))
def test_majority_matches_the_dense_result(flock: Flock, seed: int, nearest: int) -> None:
    flock = dataclasses.replace(flock, groups=np.random.default_rng(seed).integers(0, 3, flock.shape[:2]))
    found = has_own_group_majority(flock, nearest)
    for b, i in np.ndindex(found.shape):
        assert bool(found[b, i]) in slow(flock, b, i, nearest)


def test_failed_agents_do_not_count() -> None:
    positions, groups = np.array([[[0.0, 0.0], [0.1, 0.0], [0.15, 0.0], [0.3, 0.0]]]), [[0, 1, 1, 0]]
    start = Flock(positions, np.zeros_like(positions), groups=groups)
    assert has_own_group_majority(start, 1).tolist() == [[False, True, True, False]]
    silent = dataclasses.replace(start, conditions=[[0, Condition.SILENT, Condition.SILENT, 0]])
    assert has_own_group_majority(silent, 1).tolist() == [[True, False, False, True]]


def test_majority_does_not_depend_on_the_number_of_threads() -> None:
    flock = dataclasses.replace(random_disk(40, 100), groups=np.arange(4000).reshape(40, 100) % 3)
    found = set()
    for count in (1, 2, 3):
        with threads.use(count):
            found.add(has_own_group_majority(flock, 6).tobytes())
    assert len(found) == 1


def test_out_of_range_flock_is_rejected() -> None:
    with pytest.raises(InputError, match="off the scale"):
        has_own_group_majority(Flock([[[1e20, 0.0], [0.0, 0.0]]], np.zeros((1, 2, 2))), 6)
