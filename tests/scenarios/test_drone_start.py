"""Flocks of drones at the start: connected, apart, above the ground, within their speed, and not sinking."""

from __future__ import annotations

import numpy as np
import pytest

import equiflock as ef
from equiflock.scenarios.drone_start import draw_drones


@pytest.mark.parametrize("drones", [2, 20, 150])
def test_flocks_are_connected_apart_and_above_the_ground(drones: int) -> None:
    start = draw_drones(3, drones, 1, height=2.0)
    assert start.shape == (3, drones, 3) and start.comm_radius == 5.0
    assert ef.components(start).max() == 0
    assert ef.metrics.minimum_separation(start).min() >= 0.5
    np.testing.assert_allclose(start.positions[..., 2].min(axis=1), 2.0)
    assert np.linalg.norm(start.velocities, axis=2).max() <= 1.0
    assert (start.velocities[..., 2].mean(axis=1) >= 0.0).all()


def test_the_common_velocity_is_horizontal() -> None:
    still, cruising = (draw_drones(2, 20, 4, cruise_speed=speed).velocities for speed in (0.0, 1.5))
    common = cruising - still
    np.testing.assert_allclose(np.linalg.norm(common, axis=2), 1.5)
    np.testing.assert_allclose(np.ptp(common, axis=1), 0.0, atol=1e-12)
    np.testing.assert_array_equal(common[..., 2], 0.0)


def test_the_same_seed_gives_the_same_flocks_however_many() -> None:
    one, three = draw_drones(1, 12, 7), draw_drones(3, 12, 7)
    np.testing.assert_array_equal(one.positions[0], three.positions[0])
    np.testing.assert_array_equal(one.velocities[0], three.velocities[0])
    assert (draw_drones(1, 12, 8).positions != one.positions).any()


def test_flocks_of_the_plane_stay_in_it() -> None:
    assert draw_drones(1, 12, 7, dimensions=2).shape == (1, 12, 2)
