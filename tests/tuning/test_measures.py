"""Measures of flights agree with counts by hand, and stragglers cost for as long as they are alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.controllers.loading import make_network
from equiflock.flock import Flock, Role
from equiflock.tuning.objective import TOLERANCES, Task, compute_cost, measure_flight, parse_tasks
from tests.simple import Push

F, L, O = Role.FOLLOWER, Role.LEADER, Role.OBSTACLE  # noqa: E741
COAST = Push(0.0)
RIGHT = [1.0, 0.0]
TRIANGLE = [[0.1, 0.0], [-0.05, 0.0866], [-0.05, -0.0866]]


def flock(places: Sequence[Any], velocities: Sequence[Any], roles: Sequence[Role]) -> Flock:
    """One flock of these agents, and a triangle at the origin if there is an obstacle."""
    if O in roles:
        places, velocities = [*places, *TRIANGLE], [*velocities, *[[0.0, 0.0]] * 3]
    return Flock([places], [velocities], [roles])


def measured(text: str, start: Flock, measurement_interval: float = 0.1) -> dict[str, float]:
    (task,) = parse_tasks(text)
    scenario = task.build_scenario(1, 0, "")
    return measure_flight(scenario, start, COAST, scenario.orbit, task, measurement_interval)


def test_a_flock_that_drifts_apart_costs_from_then_on() -> None:
    # Three agents within reach, of which one flies away: after 0.5 s it is farther than 1 from the others.
    start = flock([[0.0, 0.0], [0.5, 0.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 0.0], [1.001, 0.0]], [F, F, F])
    found = measured("flocking:duration=2", start)
    assert found["detached"] == pytest.approx(1 / 3 * 1.5 / 2)
    assert found["variance"] == pytest.approx(2 / 9 * 1.001**2)
    assert found["final_variance"] == pytest.approx(2 / 9 * 1.001**2)
    assert found["collisions"] == found["effort"] == 0.0
    assert set(found) == set(TOLERANCES) - {"leaders", "failures", "time"}


def test_a_gap_costs_the_more_the_wider_it_is_and_however_few_are_lost() -> None:
    # One of three is lost: its distance of 1.001 to begin with grows by 1 per second, a fifth for every quarter of it.
    start = flock([[0.0, 0.0], [0.5, 0.0], [1.501, 0.0]], [[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]], [F, F, F])
    assert measured("flocking:duration=0.2", start)["gap"] == pytest.approx(0.2)
    assert measured("flocking:duration=0.75", start, measurement_interval=0.01)["gap"] == pytest.approx(0.4, rel=0.02)
    assert measured("flocking:duration=9", start)["gap"] > 0.9
    far = flock([[0.0, 0.0], [0.5, 0.0], [2.501, 0.0]], [[0.0, 0.0]] * 3, [F, F, F])
    assert measured("flocking:duration=1", far)["gap"] == pytest.approx(1.0)
    near = flock([[0.0, 0.0], [0.5, 0.0], [1.499, 0.0]], [[0.0, 0.0]] * 3, [F, F, F])
    assert measured("flocking:duration=1", near)["gap"] == 0.0


def test_collisions_count_agents_for_the_time_that_they_are_too_near() -> None:
    # Two of four meet: nearer than 0.1 for 0.2 s of 2 s.
    start = flock([[0.0, 0.0], [0.955, 0.0], [0.0, 0.5], [0.5, 0.5]], [RIGHT, [0.0, 0.0], RIGHT, RIGHT], [L, F, F, F])
    assert measured("leaders:duration=2", start, measurement_interval=0.01)["collisions"] == pytest.approx(
        0.5 * 0.2 / 2, rel=0.06
    )


def test_the_distance_to_the_leaders_velocity_is_the_mean_over_agents() -> None:
    start = flock([[0.0, 0.0], [0.5, 0.0]], [RIGHT, [1.0, 0.5]], [L, F])
    assert measured("leaders:duration=0.5", start)["leaders"] == pytest.approx(0.25)


def test_effort_is_the_mean_acceleration() -> None:
    (task,) = parse_tasks("flocking:duration=0.5")
    start = flock([[0.0, 0.0], [0.5, 0.0]], [RIGHT, RIGHT], [F, F])
    found = measure_flight(task.build_scenario(1, 0, ""), start, Push(3.0), None, task, 0.1)
    moment = next(ef.flight(start, Push(3.0)))
    assert found["effort"] == pytest.approx(float(ef.metrics.mean_acceleration_norm(moment)[0]))
    assert found["effort"] > 0.0


COURSE = "obstacles:duration=8:orbit=none"


def test_a_flock_that_passes_is_no_failure_and_costs_nothing_after_it_has_passed() -> None:
    start = flock([[-2.0, 0.5], [-2.0, 0.8]], [RIGHT, RIGHT], [F, L, O, O, O])
    found = measured(COURSE, start)
    assert found["failures"] == found["detached"] == 0.0
    assert found["time"] == pytest.approx(3.9 / 8, rel=0.03)
    # Its follower drifts off by a little: the integral ends a second after the last was near, at about 3.9 s.
    drifting = replace(start, velocities=np.where(start.roles[..., None] == F, [1.0, 1e-3], start.velocities))
    assert measured(COURSE, drifting)["leaders"] == pytest.approx(0.5e-3 * 3.9 / 8, rel=0.03)


def test_stragglers_at_the_obstacle_cost_although_they_observe_it() -> None:
    # One stays beside the obstacle, to which it is joined; the others are joined to it until they are out of its reach.
    places, still = [[-2.0, 0.5], [-2.0, 0.8], [-0.5, 0.5]], [0.0, 0.0]
    start = flock(places, [RIGHT, RIGHT, still], [F, L, F, O, O, O])
    found = measured(COURSE, start)
    assert found["failures"] == 1.0
    assert found["time"] == pytest.approx(1.0)
    # From t = 0 until the others are in range, and again from about t = 3 on.
    assert 1 / 3 * 5.0 / 8 < found["detached"] < 1 / 3 * 6.5 / 8
    # A straggler costs less the later it is left behind.
    later = measured(COURSE, flock([*places[:2], [-0.5, 0.5]], [RIGHT, RIGHT, [0.3, 0.0]], [F, L, F, O, O, O]))
    assert later["detached"] < found["detached"]


def test_a_flight_that_never_gets_there_has_failed() -> None:
    still = [0.0, 0.0]
    found = measured(COURSE, flock([[-3.0, 0.0], [-3.0, 0.5]], [still, still], [F, L, O, O, O]))
    assert found["failures"] == 1.0
    assert found["time"] == pytest.approx(1.0)


@pytest.mark.slow
def test_a_flight_that_ends_as_the_scenario_says_is_judged_as_it_judges() -> None:
    (task,) = parse_tasks("obstacles:sides=12:agents=40:duration=12")
    scenario = task.build_scenario(6, 3, "judged")
    start, controller = scenario.draw(), ef.load("etdagnn")
    run = ef.simulate(start, controller, duration=12.0, ending=scenario.ending(), orbit=scenario.orbit)
    failed = np.mean([outcome not in scenario.success_outcomes for outcome in run.outcome])
    found = measure_flight(scenario, start, controller, scenario.orbit, task, 0.01)
    assert found["failures"] == failed
    assert 0.0 < failed < 1.0  # else this test shows nothing


@dataclass(frozen=True)
class Diverging:
    senses = ef.paper_senses("mean", hops=1)

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        return np.full((*observations.shape[:2], 2), np.nan)


def test_a_flight_that_diverges_is_worse_than_any_other() -> None:
    (task,) = parse_tasks("flocking:duration=0.5")
    start = flock([[0.0, 0.0], [0.5, 0.0]], [RIGHT, RIGHT], [F, F])
    found = measure_flight(task.build_scenario(1, 0, ""), start, Diverging(), None, task, 0.1)
    assert set(found.values()) == {math.inf}
    usual = measured("flocking:duration=0.5", start)
    assert compute_cost([found], [usual], [usual], [task], {"variance": 1.0}) == math.inf
    with pytest.raises(InputError, match=r"the initial weights diverge in 'flocking:duration=0\.5'"):
        compute_cost([usual], [found], [found], [task], {"variance": 1.0})


def test_the_cost_weighs_measures_and_tasks_relative_to_the_initial_weights() -> None:
    tasks = [Task(1.0, "flocking", 2.0), Task(3.0, "leaders", 3.0)]
    begun = [{"variance": 0.2, "detached": 0.1}, {"variance": 0.1, "detached": 0.0, "leaders": 0.4}]
    better = [{"variance": 0.1, "detached": 0.1}, {"variance": 0.1, "detached": 0.0, "leaders": 0.1}]
    weights = {"variance": 1.0, "leaders": 2.0}
    assert compute_cost(begun, begun, begun, tasks, weights) == 1.0
    assert compute_cost(better, begun, begun, tasks, weights) == pytest.approx(
        (0.5 + 3 * (1 + 2 * 0.25)) / (1 + 3 * (1 + 2))
    )
    # If a measure of the initial weights is 0, a small value costs little.
    apart = [begun[0], {**begun[1], "detached": 0.001}]
    assert compute_cost(apart, begun, begun, tasks, {"detached": 1.0}) == pytest.approx(
        1.0 + 3 * 0.001 / TOLERANCES["detached"]
    )
    # Nor does a measure count for more because these flocks happened to be easy for the initial weights.
    typical = [begun[0], {**begun[1], "detached": 0.2}]
    assert compute_cost(apart, begun, typical, tasks, {"detached": 1.0}) == pytest.approx(1.0 + 3 * 0.001 / 0.1)
    with pytest.raises(InputError, match="no task has a measure among failures"):
        compute_cost(begun, begun, begun, tasks, {"failures": 1.0})


def test_peak_is_the_largest_acceleration_at_the_measurements() -> None:
    network: Any = make_network("starling", 3)
    network = network.eval().compiled_form()
    start = ef.random_disk(3, 20, seed=1)
    task = Task(1.0, "flocking", 0.1, 0.01)
    peak = measure_flight(task.build_scenario(3, 0, ""), start, network, None, task, 0.02)["peak"]
    run = ef.simulate(start, network, time_step=0.01, duration=0.11)
    assert peak == pytest.approx(ef.metrics.peak_acceleration_norm(run)[::2].max(axis=0).mean())


def test_residual_is_the_acceleration_at_the_end_and_grows_with_the_gain() -> None:
    network: Any = make_network("starling", 3).eval()
    network = network.compiled_form()
    start = ef.random_disk(3, 20, seed=1)
    values = {}
    for margin in (1.0, 2.0):
        task = Task(1.0, "flocking", 0.1, 0.01, None, margin)
        values[margin] = measure_flight(task.build_scenario(3, 0, ""), start, network, None, task, 0.01)["residual"]
    assert 0.0 < values[1.0] < values[2.0]


def test_a_margin_must_be_positive_and_needs_a_network_of_the_package() -> None:
    with pytest.raises(ef.InputError, match="gain_margin must be"):
        parse_tasks("1*flocking:gain_margin=0")
    (task,) = parse_tasks("1*flocking:gain_margin=1.3")
    assert task.gain_margin == 1.3
    with pytest.raises(ef.InputError, match="gain_margin needs a network of the package"):
        measure_flight(task.build_scenario(1, 0, ""), ef.random_disk(1, 5), ef.load("reynolds"), None, task, 0.01)
