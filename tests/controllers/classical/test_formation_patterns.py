"""Patterns: who flies where in a vee, a circle or a word, and how far a flock is from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from equiflock._runtime.checks import InputError
from equiflock._runtime.specs import list_choices
from equiflock.controllers.classical.formation_patterns import (
    LETTERS,
    SHAPES,
    Pattern,
    PatternName,
    assign_places,
    make_pattern_points,
    pattern_error,
)
from equiflock.flock import Flock, Role


def distances(points: Any) -> Any:
    """(N, N), infinite on the diagonal."""
    found = np.linalg.norm(points[:, None] - points[None], axis=-1)
    np.fill_diagonal(found, np.inf)
    return found


@pytest.mark.parametrize("agents", [1, 2, 3, 30, 101])
def test_every_pattern_has_a_place_for_each_agent_and_is_centred(agents: int) -> None:
    for pattern in ("vee", "circle", "EQ", *LETTERS):
        points = make_pattern_points(pattern, agents, 3, 0.5)
        assert points.shape == (agents, 3), pattern
        np.testing.assert_allclose(points.mean(axis=0), 0.0, atol=1e-12, err_msg=pattern)
        assert (points[:, 2] == 0.0).all(), pattern
        np.testing.assert_allclose(points[:, :2], make_pattern_points(pattern, agents, 2, 0.5), err_msg=pattern)


@pytest.mark.parametrize("kind", [Pattern, PatternName])
def test_the_types_of_patterns_name_every_shape(kind: Any) -> None:
    assert list_choices(kind) == tuple(SHAPES)


def test_in_a_vee_all_fly_behind_a_head_on_arms_in_turn() -> None:
    points = make_pattern_points("vee", 9, 2, 0.4)
    assert (points[1:, 0] < points[0, 0]).all()
    left, right = points[1::2] - points[0], points[2::2] - points[0]
    np.testing.assert_allclose(left, right * [1.0, -1.0])
    assert (left[:, 1] > 0.0).all()
    np.testing.assert_allclose(np.linalg.norm(left, axis=1), 0.4 * np.arange(1, 5))
    assert distances(points).min() == pytest.approx(0.4)


@pytest.mark.parametrize("agents", [2, 3, 30])
def test_on_a_circle_each_is_as_far_from_the_next(agents: int) -> None:
    points = make_pattern_points("circle", agents, 2, 0.4)
    np.testing.assert_allclose(np.linalg.norm(points - np.roll(points, 1, axis=0), axis=1), 0.4)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), np.linalg.norm(points[0]))


def test_a_straight_letter_is_a_line_of_agents_at_the_spacing() -> None:
    points = make_pattern_points("I", 5, 2, 0.4)
    np.testing.assert_allclose(np.diff(points, axis=0), np.tile([0.0, -0.4], (4, 1)), atol=1e-12)


@pytest.mark.parametrize("letter", LETTERS)
def test_no_two_agents_of_a_letter_share_a_place_and_neighbours_are_about_the_spacing_apart(letter: str) -> None:
    for agents in range(12, 80):
        nearest = distances(make_pattern_points(letter, agents, 2, 1.0)).min(axis=1)
        assert nearest.min() > 0.25
        assert nearest.max() < 1.7
        assert 0.7 < np.median(nearest) < 1.3


def test_letters_of_a_word_stand_side_by_side() -> None:
    points = make_pattern_points("II", 10, 2, 1.0)
    left, right = points[points[:, 0] < 0], points[points[:, 0] > 0]
    assert len(left) == len(right) == 5
    np.testing.assert_allclose(left[:, 1], right[:, 1])


def test_points_of_ones_own_are_only_centred() -> None:
    own = [[1.0, 2.0], [3.0, 2.0], [3.0, 5.0]]
    np.testing.assert_allclose(make_pattern_points(own, 3), np.array(own) - [7 / 3, 3.0])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("eq", 5), r"must be 'vee', 'circle', or a word in capital letters A to Z; got 'eq'; did you mean 'EQ'\?"),
        (("", 5), "or a word in capital letters A to Z; got ''$"),
        (("E2", 5), "got 'E2'$"),
        (("ÄRA", 5), "got 'ÄRA'$"),
        (("vee", 0), "agents must be a whole number of at least 1"),
        (("vee", 5, 4), "dimensions must be 2 or 3; got 4"),
        (("vee", 5, 2, 0.0), "spacing must be a finite number above 0"),
        ((np.zeros((4, 2)), 5), r"must have shape \(N, D\) = \(5, 2\); got \(4, 2\)"),
        ((np.zeros((5, 3)), 5), r"= \(5, 2\); got \(5, 3\)"),
        (([[0.0, np.nan]], 1), r"finite points of shape \(N, D\), D = 2 or 3"),
        (([1.0, 2.0], 2), r"finite points of shape \(N, D\)"),
        (([[1.0], [2.0, 3.0]], 2), r"finite points of shape \(N, D\)"),
    ],
)
def test_patterns_that_make_no_sense_are_refused(arguments: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        make_pattern_points(*arguments)


def test_the_agents_of_a_flock_take_the_places_in_their_order_and_obstacle_agents_none() -> None:
    roles = np.array([[0, 2, 1, 0], [0, 0, 0, 0], [0, 0, 1, 2]])
    flock = Flock(np.zeros((3, 4, 2)), np.zeros((3, 4, 2)), roles)
    places = assign_places(flock, "vee", 0.4)
    three, four = make_pattern_points("vee", 3, 2, 0.4), make_pattern_points("vee", 4, 2, 0.4)
    assert (places[0, [0, 2, 3]] == three).all()
    assert (places[1] == four).all()
    assert (places[2, :3] == three).all()
    assert not places[roles == Role.OBSTACLE].any()


def test_the_error_is_nothing_in_the_pattern_wherever_it_is_and_one_at_a_point() -> None:
    places = np.tile(make_pattern_points("EQ", 20, 2, 0.4), (3, 1, 1))
    offsets = np.array([[3.0, -7.0]] * 3)[:, None]
    positions = np.stack([places[0], np.zeros((20, 2)), 1.3 * places[0]]) + offsets
    np.testing.assert_allclose(pattern_error(positions, places), [0.0, 1.0, 0.3], atol=1e-12)


def test_the_error_is_the_root_mean_square_of_what_agents_are_off_over_the_size() -> None:
    rng = np.random.default_rng(0)
    positions, places = rng.normal(size=(2, 7, 3)), rng.normal(size=(2, 7, 3))
    member = np.array([[True] * 7, [True, False, True, True, False, True, True]])
    for b, found in enumerate(pattern_error(positions, places, member)):
        off = (positions - places)[b, member[b]]
        mine = places[b, member[b]]
        expected = np.sqrt(off.var(axis=0).sum() / mine.var(axis=0).sum())
        assert found == pytest.approx(expected)


def test_a_single_agent_has_every_pattern_and_so_has_nobody() -> None:
    nobody = np.zeros((1, 1), bool)
    assert pattern_error(np.ones((1, 1, 2)), np.zeros((1, 1, 2))).tolist() == [0.0]
    assert pattern_error(np.ones((1, 1, 2)), np.zeros((1, 1, 2)), nobody).tolist() == [0.0]
