"""Metrics of drones: tilt, thrust margin, height, close pairs, and the acceleration that a drone reaches."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock.simulation.drone_metrics import (
    compute_max_acceleration,
    find_close_pairs,
    largest_tilt,
    lowest_height,
    thrust_margin,
)


def make_moment(**state: Any) -> Any:
    flock = ef.Flock(np.array([[[0.0, 0.0, 2.0], [1.0, 0.0, 1.5]]]), np.zeros((1, 2, 3)))
    return SimpleNamespace(flock=flock, body_state=state)


@pytest.mark.parametrize("degrees", [0.0, 10.0, 45.0, 120.0])
@pytest.mark.parametrize("yaw", [0.0, 1.0])
def test_tilt_is_the_angle_of_the_thrust_and_does_not_depend_on_yaw(degrees: float, yaw: float) -> None:
    half, turn = math.radians(degrees) / 2, yaw / 2
    # Yaw after a roll: the product of both quaternions.
    tilted = [
        math.cos(turn) * math.sin(half),
        math.sin(turn) * math.sin(half),
        math.sin(turn) * math.cos(half),
        math.cos(turn) * math.cos(half),
    ]
    moment = make_moment(quaternion=np.array([[[0.0, 0.0, 0.0, 1.0], tilted]]))
    np.testing.assert_allclose(largest_tilt(moment), [degrees], atol=1e-5)


def test_the_thrust_margin_is_that_of_the_fastest_motor() -> None:
    drone = ef.Quadrotor()
    fastest = math.sqrt(drone.max_motor_thrust / drone.thrust_coefficient)
    speeds = np.full((1, 2, 4), 0.5 * fastest)
    np.testing.assert_allclose(thrust_margin(make_moment(motor_speeds=speeds)), [0.75])
    speeds[0, 1, 2] = fastest
    np.testing.assert_allclose(thrust_margin(make_moment(motor_speeds=speeds)), [0.0], atol=1e-12)


def test_a_hovering_flock_is_level_with_a_third_of_its_thrust_left() -> None:
    start = ef.Flock(np.array([[[0.0, 0.0, 2.0], [1.0, 0.0, 1.5]]]), np.zeros((1, 2, 3)))
    moment = next(iter(ef.flight(start, ef.load("reynolds"), body=ef.Quadrotor())))
    drone = ef.Quadrotor()
    assert largest_tilt(moment) == [0.0] and lowest_height(moment) == [1.5]
    assert thrust_margin(moment) == pytest.approx(1.0 - drone.mass * 9.81 / (4.0 * drone.max_motor_thrust))


def test_close_pairs_are_counted_once() -> None:
    positions = np.array([[[0.0, 0.0], [0.1, 0.0], [1.0, 0.0]], [[0.0, 0.0], [1.0, 0.0], [1.0, 0.15]]])
    flock = ef.Flock(positions, np.zeros_like(positions))
    assert find_close_pairs(flock, 0.2) == {(0, 0, 1), (1, 1, 2)}
    assert find_close_pairs(flock, 0.12) == {(0, 0, 1)}


def test_the_acceleration_of_a_drone_is_limited_by_tilt_and_thrust() -> None:
    drone = ef.Quadrotor(max_tilt=40.0)
    upwards = 4.0 * drone.max_motor_thrust / drone.mass - 9.81
    assert compute_max_acceleration(drone, 2) == pytest.approx(9.81 * math.tan(math.radians(40.0)))
    assert compute_max_acceleration(drone, 3) == pytest.approx(upwards)
    gentle = ef.Quadrotor(max_tilt=10.0)
    assert compute_max_acceleration(gentle, 2) == compute_max_acceleration(gentle, 3)


def test_another_body_raises_one_clear_line() -> None:
    start = ef.random_disk(agents=5)
    moment = next(iter(ef.flight(start, ef.load("reynolds"))))
    with pytest.raises(ef.InputError, match="need a body with 'quaternion' in its state, such as Quadrotor"):
        largest_tilt(moment)
