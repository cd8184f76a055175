"""Settings of live flights: every field is bounded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.scenarios import make_scenario, scenario
from equiflock.simulation.environment import DEFAULT_ENVIRONMENT
from equiflock.viewer.setting import DiskObstacle, EnvironmentSetting, Setting, format_validation_error, list_bodies


@pytest.mark.parametrize("name", ["flocking", "leaders", "obstacles"])
def test_a_live_flock_is_the_scenarios_flock(name: str) -> None:
    flock = Setting(scenario=name, agents=50, seed=3).draw()
    expected = make_scenario(name, agents=50, seed=3).draw()
    for array, expected_array in zip(flock.arrays, expected.arrays, strict=True):
        assert np.array_equal(array, expected_array)


def test_the_default_flock_is_that_of_random_disk() -> None:
    assert np.array_equal(Setting(agents=60, seed=3).draw().positions, ef.random_disk(agents=60, seed=3).positions)


def test_options_are_those_of_the_scenario() -> None:
    flock = Setting(scenario="obstacles", agents=50, options={"sides": 30, "leaders": 3, "max_speed": 1.0}).draw()
    assert (flock.roles[0] == ef.Role.OBSTACLE).sum() == 30
    assert (flock.roles[0] == ef.Role.LEADER).sum() == 3


def test_the_communication_radius_is_the_scenarios_unless_set(own_registry: None) -> None:
    @scenario("far")
    @dataclass(frozen=True)
    class Far:
        disk: ef.RandomDisk = field(default_factory=lambda: ef.RandomDisk(comm_radius=1.75))

        def draw(self, stop: object = None) -> ef.Flock:
            return self.disk.draw()

    assert Setting(scenario="far").draw().comm_radius == 1.75
    assert Setting(scenario="far", comm_radius=1.5).draw().comm_radius == 1.5


def test_added_disks_are_separate_obstacles_after_all_other_agents() -> None:
    own = DiskObstacle(x=5.0, y=-2.0, radius=0.5)
    flock = Setting(scenario="obstacles", agents=20, disks=(own, own)).draw()
    assert (flock.roles[0, :20] != ef.Role.OBSTACLE).all()
    assert np.unique(flock.obstacles[0]).tolist() == [-1, 0, 1, 2]
    assert np.array_equal(flock.positions[0, 32 : 32 + len(own.make_rim(0.1))], own.make_rim(0.1))


def test_the_density_is_constant_beyond_a_thousand_agents() -> None:
    assert Setting(agents=1000).disk.radius_rule == "quarter-power"
    assert Setting(agents=1001).disk.radius_rule == "constant-density"
    assert Setting(agents=1001, radius_rule="quarter-power").disk.radius_rule == "quarter-power"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("agents", 2),
        ("agents", 10_001),
        ("agents", 10.5),
        ("agents", "100"),
        ("agents", True),
        ("seed", -1),
        ("comm_radius", 0.0),
        ("comm_radius", float("nan")),
        ("time_step", float("inf")),
        ("time_step", 1.0),
        ("scenario", "chaos"),
        ("scenario", 3),
        ("options", [1]),
        ("orbit", 1),
        ("controller", "x" * 1001),
        ("disks", tuple(DiskObstacle(x=0.0, y=0.0, radius=1.0) for _ in range(21))),
        ("colour", "red"),
        ("environment", 3),
        ("radius", 1.0),
    ],
)
def test_invalid_fields_are_refused_in_one_line_that_names_them(field: str, value: Any) -> None:
    with pytest.raises(ValidationError) as error:
        Setting(**{field: value})
    line = format_validation_error(error.value)
    assert line.startswith(field.replace("_", " "))
    assert "\n" not in line


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"packet_loss": 1.1}, "packet loss: Input should be less than or equal to 1"),
        ({"packet_loss": -0.1}, "packet loss: Input should be greater than or equal to 0"),
        ({"packet_loss": "0.2"}, "packet loss: Input should be a valid number"),
        ({"delay": 11}, "delay: Input should be less than or equal to 10"),
        ({"delay": 1.5}, "delay: Input should be a valid integer"),
        ({"noise": float("nan")}, "noise: Input should be a finite number"),
        ({"max_acceleration": 0}, "max acceleration: Input should be greater than"),
        ({"lag": float("inf")}, "lag: Input should be a finite number"),
        ({"body": "blimp"}, "body must be one of 'double-integrator', 'quadrotor', 'unicycle'"),
        ({"body": "unicycle:max_speed=1e300"}, "body must be one of"),
        ({"body": "unicycle", "lag": 0.1}, "body 'unicycle' has no option 'lag'"),
        ({"max_turn_rate": 1.0}, "body 'double-integrator' has no option 'max_turn_rate'"),
        ({"burst": 3}, "burst: Extra inputs are not permitted"),
    ],
)
def test_an_invalid_environment_is_refused_in_one_line(environment: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as error:
        Setting(environment=environment)
    line = format_validation_error(error.value)
    assert line.startswith(message)
    assert "\n" not in line


def test_the_default_environment_is_the_papers() -> None:
    assert Setting().environment.make() == DEFAULT_ENVIRONMENT
    made = EnvironmentSetting(packet_loss=0.2, delay=1, noise=0.1, max_acceleration=5.0, lag=0.3).make()
    assert made.radio == ef.Radio(packet_loss=0.2, delay=1, noise=0.1)
    assert made.body == ef.DoubleIntegrator(max_acceleration=5.0, lag=0.3)
    assert EnvironmentSetting(body="unicycle", max_turn_rate=2.0).make().body == ef.Unicycle(max_turn_rate=2.0)


def test_bodies_are_listed_with_their_parameters() -> None:
    offered = {body["name"]: body["parameters"] for body in list_bodies()}
    assert offered["double-integrator"] == ["max_acceleration", "lag"]
    assert offered["unicycle"] == ["max_acceleration", "max_turn_rate"]
    # Flocks of the page have R = 1.
    assert "quadrotor" not in offered and "crazyflow" not in offered


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sides": 2}, "sides must be a whole number of at least 3"),
        ({"sides": 24.5}, "sides must be a whole number"),
        ({"sides": 10**6}, "sides must be from -10,000 to 10,000"),
        ({"clear_time": float("nan")}, "clear_time must be from"),
        ({"corners": 4}, "has no option 'corners'"),
        ({"agents": 4}, "agents is not a scenario option here"),
        ({"flocks": 4}, "flocks is not a scenario option here"),
        ({"sides": [1]}, "sides must be a number, true, false or a short text"),
        ({"sides": "x" * 200}, "sides must be a number, true, false or a short text"),
        ({"leaders": 100}, "leaders"),
    ],
)
def test_invalid_options_are_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValidationError, InputError)) as error:
        Setting(scenario="obstacles", options=options).draw()
    line = format_validation_error(error.value) if isinstance(error.value, ValidationError) else str(error.value)
    assert message in line
    assert "\n" not in line


def test_an_exception_of_a_plugins_scenario_is_reported_in_one_line(own_registry: None) -> None:
    @scenario("broken")
    @dataclass(frozen=True)
    class Broken:
        speed: float = 1.0

        def __post_init__(self) -> None:
            raise KeyError("speed")

        def draw(self, stop: object = None) -> ef.Flock:
            return ef.random_disk()

    with pytest.raises(ValidationError) as error:
        Setting(scenario="broken")
    assert format_validation_error(error.value) == "scenario 'broken' cannot be made: KeyError: 'speed'"


def test_a_three_dimensional_or_too_large_flock_is_refused(own_registry: None) -> None:
    with pytest.raises(InputError, match="live flights must have 2 dimensions"):
        Setting(options={"dimensions": 3}).draw()

    @scenario("crowd")
    @dataclass(frozen=True)
    class Crowd:
        def draw(self, stop: object = None) -> ef.Flock:
            return ef.Flock(np.zeros((1, 20_001, 2)), np.zeros((1, 20_001, 2)))

    with pytest.raises(InputError, match="at most 20,000 agents"):
        Setting(scenario="crowd").draw()


@pytest.mark.usefixtures("short_searches")
@pytest.mark.slow
def test_a_failed_search_suggests_options_of_the_page() -> None:
    with pytest.raises(InputError, match="increase R, or choose another start disk") as error:
        Setting(agents=2000, radius_rule="quarter-power", comm_radius=0.1).draw()
    assert "min_degree" not in str(error.value)


@pytest.mark.parametrize("spacing", [1e-3, 1e-6, 1e-9])
def test_rims_of_too_many_agents_are_refused(spacing: float) -> None:
    disk = DiskObstacle(x=50.0, y=50.0, radius=5.0)
    with pytest.raises(InputError, match=r"at most 20,000 agents|at most 1,000,000 agents"):
        disk.make_rim(spacing)
    with pytest.raises(ValidationError, match=r"at most 20,000 agents|at most 1,000,000 agents"):
        Setting(agents=10, disks=(disk,), options={"min_separation": spacing})


def test_rims_are_counted_together_with_all_other_agents() -> None:
    disk = DiskObstacle(x=50.0, y=50.0, radius=5.0)  # 314 agents
    setting = Setting(scenario="obstacles", agents=9_000, options={"sides": 10_000}, disks=(disk,) * 3)
    assert setting.count_disk_agents() == 3 * len(disk.make_rim(setting.rim_spacing)) == 942
    with pytest.raises(
        ValidationError, match="at most 20,000 agents are allowed, including obstacle agents; got 20,256"
    ):
        Setting(scenario="obstacles", agents=9_000, options={"sides": 10_000}, disks=(disk,) * 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"disks": 501, "sides": 3}, "at most 500 obstacles are allowed; got 501"),
        ({"disks": 9999, "sides": 10_000}, "at most 500 obstacles are allowed; got 9,999"),
        (
            {"disks": 500, "sides": 10_000},
            "at most 20,000 agents are allowed, including obstacle agents; got 5,000,010",
        ),
    ],
)
def test_corridors_of_too_many_disks_are_refused_before_they_are_drawn(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Setting(scenario="corridor", agents=10, options={"min_separation": 1e-9, **options})


def test_obstacles_that_a_plugins_scenario_does_not_state_are_counted_after_the_draw(own_registry: None) -> None:
    @scenario("posts")
    @dataclass(frozen=True)
    class Posts:
        def draw(self, stop: object = None) -> ef.Flock:
            numbers = np.arange(-1, 501)[None]
            roles = np.where(numbers < 0, ef.Role.FOLLOWER, ef.Role.OBSTACLE)
            positions = np.stack([numbers, 0.0 * numbers], axis=-1).astype(float)
            return ef.Flock(positions, np.zeros_like(positions), roles, numbers)

    with pytest.raises(InputError, match="at most 500 obstacles are allowed; got 501"):
        Setting(scenario="posts").draw()


def test_options_after_the_name_of_a_scenario_are_refused_as_they_would_not_be_bounded() -> None:
    with pytest.raises(ValidationError, match="scenario must be one of"):
        Setting(scenario="flocking:agents=1000000")
