"""Flights of drones: results, the choice of the time scale, and errors."""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock.evaluation import drone_flights, robot_fit
from equiflock.evaluation.drone_flights import (
    LAG_FACTOR,
    DroneResults,
    DroneSetting,
    choose_controller,
    simulate_drones,
)
from equiflock.simulation.drone_metrics import compute_max_acceleration

LAW = "starling:comm_radius=5:time_scale=20"


@pytest.fixture(scope="module")
def flight() -> tuple[ef.Trajectory, DroneResults]:
    setting = DroneSetting(drones=12, flocks=2, seed=5)
    return simulate_drones(setting, choose_controller(setting, LAW).controller, 3.0, keep_every=1)


def test_results_are_the_extremes_of_the_trajectory(flight: tuple[ef.Trajectory, DroneResults]) -> None:
    run, results = flight
    x, y = np.moveaxis(run.body_state["quaternion"], -1, 0)[:2]
    tilts = np.degrees(np.arccos(1.0 - 2.0 * (x * x + y * y)))
    np.testing.assert_allclose(results.tilt, tilts.max(axis=(0, 2)), rtol=1e-6)
    np.testing.assert_allclose(results.separation, ef.metrics.minimum_separation(run).min(axis=0))
    np.testing.assert_allclose(results.height, run.positions[..., 2].min(axis=(0, 2)))
    variance = ef.metrics.velocity_variance(run)
    np.testing.assert_allclose(results.first_variance, variance[0])
    np.testing.assert_allclose(results.final_variance, variance[-1])
    calm = np.sqrt(variance) <= 0.1
    for b, settled in enumerate(results.settling_time):
        assert calm[round(settled * 50) :, b].all() and not calm[round(settled * 50) - 1, b]


def test_a_flock_of_drones_settles_connected_without_crashes(flight: tuple[ef.Trajectory, DroneResults]) -> None:
    results = flight[1]
    assert results.connected.all() and results.share_connected.n == 2
    assert results.crashes is not None and not results.crashes.any() and not results.collisions.any()
    assert (results.final_variance < 0.01 * results.first_variance).all()
    assert 0.0 < results.tilt.max() < 30.0 and results.thrust_margin.min() > 0.0
    assert results.duration == pytest.approx(3.0) and results.real_time_factor > 0.0


def test_drones_that_fly_into_each_other_are_a_collision_and_into_the_ground_a_crash() -> None:
    positions = np.array([[[0.0, 0.0, 5.0], [1.0, 0.0, 5.0], [0.0, 3.0, 1.0]]])
    velocities = np.array([[[0.5, 0.0, 0.0], [-0.5, 0.0, 0.0], [0.0, 0.0, -1.9]]])
    coast = "reynolds:comm_radius=5:time_scale=1e5"
    setting = DroneSetting(drones=3)
    start = ef.Flock(positions, velocities, comm_radius=5.0)
    _, results = simulate_drones(setting, choose_controller(setting, coast).controller, 1.5, start=start)
    assert results.crashes is not None
    assert (results.collisions.tolist(), results.crashes.tolist()) == ([1], [1])
    assert results.separation[0] < 0.1 and results.settling_time[0] == math.inf


def test_the_table_has_one_value_for_one_flock_and_two_columns_for_several(
    flight: tuple[ef.Trajectory, DroneResults],
) -> None:
    header, rows = flight[1].table
    assert header[1:] == ["median over flocks", "worst flock"] and {len(row) for row in rows} == {3}
    values = {row[0]: row[1:] for row in rows}
    assert values["connected at the end"][0] == "100% (34%, 100%) of 2"
    assert values["largest tilt"][1] == f"{flight[1].tilt.max():.1f} deg"
    assert values["smallest separation"][1] == f"{flight[1].separation.min():.2f} m"
    one = DroneResults(*(each[:1] if isinstance(each, np.ndarray) else each for each in flight[1]))
    header, rows = one.table
    assert header[1:] == ["value"] and {len(row) for row in rows} == {2}


def test_a_body_without_ground_has_no_number_of_crashes(flight: tuple[ef.Trajectory, DroneResults]) -> None:
    rows = flight[1]._replace(crashes=None).table[1]
    assert ["crashes", "-", "-"] in rows


# The controller.


def test_a_scaled_controller_is_used_as_is() -> None:
    choice = choose_controller(DroneSetting(), LAW)
    assert (choice.fit, choice.time_scale) == (None, 20.0)
    expected = repr(ef.load("starling", comm_radius=5.0, time_scale=20.0))
    for controller in (choice.controller, ef.load(choice.name), choose_controller(DroneSetting(), "starling", 20.0)[0]):
        assert repr(controller) == expected


def test_the_fit_knows_the_drones(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("CANDIDATES", 2), ("FINALISTS", 1), ("SEARCH_FLOCKS", 1), ("BISECTIONS", 1)):
        monkeypatch.setattr(robot_fit, name, value)
    monkeypatch.setattr(robot_fit, "LONG_FACTOR", 1)
    setting = DroneSetting(drones=4, dimensions=2, rate=25.0, packet_loss=0.1, delay=2)
    choice = choose_controller(setting, "reynolds")
    assert choice.fit is not None and choice.time_scale == pytest.approx(LAG_FACTOR * choice.fit.time_scale, rel=5e-3)
    robot = choice.fit.robot
    assert (robot.agents, robot.dimensions, robot.rate, robot.delay, robot.packet_loss) == (4, 2, 25.0, 2, 0.1)
    limit = drone_flights.COMMAND_SHARE * compute_max_acceleration(ef.Quadrotor(max_tilt=25.0), 2)
    assert robot.max_acceleration == pytest.approx(limit, rel=1e-2)
    assert ef.load(choice.name) == choice.controller


@pytest.mark.parametrize(
    ("controller", "time_scale", "message"),
    [
        ("starling:time_scale=20", None, "starling:time_scale=20 is not scaled to metres: add comm_radius=5"),
        ("starling:comm_radius=3:time_scale=20", None, "must be that of the drones, 5 m; got 3"),
        (LAW, 10.0, "time_scale is given twice"),
        ("starling", 0.0, "time_scale must be a finite number above 0"),
        ("tanner", None, "tanner is an expert"),
        ("nosuch", 5.0, "nosuch"),
    ],
)
def test_controllers_of_other_units_are_refused(controller: str, time_scale: Any, message: str) -> None:
    with pytest.raises(ef.InputError, match=message):
        choose_controller(DroneSetting(), controller, time_scale)


# The setting.


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"drones": 1}, "drones must be a whole number of at least 2; got 1"),
        ({"flocks": 0}, "flocks must be"),
        ({"rate": 0.0}, "rate must be a finite number above 0"),
        ({"max_acceleration": 0.0}, "max_acceleration must be a finite number above 0"),
        ({"max_speed": 0.0}, "max_speed must be a finite number above 0"),
        ({"max_tilt": 0.0}, "max_tilt must be above 0 and below 90 degrees"),
        ({"comm_radius": 0.0}, "comm_radius must be"),
        ({"height": 0.0}, "height must be a finite number above 0; got 0.0"),
        ({"min_separation": 0.01}, "min_separation must be at least 0.3 m; got 0.01"),
        ({"delay": 1_001}, "delay must be at most 1,000 steps; got 1,001"),
        ({"delay": -1}, "delay must be"),
        ({"packet_loss": 1.0}, "packet_loss must be a share from 0 to below 1"),
        ({"initial_speed": 1.5, "cruise_speed": 1.0}, "initial_speed . cruise_speed must be at most max_speed, 2 m/s"),
    ],
)
def test_bad_settings_raise_one_clear_line(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ef.InputError, match=f"^{message}"):
        DroneSetting(**changed)


@pytest.mark.usefixtures("short_searches")
def test_a_start_without_room_is_refused_in_one_line() -> None:
    with pytest.raises(ef.InputError, match=r"found no connected start of 6 drones at least 5 m apart") as caught:
        DroneSetting(drones=6, min_separation=5.0).draw_start()
    assert "\n" not in str(caught.value)


def test_a_missing_extra_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "crazyflow" else find(name))
    with pytest.raises(ef.InputError, match=r"the body 'crazyflow' needs crazyflow.*pip install 'equiflock\[drones\]'"):
        DroneSetting(body="crazyflow")


def test_drones_of_the_plane_hold_their_height() -> None:
    setting = DroneSetting(drones=6, dimensions=2, height=2.5, packet_loss=0.2, delay=1)
    run, results = simulate_drones(setting, choose_controller(setting, LAW).controller, 1.0)
    assert run.body_state["height"][-1] == pytest.approx(2.5, abs=0.1)
    assert results.height[0] == pytest.approx(2.5, abs=0.1)
    assert setting.build_environment().radio == ef.Radio(packet_loss=0.2, delay=1)
