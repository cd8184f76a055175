"""Scenarios are made by name, completed with defaults, and say what they lack."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.outcomes import Outcome
from equiflock.scenarios.registry import (
    Scenario,
    build_flight_options,
    choose_orbit,
    collect_options,
    find_failed_flights,
    is_bundled,
)


@pytest.fixture
def plain(own_registry: None) -> type:
    @ef.scenario("plain")
    @dataclass(frozen=True)
    class Plain:
        disk: ef.RandomDisk = field(default_factory=lambda: ef.RandomDisk(max_speed=0.5))
        extra: float = 1.0

        def draw(self, stop: object = None) -> ef.Flock:
            return self.disk.draw()

    return Plain


@pytest.mark.parametrize("name", ef.scenario_names())
def test_every_bundled_scenario_is_complete_and_flies(name: str) -> None:
    made = ef.make_scenario(name, flocks=2, agents=20)
    assert isinstance(made, Scenario)
    assert is_bundled(f"{name}:flocks=2")
    start = made.draw()
    assert len(start) == 2
    assert (start.roles != ef.Role.OBSTACLE).sum() == 40
    run = ef.simulate(start, ef.load("etdagnn"), duration=0.05, **build_flight_options(made))
    assert len(run.times) == 6
    assert ef.make_scenario(name, **collect_options(made)) == made


def test_options_go_to_the_scenario_or_its_disk_and_unknown_defaults_are_ignored() -> None:
    made: Any = ef.make_scenario("obstacles:sides=48", {"sides": 6, "leaders": 3, "flocks": 4, "wings": 2}, agents=30)
    assert collect_options(made)["sides"] == 48
    assert (made.leaders, made.disk.flocks, made.disk.agents, made.disk.split) == (3, 4, 30, "obstacles")


def test_missing_attributes_of_a_scenario_get_defaults(plain: type) -> None:
    made: Any = ef.make_scenario("plain", extra=2.0)
    assert "plain" in ef.scenario_names()
    assert (made.name, made.split, made.duration, made.figure, made.success_outcomes) == (
        "plain",
        "plain",
        2.0,
        "curves",
        (),
    )
    assert (made.disk.max_speed, made.disk.split, made.extra) == (0.5, "plain", 2.0)
    assert build_flight_options(made) == {"ending": None, "orbit": None, "obstacles": "nearest"}
    assert not is_bundled("plain")


def test_failures_are_outcomes_other_than_successes(plain: type) -> None:
    course = ef.make_scenario("obstacles")
    assert find_failed_flights(course, (Outcome.PASSED, Outcome.TIME_UP, Outcome.COLLIDED)).tolist() == [
        False,
        True,
        True,
    ]
    with pytest.raises(InputError, match=r"scenario 'plain' cannot tell failures: it needs an ending\(\)"):
        find_failed_flights(ef.make_scenario("plain"), (Outcome.TIME_UP,))


def test_invalid_scenarios_raise_errors(own_registry: None) -> None:
    with pytest.raises(InputError, match="did you mean 'merging'"):
        ef.make_scenario("mergin")
    with pytest.raises(InputError, match="scenario 'merging' has no option 'wings'; it has agents, "):
        ef.make_scenario("merging", wings=2)
    with pytest.raises(InputError, match="must be a frozen dataclass with draw"):
        ef.scenario("nothing")(object)
    with pytest.raises(InputError, match="a scenario named 'merging' is already registered"):
        ef.scenario("merging")(type(ef.make_scenario("merging")))
    with pytest.raises(InputError, match="must be a non-empty string without a colon"):
        ef.scenario("a:b")


def test_a_scenario_that_inherits_from_another_has_its_own_name_and_split(own_registry: None) -> None:
    @ef.scenario("wide")
    @dataclass(frozen=True)
    class Wide(ef.ObstacleCourse):
        """Courses past a wider obstacle."""

        sides: int = 48

    made: Any = ef.make_scenario("wide")
    assert (made.name, made.split, made.disk.split, made.sides) == ("wide", "wide", "wide", 48)
    assert ef.ObstacleCourse().name == "obstacles"  # type: ignore[attr-defined]


def test_a_scenario_must_be_frozen_and_have_defaults(own_registry: None) -> None:
    def draw(self: Any, stop: Any = None) -> ef.Flock:
        return ef.random_disk(1, 10)

    needy: Any = dataclass(frozen=True)(type("Needy", (), {"__annotations__": {"count": int}, "draw": draw}))
    with pytest.raises(InputError, match="must have a default for its field 'count'"):
        ef.scenario("needy")(needy)
    with pytest.raises(InputError, match="must be a frozen dataclass"):
        ef.scenario("loose")(dataclass(type("Loose", (), {"draw": draw})))
    with pytest.raises(InputError, match="disk must be an equiflock"):
        ef.make_scenario("flocking", disk=3)


def test_an_error_in_the_constructor_of_a_scenario_is_reported_in_one_line(own_registry: None) -> None:
    @ef.scenario("broken")
    @dataclass(frozen=True)
    class Broken:
        size: int = 0

        def __post_init__(self) -> None:
            self.size / 0

        def draw(self, stop: Any = None) -> ef.Flock:
            return ef.random_disk(1, 10)

    with pytest.raises(InputError, match="scenario 'broken' cannot be made: ZeroDivisionError"):
        ef.make_scenario("broken")


def test_the_controllers_orbit_technique_replaces_only_the_default_one() -> None:
    tuned = ef.Orbit(near=0.3)

    class Tuned:
        orbit = tuned

    course = ef.make_scenario("obstacles")
    assert choose_orbit(course, Tuned()) == build_flight_options(course, Tuned())["orbit"] == tuned
    assert choose_orbit(course, object()) == build_flight_options(course)["orbit"] == ef.Orbit()
    for chosen in (None, ef.Orbit(slow=3.0)):
        assert choose_orbit(ef.make_scenario("obstacles", orbit=chosen), Tuned()) == chosen
    assert choose_orbit(ef.make_scenario("flocking"), Tuned()) is None
