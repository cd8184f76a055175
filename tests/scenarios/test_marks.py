"""Marks are rows of numbers that are checked, and walls are segments between their ends."""

from __future__ import annotations

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.scenarios.marks import circles, points, segments
from equiflock.scenarios.obstacle_shapes import add_obstacle, obstacle_disks, obstacle_walls, ring, wall


def test_marks_have_four_numbers_whatever_their_shape() -> None:
    assert circles("goal", [[1, 2, 3]]).numbers.tolist() == [[1.0, 2.0, 3.0, 0.0]]
    assert points("place", [[1, 2, 9]]).numbers.tolist() == [[1.0, 2.0, 0.0, 0.0]]
    assert segments("gate", [[1, 2, 3, 4]]).numbers.tolist() == [[1.0, 2.0, 3.0, 4.0]]
    assert points("place", np.empty((0, 2))).numbers.shape == (0, 4)


def test_invalid_marks_raise_errors() -> None:
    with pytest.raises(InputError, match="kind of a mark must be one of 'goal', 'place', 'gate', 'wall'; got 'door'"):
        points("door", [[1, 2]])  # type: ignore[arg-type]
    for values in ([[1, 2]], [1, 2, 3], [[1, 2, np.nan]], "abc"):
        with pytest.raises(InputError, match="circles of marks must be finite rows of 3 numbers"):
            circles("goal", values)  # type: ignore[arg-type]


def test_walls_have_two_ends_and_rings_are_no_walls() -> None:
    flock = ef.random_disk(1, 10)
    for begin, end in (((0.0, 1.0), (4.0, 3.0)), ((5.0, 2.0), (5.0, -2.0))):
        flock = add_obstacle(flock, wall(begin, end, spacing=0.3))
    flock = add_obstacle(flock, ring((9.0, 9.0), 1.0, sides=7))
    flock = add_obstacle(flock, np.array([[7.0, 7.0]]))
    np.testing.assert_allclose(obstacle_walls(flock), [[0.0, 1.0, 4.0, 3.0], [5.0, -2.0, 5.0, 2.0]])
    np.testing.assert_allclose(obstacle_disks(flock), [[9.0, 9.0, 1.0]])
    assert obstacle_walls(ef.random_disk(1, 10)).shape == (0, 4)
