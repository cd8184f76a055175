"""Groups start mixed, and are segregated once each has been connected and separate for a while."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.outcomes import Outcome
from equiflock.scenarios.registry import build_flight_options, find_failed_flights
from equiflock.scenarios.segregation import (
    SEGREGATED,
    SegregationScenario,
    UntilSegregated,
    compute_own_group_share,
    count_group_components,
    is_segregated,
)


def row(*groups: int, gap: float = 0.3) -> ef.Flock:
    """Agents side by side, of these groups."""
    positions = np.stack([gap * np.arange(len(groups)), np.zeros(len(groups))], axis=1)[None]
    return ef.Flock(positions, np.zeros_like(positions), groups=np.array([groups]))


@pytest.mark.parametrize("groups", [2, 3, 5])
def test_groups_are_mixed_and_of_equal_size(groups: int) -> None:
    start = ef.make_scenario("segregation", flocks=3, groups=groups).draw()
    for each in start.groups:
        sizes = np.bincount(each)
        assert len(sizes) == groups
        assert sizes.max() - sizes.min() <= 1
    assert not is_segregated(start).any()
    assert (compute_own_group_share(start) < 0.9).all()


def test_flocks_depend_on_the_seed_but_not_on_their_number() -> None:
    few, many = (ef.make_scenario("segregation", flocks=count, agents=20).draw() for count in (2, 4))
    assert (few.groups == many.groups[:2]).all()
    assert (few.positions == many.positions[:2]).all()
    assert (ef.make_scenario("segregation", flocks=2, agents=20, seed=1).draw().groups != few.groups).any()


def test_a_flock_is_segregated_if_each_group_is_connected_and_separate() -> None:
    apart = row(0, 0, 0, 0, 1, 1, 1, 1, gap=0.24)
    assert count_group_components(apart).tolist() == [2]
    assert is_segregated(apart).tolist() == [False]  # those in the middle have as many strangers as friends
    assert is_segregated(row(*[0] * 4, *[1] * 4, gap=0.9)).tolist() == [False]
    gap = np.array([0, 0.2, 0.4, 0.6, 1.3, 1.5, 1.7, 1.9])
    wide = ef.Flock(np.stack([gap, 0 * gap], 1)[None], np.zeros((1, 8, 2)), groups=apart.groups)
    assert is_segregated(wide).tolist() == [True]
    assert compute_own_group_share(wide).tolist() == [1.0]


def test_a_disconnected_group_is_not_segregated() -> None:
    split = row(0, 0, 0, 1, 1, 1, 0, 0, 0, gap=0.8)
    assert count_group_components(split).tolist() == [3]
    assert is_segregated(split).tolist() == [False]


def test_segregation_must_last_without_interruption() -> None:
    gap = np.array([0, 0.2, 0.4, 1.3, 1.5, 1.7])
    parted = ef.Flock(np.stack([gap, 0 * gap], 1)[None], np.zeros((1, 6, 2)), groups=[[0, 0, 0, 1, 1, 1]])
    mixed = ef.Flock(parted.positions, parted.velocities, groups=[[0, 1, 0, 1, 0, 1]])
    ending, flying = UntilSegregated(hold=1.0), np.array([True])
    said = [
        int(ending(np.array([time]), flock, flying)[0])
        for time, flock in ((0.0, parted), (0.9, parted), (1.0, mixed), (1.1, parted), (2.0, parted), (2.1, parted))
    ]
    assert said == [Outcome.FLYING] * 5 + [SEGREGATED]


def test_ended_flocks_are_ignored() -> None:
    gap = np.array([0, 0.2, 1.3, 1.5])
    parted = ef.Flock(np.stack([gap, 0 * gap], 1)[None].repeat(2, 0), np.zeros((2, 4, 2)), groups=[[0, 0, 1, 1]] * 2)
    ending, flying = UntilSegregated(hold=0.5), np.array([True, False])
    ending(np.zeros(2), parted, flying)
    assert ending(np.ones(2), parted, flying).tolist() == [SEGREGATED, Outcome.FLYING]


@pytest.mark.slow
def test_the_law_of_that_name_segregates_and_alignment_alone_does_not() -> None:
    scenario = ef.make_scenario("segregation", flocks=10)
    start = scenario.draw()
    for law, share in (("segregation", 0.0), ("cucker-smale", 1.0)):
        run = ef.simulate(
            start,
            ef.load(law),
            time_step=0.01,
            duration=scenario.duration,
            keep_every=None,
            **build_flight_options(scenario),
        )
        assert find_failed_flights(scenario, run.outcome).mean() == share


def test_three_dimensions_work() -> None:
    scenario = ef.make_scenario("segregation", flocks=3, agents=30, dimensions=3)
    run = ef.simulate(scenario.draw(), ef.load("segregation"), duration=10.0, ending=scenario.ending(), keep_every=None)
    assert not find_failed_flights(scenario, run.outcome).any()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"groups": 1}, "groups must be from 2 to 5; got 1"),
        ({"groups": 6}, "groups must be from 2 to 5; got 6"),
        ({"groups": 2.5}, "groups must be a whole number"),
        ({"groups": 3, "agents": 5}, "at least 2 agents in each of 3 groups; got 5 in all"),
        ({"hold": 0}, "hold must be a finite number above 0"),
        ({"disk": 3}, "disk must be an equiflock.RandomDisk"),
    ],
)
def test_invalid_options_raise_errors_of_one_line(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.make_scenario("segregation", **options)


def test_options_have_defaults() -> None:
    assert (SegregationScenario().disk.agents, SegregationScenario().groups, SegregationScenario().disk.max_speed) == (
        50,
        3,
        0.5,
    )
