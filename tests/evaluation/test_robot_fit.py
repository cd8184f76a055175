"""`fit_robot`: flights in a robot's units, the choice of the time scale, margins, demands and errors."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock.controllers.unit_scaling import ScaledController
from equiflock.evaluation import robot_fit
from equiflock.evaluation.robot_fit import Margin, RobotFit, fit_robot
from equiflock.evaluation.robot_flights import (
    REQUIRED_SHARE,
    SAFE_SEPARATION,
    START_RANGE,
    START_SEPARATION,
    FlockResults,
    RadioSetting,
    Robot,
    fly_robots,
)
from equiflock.statistics import estimate_share

ROVER: dict[str, Any] = {"comm_radius": 4.0, "rate": 20.0, "max_acceleration": 4.0, "max_speed": 2.0, "agents": 5}
LAW = "reynolds"


@pytest.fixture(scope="module", autouse=True)
def few_flights() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("CANDIDATES", 4), ("FINALISTS", 2), ("SEARCH_FLOCKS", 3), ("BISECTIONS", 3)):
            patch.setattr(robot_fit, name, value)
        yield


@pytest.fixture(scope="module")
def fit() -> RobotFit:
    return fit_robot(**ROVER, controller=LAW, flocks=6)


def make_results(**values: Any) -> FlockResults:
    """Results of two calm flocks of the rover, with some values replaced."""
    good = FlockResults(
        connected=np.ones(2, bool),
        residual=np.full(2, 0.01),
        final_deviation=np.full(2, 0.01),
        settling_time=np.ones(2),
        lowest_speed=np.full(2, 1.0),
        separation=np.full(2, 1.0),
        saturation=np.zeros(2),
    )
    return good._replace(**{name: np.array(value) for name, value in values.items()})


def test_the_controller_is_scaled_to_metres_and_seconds(fit: RobotFit) -> None:
    assert isinstance(fit.controller, ScaledController)
    assert (fit.controller.length_scale, fit.controller.time_scale) == (4.0, fit.time_scale)
    assert eval(fit.load_call, {"ef": ef}) == ef.load(LAW, comm_radius=4.0, time_scale=fit.time_scale)


def test_the_demands_of_a_plausible_robot_are_met_with_margins(fit: RobotFit) -> None:
    assert fit.met
    assert [demand.name for demand in fit.demands] == [
        "connected, calm and apart",
        "long flight",
        "packet loss",
        "latency",
        "initial speed",
    ]
    latency, speed = fit.margins.latency.value, fit.margins.initial_speed.value
    assert latency is not None and latency >= 0.05
    assert speed is not None and speed >= 1.0
    for margin in fit.margins:
        assert margin.share.value >= REQUIRED_SHARE and margin.share.low < margin.share.value <= margin.share.high


def test_flights_at_a_margin_succeed_and_beyond_it_fail(fit: RobotFit) -> None:
    starts = fit.robot.draw_starts(6, 0, "check").build_flock(fit.robot, fit.robot.deviation)
    loss, latency = fit.margins.packet_loss.value, fit.margins.latency.value
    assert loss is not None and latency is not None
    delay = round(latency * fit.robot.rate)
    for radio, succeeds in (
        (RadioSetting(loss, 0), True),
        (RadioSetting(min(loss + 1.0 / 8.0, 1.0), 0), False),
        (RadioSetting(0.0, delay), True),
        (RadioSetting(0.0, delay + 1), False),
    ):
        share = fly_robots(fit.robot, fit.controller, starts, radio, 0).estimate_success(fit.robot)
        assert (share.value >= REQUIRED_SHARE) == succeeds


def test_the_time_scale_has_the_most_successes(fit: RobotFit) -> None:
    finalists = [each for each in fit.candidates if each.stress_successes is not None]
    totals = [each.successes + (each.stress_successes or 0) for each in finalists]
    chosen = next(each for each in finalists if each.time_scale == fit.time_scale)
    assert len(fit.candidates) == 4 and len(finalists) == 2
    assert chosen.successes + (chosen.stress_successes or 0) == max(totals)


def test_of_equal_time_scales_the_middle_one_is_chosen() -> None:
    totals = (1.0, 12, None), (2.0, 12, 5), (4.0, 12, 8), (8.0, 12, 8), (16.0, 12, 8)
    candidates = [robot_fit.Candidate(tau, successes, 12, stress) for tau, successes, stress in totals]
    assert robot_fit._choose_time_scale(candidates) == 8.0


def test_the_fit_is_the_same_for_any_number_of_threads(fit: RobotFit) -> None:
    with ef.threads.use(1):
        assert fit_robot(**ROVER, controller=LAW, flocks=6).to_dict() == fit.to_dict()


def test_lengths_scale_the_fit_and_leave_the_time_scale(fit: RobotFit) -> None:
    lengths = {name: 2.0 * ROVER[name] for name in ("comm_radius", "max_acceleration", "max_speed")}
    other = fit_robot(**{**ROVER, **lengths}, controller=LAW, flocks=6)
    assert (other.time_scale, other.separation) == (fit.time_scale, 2.0 * fit.separation)
    assert other.margins[:2] == fit.margins[:2]
    assert other.margins.initial_speed.value == 2.0 * (fit.margins.initial_speed.value or 0.0)


def test_a_latency_out_of_reach_is_not_met_and_the_fit_says_by_how_much() -> None:
    found = fit_robot(**ROVER, controller=LAW, flocks=6, latency=3.0)
    demands = {demand.name: demand for demand in found.demands}
    assert not found.met
    assert not demands["connected, calm and apart"].met and not demands["latency"].met
    assert demands["packet loss"].met  # none was demanded
    assert demands["latency"].required == 3.0 and (demands["latency"].reached or 0.0) < 3.0
    assert "NOT MET" in str(found) and "needed 3 s" in str(found)


def test_the_sampling_period_of_a_gain_schedule_includes_the_latency(fit: RobotFit) -> None:
    class Scheduled:
        senses = ef.paper_senses("mean", hops=1)
        gain_schedule = ef.GainSchedule(period=0.02)

        def __call__(self, observations: Any) -> Any:
            return observations[:, :, 0, 0]

    scheduled = replace(fit, controller=Scheduled(), robot=Robot(**ROVER, latency=0.1))
    assert scheduled.sampling_period == pytest.approx(3 * 0.05)
    assert fit.sampling_period is None  # a law has a constant gain


def test_the_result_is_json(fit: RobotFit) -> None:
    saved = json.loads(json.dumps(fit.to_dict()))
    assert saved["time_scale"] == fit.time_scale and saved["met"] is True
    assert saved["robot"]["comm_radius"] == 4.0
    assert saved["margins"]["latency"]["share"]["n"] == 6


def test_progress_reports_every_flight() -> None:
    calls: list[tuple[str, int, int]] = []
    fit_robot(**ROVER, controller=LAW, flocks=2, on_flight=lambda *call: calls.append(call))
    assert [done for _, done, _ in calls] == list(range(len(calls)))
    assert all(done < total for _, done, total in calls)


# Flocks at the start, and their flights.


@pytest.mark.parametrize("dimensions", [2, 3])
def test_flocks_start_connected_within_a_shorter_range_and_apart(dimensions: int) -> None:
    robot = Robot(**ROVER, dimensions=dimensions)
    flock = robot.draw_starts(4, 0, "check").build_flock(robot, 2.0)
    assert flock.shape == (4, 5, dimensions) and flock.comm_radius == 4.0
    assert ef.components(flock, START_RANGE * 4.0).max() == 0
    assert ef.metrics.minimum_separation(flock).min() >= START_SEPARATION * 4.0
    assert np.linalg.norm(flock.velocities, axis=2).max() <= 2.0


def test_craft_with_a_minimum_speed_start_within_their_speeds() -> None:
    robot = Robot(500.0, 5.0, 5.0, 25.0, 20, min_speed=12.0)
    assert (robot.cruise_speed, robot.most_deviation, robot.deviation) == (18.5, 6.5, 3.25)
    speeds = np.linalg.norm(robot.draw_starts(8, 0, "check").build_flock(robot, 6.5).velocities, axis=2)
    assert speeds.min() >= 12.0 and speeds.max() <= 25.0


def test_flocks_at_several_speeds_have_common_positions() -> None:
    robot = Robot(**ROVER)
    flock = robot.draw_starts(3, 0, "check").build_flock(robot, 2.0, 1.0)
    np.testing.assert_array_equal(flock.positions[:3], flock.positions[3:])
    np.testing.assert_array_equal(flock.velocities[:3], 2.0 * flock.velocities[3:])


@pytest.mark.parametrize(("latency", "delay"), [(0.0, 0), (0.01, 1), (0.05, 1), (0.1, 2), (0.12, 3), (0.15, 3)])
def test_latency_is_rounded_up_to_whole_steps(latency: float, delay: int) -> None:
    assert Robot(**ROVER, latency=latency).delay == delay


@pytest.mark.usefixtures("own_registry")
def test_a_flock_that_coasts_does_not_succeed() -> None:
    @ef.controller("coast")
    def coast(observations: Any) -> Any:
        return 0.0 * observations[:, :, 0, 0]

    robot = Robot(**ROVER)
    start = robot.draw_starts(4, 0, "check").build_flock(robot, 1.0)
    results = fly_robots(robot, ef.load("coast"), start, RadioSetting(0.0, 0), 0)
    assert not results.find_successes(robot).any()
    assert (results.residual == 0.0).all() and (results.saturation == 0.0).all()
    np.testing.assert_array_equal(results.settling_time, robot.duration)
    np.testing.assert_allclose(results.final_deviation**2, ef.metrics.velocity_variance(start))
    np.testing.assert_allclose(results.lowest_speed, np.linalg.norm(start.velocities, axis=2).min(axis=1))


@pytest.mark.parametrize(
    "worse",
    [
        {"connected": [True, False]},
        {"residual": [0.2, 0.21]},
        {"final_deviation": [0.1, 0.11]},
        {"separation": [SAFE_SEPARATION * 4.0, 0.19]},
    ],
    ids=lambda worse: next(iter(worse)),
)
def test_a_flock_succeeds_if_it_is_connected_calm_and_apart(worse: dict[str, Any]) -> None:
    assert make_results(**worse).find_successes(Robot(**ROVER)).tolist() == [True, False]


def test_an_unmet_minimum_speed_says_how_far_robots_fell() -> None:
    robot = Robot(500.0, 5.0, 5.0, 25.0, 20, min_speed=12.0)
    results = make_results(lowest_speed=[4.2, 13.0], separation=[50.0, 50.0])
    margin = Margin(1.0, estimate_share(2, 2), False)
    margins = robot_fit.Margins(margin, margin, margin)
    demand = robot_fit._list_demands(robot, "starling", make_results(), results, margins)[-1]
    assert (demand.name, demand.required, demand.reached, demand.met) == ("minimum speed", 12.0, 4.2, False)
    assert demand.text == (
        "starling has no notion of a minimum speed: robots fell to 4.2 m/s at the lowest, and too low in 1 of 2 flocks "
        "in 2000 s; needed 12 m/s"
    )


# Bisection.


def succeed_up_to(largest: float) -> Any:
    return lambda value: estimate_share(20 if value <= largest else 0, 20)


ALL, NONE = estimate_share(20, 20), estimate_share(0, 20)


def test_bisection_finds_the_largest_value_above_the_required_one() -> None:
    found = robot_fit._find_largest(succeed_up_to(0.7), 0.2, ALL, 1.0)
    assert found.value is not None and 0.7 - 0.8 / 2**robot_fit.BISECTIONS <= found.value <= 0.7 and not found.is_bound


def test_bisection_finds_the_largest_value_below_a_required_one_that_fails() -> None:
    found = robot_fit._find_largest(succeed_up_to(0.3), 0.8, NONE, 1.0)
    assert found.value is not None and 0.2 <= found.value <= 0.3 and found.share == ALL


@pytest.mark.parametrize("largest", [2, 3, 9, 33, 65])
def test_bisection_of_whole_numbers_is_exact(largest: int) -> None:
    assert robot_fit._find_largest(succeed_up_to(largest), 2, ALL, 66, whole=True).value == largest


def test_a_margin_is_a_bound_if_the_largest_value_succeeds() -> None:
    assert robot_fit._find_largest(succeed_up_to(9.0), 0.2, ALL, 1.0) == Margin(1.0, ALL, True)
    assert robot_fit._find_largest(succeed_up_to(9.0), 1.0, ALL, 1.0) == Margin(1.0, ALL, True)


def test_shares_of_flocks_have_intervals_of_one_form(fit: RobotFit) -> None:
    assert len(fit.demands) == 5
    for demand in fit.demands:
        assert re.search(r"\d+% \(\d+%, \d+%\) of \d+ flocks", demand.text), demand.text
        assert "% to " not in demand.text


def test_there_is_no_margin_if_flocks_fail_at_zero() -> None:
    fails: Any = lambda value: NONE  # noqa: E731
    assert robot_fit._find_largest(fails, 0.2, NONE, 1.0) == Margin(None, NONE, False)


# Errors.


@pytest.mark.parametrize("name", ["comm_radius", "rate", "max_acceleration", "max_speed"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, True])
def test_quantities_must_be_finite_and_above_zero(name: str, value: Any) -> None:
    with pytest.raises(ef.InputError, match=f"^{name} must be "):
        fit_robot(**{**ROVER, name: value})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"agents": 1}, "agents must be a whole number of at least 2; got 1"),
        ({"dimensions": 4}, "dimensions must be 2 or 3; got 4"),
        ({"min_speed": -1.0}, "min_speed must be a finite number of at least 0; got -1.0"),
        ({"latency": math.nan}, "latency must be a finite number of at least 0; got nan"),
        ({"packet_loss": math.nan}, "packet_loss must be a finite number of at least 0; got nan"),
        ({"flocks": 0}, "flocks must be a whole number of at least 1; got 0"),
        ({"seed": -1}, "seed must be a whole number of at least 0; got -1"),
        ({"initial_speed": 0.0}, "initial_speed must be a finite number above 0; got 0.0"),
        (
            {"min_speed": 3.0},
            "min_speed must be below max_speed, 2 m/s; got 3 m/s: a flock needs a range of speeds to agree on one",
        ),
        (
            {"packet_loss": 1.0},
            "packet_loss must be a share from 0 to below 1; got 1: a robot that receives nothing cannot flock",
        ),
        ({"latency": 60.0}, "latency must be at most 1,000 steps, 50 s at 20 Hz; got 60 s"),
        (
            {"initial_speed": 3.0},
            "initial_speed must be at most 2 m/s, so that all robots start at speeds from 0 to 2 m/s; got 3 m/s",
        ),
        (
            {"max_speed": 0.01},
            "max_speed must be at least 0.08 m/s for comm_radius = 4 m at 20 Hz; got 0.01 m/s, at which a robot takes "
            "8,000 steps to cross its communication radius: lower the rate",
        ),
        (
            {"max_acceleration": 0.01},
            "max_acceleration must be at least 0.04 m/s^2 for max_speed = 2 m/s at 20 Hz; got 0.01 m/s^2, with which a "
            "robot takes 4,000 steps to reach max_speed: lower the rate",
        ),
        (
            {"rate": 0.1},
            "rate must be at least 0.5 Hz for comm_radius = 4 m and max_speed = 2 m/s; got 0.1 Hz, at which a robot "
            "crosses its communication radius within a step",
        ),
        (
            {"controller": "reynolds:time_scale=2"},
            "fit_robot chooses the units of reynolds:time_scale=2: omit time_scale",
        ),
        (
            {"controller": "tanner"},
            "tanner is an expert, which needs the whole flock: choose a decentralized controller, such as starling",
        ),
    ],
)
def test_bad_input_raises_one_clear_line(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ef.InputError) as raised:
        fit_robot(**{**ROVER, **changed})
    assert str(raised.value) == message
