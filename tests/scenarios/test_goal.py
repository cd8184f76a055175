"""A share of the agents is informed of a goal; a flock has arrived when it is slow and connected at the goal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.outcomes import Outcome
from equiflock.scenarios.goal import ARRIVED, GoalSeeking, UntilArrived
from equiflock.scenarios.registry import build_flight_options, find_failed_flights
from equiflock.simulation.flight_jobs import resolve_measures


def ended(flock: ef.Flock, **options: Any) -> list[Outcome]:
    return [Outcome(code) for code in UntilArrived((5.0, 0.0), **options)(0.0, flock, np.ones(len(flock), bool))]


def pair_at(middle: float, gap: float = 0.8, speed: float = 0.0) -> ef.Flock:
    return ef.Flock([[[middle - gap / 2, 0.0], [middle + gap / 2, 0.0]]], np.full((1, 2, 2), [speed, 0.0]))


def test_a_flock_has_arrived_when_its_centre_is_near_the_goal_and_it_is_slow_and_connected() -> None:
    assert ended(pair_at(4.1)) == [ARRIVED]
    assert ended(pair_at(3.9)) == [Outcome.FLYING]
    assert ended(pair_at(4.1, gap=1.1)) == [Outcome.FLYING]
    assert ended(pair_at(4.1, speed=0.6)) == [Outcome.FLYING]
    assert ended(pair_at(4.1, speed=0.6), arrival_speed=0.7) == [ARRIVED]
    assert ended(replace(pair_at(3.1), comm_radius=2.0)) == [ARRIVED]


def test_only_working_agents_count_and_one_must_work() -> None:
    far = ef.Flock([[[5.0, 0.0], [50.0, 0.0]]], np.zeros((1, 2, 2)), conditions=[[0, ef.Condition.STOPPED]])
    assert ended(far) == [ARRIVED]
    assert ended(replace(pair_at(5.0), conditions=[[ef.Condition.SILENT] * 2])) == [Outcome.FLYING]


@pytest.mark.parametrize(("share", "count"), [(0.1, 4), (0.5, 20), (1.0, 40), (0.001, 1)])
def test_a_share_of_the_agents_drawn_at_random_is_informed(share: float, count: int) -> None:
    scenario = GoalSeeking(ef.RandomDisk(flocks=3, agents=40), informed=share)
    groups = scenario.draw().groups
    assert (np.isin(groups, (0, 1))).all()
    assert (groups.sum(axis=1) == count).all()
    more = GoalSeeking(ef.RandomDisk(flocks=4, agents=40), informed=share).draw().groups
    assert (more[:3] == groups).all()
    assert count == 40 or (groups[0] != groups[1]).any()


def test_the_goal_is_where_the_law_seeks_it_by_default() -> None:
    law: Any = ef.load("gu-leader")
    for options in ({}, {"dimensions": 3}, {"comm_radius": 2.0}):
        scenario: Any = ef.make_scenario("goal", agents=20, **options)
        assert tuple(law.resolve_goal(scenario.draw())) == scenario.goal


@pytest.mark.slow
def test_informed_agents_bring_their_flocks_there_and_flocks_without_any_fly_past() -> None:
    scenario = ef.make_scenario("goal", flocks=4)
    failed = {}
    for name in ("gu-leader", "etdagnn"):
        run = ef.simulate(
            scenario.draw(),
            ef.load(name),
            duration=scenario.duration,
            keep_every=None,
            record=resolve_measures(scenario),
            **build_flight_options(scenario),
        )
        failed[name] = int(find_failed_flights(scenario, run.outcome).sum())
        near = run.series["distance_to_goal"][-1] <= 1.0
        assert near.all() == (name == "gu-leader")
    assert failed == {"gu-leader": 0, "etdagnn": 4}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"informed": 0.0}, "informed must be a finite number above 0"),
        ({"informed": 1.5}, "informed must be a share above 0 and at most 1; got 1.5"),
        ({"distance": -1.0}, "distance must be a finite number above 0"),
        ({"arrival_speed": 0.0}, "arrival_speed must be a finite number above 0"),
    ],
)
def test_invalid_goal_options_raise_errors(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.make_scenario("goal", **options)


def test_a_goal_of_another_dimension_is_refused() -> None:
    with pytest.raises(InputError, match="goal must have 3 numbers for flocks in 3 dimensions"):
        ended(ef.random_disk(agents=5, dimensions=3))
