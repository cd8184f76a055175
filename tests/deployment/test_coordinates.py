"""Rotations by quaternions agree with SciPy's, and north-east-down is its own inverse."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from equiflock.deployment.coordinates import is_orientation, rotate_by_quaternion, swap_ned_and_enu


def test_rotation_agrees_with_scipy_for_quaternions_of_any_sign_and_of_nearly_unit_norm() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        quaternion, vector = rng.normal(size=4), rng.normal(size=3)
        expected = Rotation.from_quat(quaternion).apply(vector)
        quaternion *= 1.005 / np.linalg.norm(quaternion)
        np.testing.assert_allclose(rotate_by_quaternion(vector, quaternion), expected, atol=1e-14)
        np.testing.assert_allclose(rotate_by_quaternion(vector, -quaternion), expected, atol=1e-14)


@pytest.mark.parametrize("quaternion", [(0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.1), (math.nan, 0.0, 0.0, 1.0)])
def test_what_is_no_unit_quaternion_is_no_orientation(quaternion: tuple[float, ...]) -> None:
    assert not is_orientation(quaternion)
    assert is_orientation((0.0, 0.0, 1.0, 0.0))


def test_north_east_down_is_east_north_up() -> None:
    assert swap_ned_and_enu((1.0, 2.0, 3.0)) == (2.0, 1.0, -3.0)
    assert swap_ned_and_enu(swap_ned_and_enu((1.0, 2.0, 3.0))) == (1.0, 2.0, 3.0)
