"""A setting is what a live flight begins with, and every field of it has bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

import equiflock as ef
from equiflock.runtime.checks import InputError
from equiflock.viewer.setting import Disk, Setting, one_line


def test_a_live_flock_is_the_one_that_simulate_flies() -> None:
    flock, disks = Setting(agents=60, seed=3).draw()
    expected = ef.random_disk(agents=60, seed=3)
    assert disks == ()
    assert np.array_equal(flock.positions, expected.positions)
    assert np.array_equal(flock.velocities, expected.velocities)


def test_leaders_and_courses_are_those_of_the_experiments() -> None:
    disk = ef.RandomDisk(agents=50, seed=1)
    flock, _ = Setting(scenario="leaders", agents=50, seed=1, leaders=3).draw()
    assert np.array_equal(flock.roles, ef.LeaderFollowing(disk, 3).draw().roles)
    flock, disks = Setting(scenario="obstacles", agents=50, seed=1, sides=12).draw()
    course = ef.ObstacleCourse(disk, 12)
    assert np.array_equal(flock.positions, course.draw().positions)
    assert len(disks) == 1
    assert disks[0].radius == pytest.approx(course.radius)
    rim = flock.positions[0, 50:]
    assert np.hypot(*(rim - [disks[0].x, disks[0].y]).T) == pytest.approx(np.full(12, course.radius))


def test_disks_of_ones_own_stand_after_all_other_agents() -> None:
    own = Disk(x=5.0, y=-2.0, radius=0.5)
    flock, disks = Setting(agents=20, disks=(own,)).draw()
    assert disks == (own,)
    assert (flock.roles[0, :20] == ef.Role.FOLLOWER).all()
    assert (flock.roles[0, 20:] == ef.Role.OBSTACLE).all()


@pytest.mark.parametrize("radius", [0.05, 0.06, 0.1, 0.5, 3.0])
def test_the_agents_of_a_rim_stand_about_as_far_apart_as_agents_may(radius: float) -> None:
    points = Disk(x=1.0, y=2.0, radius=radius).rim(0.1)
    sides = np.hypot(*(points - np.roll(points, 1, axis=0)).T)
    assert sides == pytest.approx(np.full(len(points), sides[0]))
    assert 0.08 <= sides[0] <= 0.13
    assert np.hypot(*(points - [1.0, 2.0]).T) == pytest.approx(np.full(len(points), radius))


def test_beyond_a_thousand_agents_the_density_stays_what_it_was() -> None:
    assert Setting(agents=1000).start.radius_rule == "quarter-power"
    assert Setting(agents=1001).start.radius_rule == "constant-density"
    assert Setting(agents=1001, spread="quarter-power").start.radius_rule == "quarter-power"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("agents", 2),
        ("agents", 10_001),
        ("agents", 10.5),
        ("agents", "100"),
        ("agents", True),
        ("seed", -1),
        ("radius", 0.0),
        ("radius", float("nan")),
        ("time_step", float("inf")),
        ("time_step", 1.0),
        ("scenario", "chaos"),
        ("leaders", 0),
        ("sides", 10**6),
        ("orbit", 1),
        ("controller", "x" * 1001),
        ("disks", tuple(Disk(x=0.0, y=0.0, radius=1.0) for _ in range(21))),
        ("colour", "red"),
    ],
)
def test_absurd_fields_are_refused_in_one_line_that_names_them(field: str, value: Any) -> None:
    with pytest.raises(ValidationError) as error:
        Setting(**{field: value})
    line = one_line(error.value)
    assert line.startswith(field.replace("_", " "))
    assert "\n" not in line


def test_a_start_that_cannot_be_found_is_told_in_words_of_the_page() -> None:
    with pytest.raises(InputError, match="raise the radius R, or choose another start disk") as error:
        Setting(agents=2000, spread="quarter-power", radius=0.1).draw()
    assert "min_degree" not in str(error.value)
    with pytest.raises(InputError, match="leaders must be fewer"):
        Setting(scenario="leaders", agents=10, leaders=20).draw()
