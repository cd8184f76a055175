"""In the formation scenario flocks fly head first and have formed when each agent is in its place and all fly alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.controllers.classical.formation_patterns import make_pattern_points
from equiflock.outcomes import Outcome
from equiflock.scenarios.formation import FORMED, FormationFlight, UntilFormed
from equiflock.scenarios.registry import build_flight_options, describe_disagreement, find_failed_flights
from equiflock.simulation.flight_jobs import resolve_measures


def in_a_circle(scale: float = 1.0) -> ef.Flock:
    points = make_pattern_points("circle", 12, 2, 0.4)
    return ef.Flock(scale * points[None] + 7.0, np.ones((1, 12, 2)))


def ended(flock: ef.Flock, **options: Any) -> Outcome:
    return Outcome(int(UntilFormed("circle", **options)(0.0, flock, np.ones(1, bool))[0]))


def test_a_flock_has_formed_when_it_has_the_pattern_and_velocities_agree() -> None:
    assert ended(in_a_circle()) == FORMED
    assert ended(in_a_circle(1.04)) == FORMED
    assert ended(in_a_circle(1.06)) == Outcome.FLYING
    assert ended(in_a_circle(1.06), tolerance=0.1) == FORMED
    assert ended(in_a_circle(), spacing=0.5) == Outcome.FLYING
    restless = replace(in_a_circle(), velocities=np.linspace(0.0, 1.0, 24).reshape(1, 12, 2))
    assert ended(restless) == Outcome.FLYING
    assert ended(restless, variance=1.0) == FORMED


def test_agents_in_swapped_places_have_not_formed_the_pattern() -> None:
    flock = in_a_circle()
    assert ended(replace(flock, positions=np.roll(flock.positions, 1, axis=1))) == Outcome.FLYING


def test_failed_agents_may_be_anywhere_but_one_agent_must_work() -> None:
    flock = in_a_circle()
    positions, velocities, conditions = flock.positions.copy(), flock.velocities.copy(), flock.conditions.copy()
    positions[0, 3], velocities[0, 3], conditions[0, 3] = 100.0, 0.0, ef.Condition.STOPPED
    assert ended(ef.Flock(positions, velocities, conditions=conditions)) == FORMED
    assert ended(replace(flock, conditions=np.full((1, 12), ef.Condition.SILENT))) == Outcome.FLYING


def test_flocks_start_like_the_disk_but_fly_to_the_right() -> None:
    disk = ef.RandomDisk(flocks=2, agents=20, dimensions=3)
    start, drawn = FormationFlight(disk, mean_speed=2.0).draw(), disk.draw()
    assert (start.positions == drawn.positions).all()
    np.testing.assert_allclose(start.velocities.mean(axis=1), [[2.0, 0.0, 0.0]] * 2, atol=1e-12)
    shift = start.velocities - drawn.velocities
    np.testing.assert_allclose(shift, np.broadcast_to(shift[:, :1], shift.shape), atol=1e-12)


@pytest.mark.parametrize("pattern", ["vee", "EQ"])
def test_the_law_of_the_same_name_forms_it_and_a_flocking_law_does_not(pattern: str) -> None:
    scenario = ef.make_scenario("formation", flocks=3, pattern=pattern)
    failed = {}
    for name in (f"formation:pattern={pattern}", "tanner"):
        run = ef.simulate(
            scenario.draw(),
            ef.load(name),
            duration=6.0,
            keep_every=None,
            record=resolve_measures(scenario),
            **build_flight_options(scenario),
        )
        failed[name] = int(find_failed_flights(scenario, run.outcome).sum())
        assert (run.series["pattern_error"][-1] < 0.05).all() == (name != "tanner")
    assert list(failed.values()) == [0, 3]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"pattern": "eq"}, "did you mean 'EQ'"),
        ({"spacing": 0.0}, "spacing must be a finite number above 0"),
        ({"tolerance": -1.0}, "tolerance must be a finite number above 0"),
        ({"variance": 0.0}, "variance must be a finite number above 0"),
        ({"mean_speed": -1.0}, "mean_speed must be from 0 to"),
    ],
)
def test_invalid_formation_options_raise_errors(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.make_scenario("formation", **options)


def test_a_law_with_another_pattern_or_spacing_disagrees_and_one_without_does_not() -> None:
    scenario = ef.make_scenario("formation:pattern=circle")
    text = "the pattern of the scenario is 'circle', that of the controller 'vee': choose the same for both"
    assert describe_disagreement(scenario, ef.load("formation")) == text
    assert describe_disagreement(scenario, ef.load("formation:pattern=circle:spacing=0.5")) == text.replace(
        "pattern", "spacing"
    ).replace("'circle'", "0.4").replace("'vee'", "0.5")
    points = ef.load("formation", pattern=make_pattern_points("circle", 30))
    assert "that of the controller ((" in (describe_disagreement(scenario, points) or "")
    for name in ("formation:pattern=circle", "tanner"):
        assert describe_disagreement(scenario, ef.load(name)) is None
    assert describe_disagreement(ef.make_scenario("flocking"), ef.load("formation")) is None
