"""Rings and walls stand where they should, and each obstacle has its own number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.scenarios.obstacle_shapes import add_obstacle, add_obstacles, polygon_radius, ring, wall


@pytest.mark.parametrize("options", [{"sides": 12}, {"spacing": 0.1}])
def test_a_ring_is_a_regular_polygon_on_its_circle(options: dict[str, Any]) -> None:
    points = ring((1.0, 2.0), polygon_radius(12, 0.1), **options)
    assert points.shape == (12, 2)
    np.testing.assert_allclose(np.hypot(*(points - (1.0, 2.0)).T), polygon_radius(12, 0.1))
    np.testing.assert_allclose(np.hypot(*(points - np.roll(points, 1, axis=0)).T), 0.1)


def test_a_small_disk_has_three_corners_at_least() -> None:
    assert len(ring((0.0, 0.0), 0.01, spacing=0.1)) == 3


def test_a_wall_has_agents_at_both_ends_and_no_gap_wider_than_its_spacing() -> None:
    points = wall((0.0, 0.0), (3.0, 4.0), 0.15)
    np.testing.assert_allclose(points[[0, -1]], [(0.0, 0.0), (3.0, 4.0)])
    gaps = np.hypot(*np.diff(points, axis=0).T)
    assert gaps.max() <= 0.15
    assert len(wall((0.0, 0.0), (1.0, 0.0), 0.1)) == 11  # though 1 / 0.1 is not quite 10


def test_obstacles_are_numbered_one_after_the_other_in_every_flock() -> None:
    flock = ef.random_disk(flocks=2, agents=10)
    one = add_obstacle(flock, ring((9.0, 9.0), 0.5, sides=3))
    two = add_obstacle(one, np.stack([wall((5.0, y), (6.0, y), 0.5) for y in (0.0, 1.0)]))
    assert two.shape == (2, 16, 2)
    assert (two.obstacles == [-1] * 10 + [0] * 3 + [1] * 3).all()
    assert (two.positions[:, :10] == flock.positions).all()
    assert two.positions[:, 13:, 1].tolist() == [[0.0] * 3, [1.0] * 3]
    assert (two.groups[:, 10:] == -1).all()


def test_several_obstacles_are_those_added_one_after_the_other() -> None:
    flock = add_obstacle(ef.random_disk(flocks=2, agents=10), ring((9.0, 9.0), 0.5, sides=3))
    rims = np.array([[ring((x, y), 0.5, sides=4) for x in (3.0, 6.0, 9.0)] for y in (0.0, 1.0)])
    expected = flock
    for rim in rims.swapaxes(0, 1):
        expected = add_obstacle(expected, rim)
    for array, expected_array in zip(add_obstacles(flock, rims).arrays, expected.arrays, strict=True):
        assert np.array_equal(array, expected_array)
        assert array.dtype == expected_array.dtype


@pytest.mark.parametrize("spacing", [1e-6, 1e-9, 5e-324])
def test_shapes_of_too_many_agents_are_refused_before_allocation(spacing: float) -> None:
    for make in (lambda: ring((50.0, 50.0), 5.0, spacing=spacing), lambda: wall((0.0, 0.0), (5.0, 0.0), spacing)):
        with pytest.raises(InputError, match=r"an obstacle must have at most 1,000,000 agents; got .*: choose"):
            make()
    with pytest.raises(InputError, match=r"at most 1,000,000 agents; got 1e\+06"):
        ring((0.0, 0.0), 1.0, sides=1_000_001)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ring((0.0, 0.0), 1.0), "a ring takes either sides or spacing"),
        (lambda: ring((0.0, 0.0), 1.0, sides=2), "sides must be a whole number of at least 3"),
        (lambda: ring((0.0, 0.0), -1.0, sides=3), "radius must be a finite number above 0"),
        (lambda: wall((0.0, 0.0), (1.0, 0.0), 0.0), "spacing must be a finite number above 0"),
        (lambda: add_obstacle(ef.random_disk(dimensions=3), np.zeros((3, 2))), "for flocks in the plane"),
        (lambda: add_obstacle(ef.random_disk(2), np.zeros((3, 3, 2))), r"points \(count, 2\) or \(2, count, 2\)"),
    ],
)
def test_invalid_shapes_raise_errors(make: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        make()
