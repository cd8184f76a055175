"""Every scenario has suitable controllers that succeed, and its number of success agrees with an obvious twin."""

from __future__ import annotations

import math

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.controllers.classical.formation_patterns import make_pattern_points
from equiflock.flock import Condition
from equiflock.scenarios.registry import build_flight_options, describe_unsuitability, scenario_class
from equiflock.scenarios.success_measure import SuccessMeasure


def measure(name: str, flock: ef.Flock) -> float:
    found = ef.make_scenario(name).success_measure
    assert found is not None
    return found.measure(flock)


SHORT = ["flocking", "formation", "segregation", "merging", "leaders", "goal", "obstacles"]
"""Scenarios whose first suitable controller succeeds within a second of computation."""


@pytest.mark.parametrize("name", SHORT)
def test_the_first_suitable_controller_succeeds_on_a_small_flock(name: str) -> None:
    scenario = ef.make_scenario(name, flocks=1, agents=40)
    controller = ef.load((*scenario.suitable_controllers, "starling")[0])
    start = scenario.draw()
    run = ef.simulate(
        start, controller, duration=scenario.duration, keep_every=10, **build_flight_options(scenario, controller)
    )
    if scenario.success_outcomes:
        assert run.outcome[0] in scenario.success_outcomes
    before, after = measure(name, start), measure(name, run.flock(-1))
    found = scenario.success_measure
    assert found is not None
    assert after > max(before, 0.9) if found.unit == "share" else after < before / 3


@pytest.mark.parametrize("name", ef.scenario_names())
def test_suitable_controllers_are_bundled_and_others_get_a_note(name: str) -> None:
    scenario = ef.make_scenario(name)
    for each in scenario.suitable_controllers:
        assert each in ef.controller_names()
        assert describe_unsuitability(scenario, each) is None
    note = describe_unsuitability(scenario, "cucker-dong:beta=1")
    assert (note is None) == (scenario.suitable_controllers == ())
    assert describe_unsuitability(scenario, "mine.safetensors") is None


def test_a_note_says_what_a_controller_must_do() -> None:
    note = describe_unsuitability(ef.make_scenario("formation"), "etdagnn")
    assert note == "formation needs a controller that knows the pattern: use formation"


def fly_still(positions: object, **options: object) -> ef.Flock:
    given = np.asarray(positions, float)[None]
    return ef.Flock(given, np.zeros_like(given), **options)  # type: ignore[arg-type]


def test_agents_near_their_places_are_in_place_wherever_the_flock_is() -> None:
    places = make_pattern_points("vee", 20, 2, 0.4) + 7.0
    assert measure("formation", fly_still(places)) == 1.0
    places[3] += 1.0
    # One agent moves the mean of the others by a twentieth of its way, which is within the tolerance.
    assert measure("formation", fly_still(places)) == pytest.approx(19 / 20)
    failed = np.zeros((1, 20), np.int8)
    failed[0, 3] = Condition.STOPPED
    assert measure("formation", fly_still(places, conditions=failed)) == 1.0


def test_the_places_of_the_marks_are_those_of_the_scenarios_error() -> None:
    scenario = ef.make_scenario("formation", agents=12)
    flock = scenario.draw()[0]
    (marks,) = scenario.marks(flock)
    places = make_pattern_points("vee", 12, 2, 0.4)
    expected = places + (flock.positions[0] - places).mean(axis=0)
    np.testing.assert_allclose(marks.numbers[:, :2], expected)
    assert (marks.kind, marks.shape) == ("place", "point")


def test_the_goal_is_marked_with_its_tolerance_in_the_plane_and_in_space() -> None:
    for dimensions in (2, 3):
        scenario = ef.make_scenario("goal", agents=20, dimensions=dimensions)
        flock = scenario.draw()[0]
        (marks,) = scenario.marks(flock)
        assert marks.numbers.tolist() == [[5.0, 0.0, 1.0, 0.0]]
        goal = np.array([5.0, 0.0, 0.0])[:dimensions]
        found = scenario.success_measure
        assert found is not None
        assert found.measure(flock) == pytest.approx(np.linalg.norm(flock.positions[0].mean(axis=0) - goal))


def test_agents_are_past_an_obstacle_beyond_its_far_rim_along_the_leaders_heading() -> None:
    roles = [[ef.Role.LEADER, ef.Role.FOLLOWER, ef.Role.FOLLOWER, ef.Role.OBSTACLE, ef.Role.OBSTACLE]]
    positions = np.array([[[3.0, 0.0], [1.5, 9.0], [2.5, 0.0], [1.0, 0.0], [2.0, 0.0]]])
    velocities = np.array([[[1.0, 0.0], [-5.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]])
    course = ef.Flock(positions, velocities, roles=np.array(roles, np.int8), obstacles=np.array([[-1, -1, -1, 0, 0]]))
    assert measure("obstacles", course) == pytest.approx(2 / 3)
    assert math.isnan(measure("obstacles", fly_still([[0.0, 0.0]])))


def test_the_largest_component_counts_working_agents() -> None:
    row = np.array([[0.0, 0.0], [0.5, 0.0], [1.0, 0.0], [9.0, 0.0]])
    assert measure("merging", fly_still(row)) == 0.75
    failed = np.array([[Condition.STOPPED, 0, 0, 0]], np.int8)
    assert measure("merging", fly_still(row, conditions=failed)) == pytest.approx(2 / 3)


@pytest.mark.parametrize("name", ef.scenario_names())
def test_numbers_of_success_are_nan_without_working_agents_and_defined_for_one(name: str) -> None:
    if not hasattr(scenario_class(name), "success_measure"):
        return
    one = ef.Flock(np.zeros((1, 1, 2)), np.ones((1, 1, 2)))
    failed = ef.Flock(np.zeros((1, 1, 2)), np.zeros((1, 1, 2)), conditions=np.full((1, 1), 1, np.int8))
    assert math.isnan(measure(name, failed))
    assert not np.isinf(measure(name, one))


def test_a_number_is_written_in_its_text() -> None:
    share = SuccessMeasure("{} in place", lambda flock: np.ones(len(flock)))
    assert [share.format(value) for value in (0.829, 0.9999, 1.0, math.nan)] == [
        "82% in place",
        "99% in place",
        "100% in place",
        "– in place",
    ]
    assert SuccessMeasure("{} R away", lambda flock: np.ones(1), "number").format(0.6789) == "0.68 R away"


def test_invalid_measures_raise_errors() -> None:
    with pytest.raises(InputError, match=r"must have one \{\}, such as"):
        SuccessMeasure("in place", lambda flock: np.ones(1))
    with pytest.raises(InputError, match=r"one number per flock, \(1,\); got the shape \(3,\)"):
        SuccessMeasure("{}", lambda flock: np.ones(3)).measure(fly_still([[0.0, 0.0]]))


def test_suitable_controllers_must_be_registered(own_registry: None) -> None:
    kind = type(ef.make_scenario("flocking"))
    with pytest.raises(InputError, match="suitable controller of the scenario 'mine' must be one of"):
        ef.scenario("mine")(type("Mine", (kind,), {"suitable_controllers": ("starlin",)}))
    with pytest.raises(InputError, match="must be a tuple; got 'starling'"):
        ef.scenario("mine")(type("Mine", (kind,), {"suitable_controllers": "starling"}))
