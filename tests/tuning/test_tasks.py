"""Tasks are parsed from text: scenarios with options and shares, like mixtures of trainings."""

from __future__ import annotations

import pytest

from equiflock._runtime.checks import InputError
from equiflock.tuning.objective import Task, parse_tasks
from equiflock.tuning.tuning_recipe import Tuning


def test_shares_options_and_times_are_read() -> None:
    first, second = parse_tasks("0.5*flocking:agents=30 + 2*obstacles:sides=96:duration=15:time_step=0.02:flocks=3")
    assert first == Task(0.5, "flocking:agents=30", 2.0, 0.01, None)
    assert second == Task(2.0, "obstacles:sides=96", 15.0, 0.02, 3)
    assert len(second.build_scenario(4, 7, "x").draw()) == 4


def test_one_scenario_alone_needs_no_share() -> None:
    assert parse_tasks("leaders:max_speed=1e+0") == (Task(1.0, "leaders:max_speed=1.0", 3.0),)


def test_flocks_of_different_tasks_and_splits_differ() -> None:
    first, second = parse_tasks("1*obstacles:sides=12+1*obstacles:sides=24")
    starts = [
        task.build_scenario(1, 0, split).draw().positions[0, :100] for task in (first, second) for split in ("a", "b")
    ]
    for n, one in enumerate(starts):
        assert all((one != other).any() for other in starts[:n])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("flocking+leaders", "tasks must be a name, or several with their shares such as"),
        ("1*flocking+leaders", "tasks must be a name"),
        ("1*flocking+1*", "tasks must be a name"),
        ("", "tasks must be a name"),
        ("0*flocking", "the share of 'flocking' must be a finite number above 0"),
        ("1*floking", "did you mean 'flocking'"),
        ("obstacles:side=4", "scenario 'obstacles' has no option 'side'"),
        ("flocking:seed=3", "seed is set by the tuning: leave it out"),
        ("flocking:split=test", "split is set by the tuning"),
        ("flocking:duration=-1", "duration must be"),
        ("flocking:flocks=0", "flocks must be a whole number of at least 1"),
        ("flocking:duration=long", "duration must be"),
        ("1*flocking+2*flocking", "tasks must name each scenario with its options once"),
        ("1*flocking:time_step=0.01+2*flocking:flocks=3", "tasks must name each scenario with its options once"),
    ],
)
def test_an_invalid_text_is_an_error_of_one_line(text: str, error: str) -> None:
    with pytest.raises(InputError, match=error) as caught:
        parse_tasks(text)
    assert "\n" not in str(caught.value)


def test_tasks_may_differ_in_options_of_the_flight_alone() -> None:
    names = [f"flocking:agents=20{option}" for option in ("", ":duration=1", ":time_step=0.02", ":gain_margin=1.5")]
    tasks = parse_tasks("+".join(f"1*{name}" for name in names))
    assert [task.name for task in tasks] == names
    assert {task.scenario for task in tasks} == {"flocking:agents=20"}


def test_invalid_settings_are_errors() -> None:
    for options, error in (
        ({"generations": -1}, "generations must be a whole number of at least 0"),
        ({"population": 2}, "population must be a whole number of at least 4"),
        ({"sigma": 0.0}, "sigma must be a finite number above 0"),
        ({"measures": "1*speed"}, "a measure must be one of"),
        ({"measures": "1*detached+2*detached"}, "measures must name each measure once"),
        ({"measures": "0*detached"}, "the weight of detached must be"),
        (
            {"tasks": "flocking:duration=0.5", "measurement_interval": 1.0},
            "measurement_interval must be at most the duration of every task, 0.5 s",
        ),
        ({"seed": -1}, "seed must be"),
    ):
        with pytest.raises(InputError, match=error):
            Tuning(**options)


def test_the_orbit_is_searched_only_if_a_task_has_obstacles_and_the_default_orbit() -> None:
    assert Tuning().tunes_orbit
    assert not Tuning(orbit=False).tunes_orbit
    assert not Tuning(tasks="1*flocking+1*leaders").tunes_orbit
    assert not Tuning(tasks="obstacles:orbit=none").tunes_orbit


def test_all_covariances_are_adapted_for_few_parameters_by_default() -> None:
    assert not Tuning().is_diagonal(200)
    assert Tuning().is_diagonal(201)
    assert Tuning(covariance="diagonal").is_diagonal(3)
    assert not Tuning(covariance="full").is_diagonal(1000)
