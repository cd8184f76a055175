"""The nearest and the farthest two of many points are those that comparing all pairs finds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from equiflock.graph import geometry
from equiflock.graph.geometry import BRUTE_FORCE_DIAMETER_POINTS
from tests import twins

Points = twins.Array


def farthest_pair_by_loops(points: Points) -> tuple[int, int]:
    """The first pair i < j at the largest distance, by j and then by i."""
    pair, most = (0, 1), -1.0
    for j in range(1, len(points)):
        squares = sum(c * c for c in (points[:j] - points[j]).T)
        i = int(np.argmax(squares))  # the first of the largest
        if squares[i] > most:
            pair, most = (i, j), squares[i]
    return pair


def shapes(D: int) -> dict[str, Points]:
    rng = np.random.default_rng(4)
    points = rng.normal(size=(BRUTE_FORCE_DIAMETER_POINTS + 150, D))
    crowd = np.where(np.arange(len(points))[:, None] < 200, 1.0, -2.0) * np.ones(D)
    return {
        "ball": points,
        "three groups": 0.1 * points + np.eye(3)[rng.integers(0, 3, len(points)), :D] * 50,
        "sphere": points / np.linalg.norm(points, axis=1, keepdims=True),
        "line": points * np.eye(1, D),
        "two coincident crowds": crowd,
        "one point": np.ones((len(points), D)),
        "lattice": rng.integers(-3, 4, (len(points), D)) * 1.0,  # with many pairs at the same distance
        "few": points[:20],
        "two": points[:2],
    }


@pytest.mark.parametrize("D", [2, 3])
@pytest.mark.parametrize("shape", list(shapes(2)))
def test_extremes_are_those_of_all_pairs(shape: str, D: int) -> None:
    points = shapes(D)[shape]
    distances = twins.distances(points)
    i, j, square = geometry.farthest_pair(points)
    assert (i, j) == farthest_pair_by_loops(points)
    assert math.sqrt(square) == geometry.diameter(points) == pytest.approx(distances.max(), rel=1e-15)
    assert geometry.minimum_separation(points) == pytest.approx(distances.min(), rel=1e-15)
    near, far = np.sqrt(geometry.squared_distance_range(points))
    assert (near, far) == (geometry.minimum_separation(points), geometry.diameter(points))
    low, high = geometry.bounding_box(points)
    assert (low == points.min(axis=0)).all()
    assert (high == points.max(axis=0)).all()


def test_a_single_point_has_no_extent_and_is_near_to_nobody() -> None:
    assert geometry.diameter(np.ones((1, 2))) == 0.0
    assert geometry.minimum_separation(np.ones((1, 2))) == math.inf
