"""A flock is checked when it is made, and cannot be changed afterwards."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.evaluation.sweep import SweepJob
from equiflock.flock import LARGEST_SCALE, MAX_MAGNITUDE, Condition, Flock, Role

ZEROS = np.zeros((1, 2, 2))


def test_a_flock_takes_lists_and_defaults_to_followers() -> None:
    flock = Flock([[[0, 0], [1, 1]]], [[[0, 0], [1, 1]]])  # type: ignore[arg-type]
    assert flock.positions.dtype == np.float64
    assert (flock.roles == Role.FOLLOWER).all()
    assert flock.shape == (1, 2, 2)
    assert repr(flock) == "Flock(B=1, N=2, D=2, R=1: 2 followers)"


def test_a_flock_does_not_change_when_its_source_does_and_cannot_be_written() -> None:
    source = np.zeros((1, 2, 2))
    flock = Flock(source, source)
    source += 1.0
    assert not flock.positions.any()
    with pytest.raises(ValueError, match="read-only"):
        flock.positions[0] = 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        flock.positions = source  # type: ignore[misc]


def test_replace_makes_a_changed_flock() -> None:
    flock = Flock(ZEROS, ZEROS)
    assert (dataclasses.replace(flock, velocities=ZEROS + 2).velocities == 2).all()


def test_flocks_of_a_batch_are_picked_like_a_list() -> None:
    flock = Flock(np.arange(12.0).reshape(3, 2, 2), np.zeros((3, 2, 2)))
    assert len(flock) == 3
    assert flock[-1].shape == (1, 2, 2)
    assert (flock[-1].positions[0] == flock.positions[2]).all()
    assert len(flock[1:]) == len(flock[np.array([True, False, True])]) == 2
    with pytest.raises(IndexError):
        flock[3]


@pytest.mark.parametrize(
    ("positions", "velocities", "roles", "text"),
    [
        (np.zeros((2, 2)), ZEROS, None, r"positions must have shape \(B, N, D\); got \(2, 2\); for one flock pass"),
        (np.zeros((1, 2, 4)), np.zeros((1, 2, 4)), None, "D = 2 or 3"),
        (np.zeros((0, 2, 2)), np.zeros((0, 2, 2)), None, "B >= 1"),
        (
            ZEROS,
            np.zeros((1, 3, 2)),
            None,
            r"velocities must have the shape of positions, \(1, 2, 2\); got \(1, 3, 2\)",
        ),
        (ZEROS * np.nan, ZEROS, None, "positions must be finite and at most 1e[+]20; agent 0 of flock 0"),
        (ZEROS, ZEROS + np.inf, None, "velocities must be finite"),
        (ZEROS + 1e21, ZEROS, None, "positions must be .* at most 1e[+]20; agent 0 of flock 0 has"),
        (ZEROS, ZEROS - 1e21, None, "velocities must be .* at most 1e[+]20; agent 0 of flock 0 has"),
        (ZEROS.astype(str), ZEROS, None, "positions must be numbers .*; got <U32 of shape"),
        (ZEROS.astype(str).astype(object), ZEROS, None, "positions must be numbers .*; got object"),
        (ZEROS, ZEROS.astype("S3"), None, "velocities must be numbers .*; got [|]S3"),
        (np.ma.masked_equal(ZEROS, 0.0), ZEROS, None, "positions must not have masked entries: leave these agents out"),
        (ZEROS, [np.ma.masked_equal(ZEROS[0], 0.0)], None, "velocities must not have masked entries"),
        (ZEROS, ZEROS, np.ma.masked_equal([[0, 1]], 1), "roles must not have masked entries"),
        (torch.zeros((1, 2, 2), requires_grad=True), ZEROS, None, "positions must be numbers .*detach"),
        ([[["a", "b"]]], ZEROS, None, "positions must be numbers"),
        (ZEROS, ZEROS, [[0, 7]], r"roles must be 0 \(follower\), 1 \(leader\), 2 \(obstacle\); got \[7\]"),
        (ZEROS, ZEROS, [0, 0], r"roles must have shape \(B, N\)"),
        (np.zeros((1, 2, 3)), np.zeros((1, 2, 3)), [[0, 2]], "obstacle agents require D = 2; got D = 3"),
        (ZEROS, ZEROS + 1.0, [[0, 2]], "obstacle agents must have zero velocity"),
        (ZEROS, ZEROS, [[2, 2]], "every flock must have a leader or follower"),
        (ZEROS, ZEROS, [[0], [0, 1]], r"roles must have shape \(B, N\)"),
        (ZEROS + 1j, ZEROS, None, "positions must be numbers of shape .*; got complex128"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_clear_line(positions: Any, velocities: Any, roles: Any, text: str) -> None:
    with pytest.raises(InputError, match=text) as caught:
        Flock(positions, velocities, roles)
    assert "\n" not in str(caught.value)


def test_a_masked_array_without_masked_entries_is_an_array() -> None:
    assert (Flock(np.ma.masked_equal(ZEROS, 1.0), ZEROS).positions == ZEROS).all()


def test_the_bounds_of_a_flock_are_accepted() -> None:
    for comm_radius in (1.0 / LARGEST_SCALE, LARGEST_SCALE):
        assert Flock(ZEROS + MAX_MAGNITUDE, ZEROS - MAX_MAGNITUDE, comm_radius=comm_radius).comm_radius == comm_radius


@pytest.mark.parametrize("comm_radius", [1e-200, 9e-13, 1.1e12, 1.4e154, 1e308])
def test_a_radius_whose_square_leaves_float64_in_some_unit_is_refused_everywhere(comm_radius: float) -> None:
    flock, tanner = Flock(ZEROS, ZEROS), ef.load("tanner")
    for use in (
        lambda: Flock(ZEROS, ZEROS, comm_radius=comm_radius),
        lambda: ef.flight(flock, tanner, comm_radius=comm_radius),
        lambda: ef.simulate(flock, tanner, comm_radius=comm_radius),
        lambda: ef.RandomDisk(comm_radius=comm_radius),
        lambda: ef.random_disk(comm_radius=comm_radius, disk_radius=1.0),
        lambda: ef.observe(flock, ef.paper_senses(), comm_radius=comm_radius),
        lambda: ef.radius_graph(flock, comm_radius),
        lambda: ef.components(flock, comm_radius),
        lambda: ef.UntilDisconnected(comm_radius),
        lambda: ef.UntilPassed(comm_radius),
        lambda: ef.DAgger(comm_radius=comm_radius),
        lambda: ef.FastForward(comm_radius=comm_radius),
        lambda: ef.load("tanner", comm_radius=comm_radius),
        lambda: SweepJob("tanner", 0, agents=10, comm_radius=comm_radius, hops=None),
    ):
        with pytest.raises(InputError, match=r"comm_radius must be from 1e-12 to 1e\+12; got"):
            use()


def test_arrays_are_contiguous_however_they_came_as_kernels_are_compiled_for_those() -> None:
    drawn = ef.LeaderFollowing(ef.RandomDisk(flocks=2, agents=10)).draw()
    turned = Flock(*(np.asfortranarray(array) for array in drawn.arrays))
    for array, expected in zip(turned.arrays, drawn.arrays, strict=True):
        assert array.flags.c_contiguous
        assert not array.flags.writeable
        assert np.array_equal(array, expected)


def test_a_flock_remembers_the_radius_it_was_drawn_for() -> None:
    assert ef.random_disk(comm_radius=2.0, disk_radius=4.0).comm_radius == 2.0
    course = ef.ObstacleCourse(ef.RandomDisk(comm_radius=1.5)).draw()
    assert course.comm_radius == course[0].comm_radius == 1.5
    assert ef.LeaderFollowing(ef.RandomDisk(comm_radius=1.5)).draw().comm_radius == 1.5
    assert Flock([[[0.0, 0.0]]], [[[0.0, 0.0]]]).comm_radius == 1.0
    assert "R=1.5" in repr(course)
    with pytest.raises(InputError, match="comm_radius must be a finite number above 0"):
        Flock([[[0.0, 0.0]]], [[[0.0, 0.0]]], comm_radius=0.0)


def test_obstacle_agents_carry_the_number_of_their_obstacle() -> None:
    places, roles = [[[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]], [[Role.FOLLOWER, Role.OBSTACLE, Role.OBSTACLE]]
    still = np.zeros((1, 3, 2))
    assert Flock(places, still, roles).obstacles.tolist() == [[-1, 0, 0]]
    assert Flock(places, still, roles, [[-1, 1, 0]]).obstacles.tolist() == [[-1, 1, 0]]
    assert Flock(places, still).obstacles.tolist() == [[-1, -1, -1]]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([[0, 0, 0]], "-1 for all others"),
        ([[-1, -1, 0]], "from 0 to 2 for obstacle agents"),
        ([[-1, 3, 0]], "from 0 to 2 for obstacle agents"),
        ([[-1, 0]], r"integers of shape \(B, N\) = \(1, 3\); got int64 of shape \(1, 2\)"),
        ([[-1, 0.5, 0]], "integers of shape"),
    ],
)
def test_obstacle_numbers_that_make_no_sense_are_refused(numbers: list[list[float]], text: str) -> None:
    places, roles = [[[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]], [[Role.FOLLOWER, Role.OBSTACLE, Role.OBSTACLE]]
    with pytest.raises(InputError, match=text):
        Flock(places, np.zeros((1, 3, 2)), roles, numbers)


def test_agents_are_in_group_0_unless_another_is_said_and_obstacle_agents_in_none() -> None:
    places, roles = [[[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]], [[Role.FOLLOWER, Role.LEADER, Role.OBSTACLE]]
    still = np.zeros((1, 3, 2))
    assert Flock(places, still, roles).groups.tolist() == [[0, 0, -1]]
    assert Flock(places, still, roles, groups=[[4, 2, 7]]).groups.tolist() == [[4, 2, -1]]
    assert Flock(places, still, groups=[[4, 2, 7]])[0].groups.tolist() == [[4, 2, 7]]


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ([[0, -1]], r"groups must be from 0 to 2\^31 - 1; agent 1 of flock 0 has -1"),
        ([[0, 2**31]], "agent 1 of flock 0 has 2147483648"),
        ([0, 1], r"groups must be integers of shape \(B, N\) = \(1, 2\); got int64 of shape \(2,\)"),
        ([[0, 0.5]], "groups must be integers"),
        ([[0], [0, 1]], "groups must be integers"),
    ],
)
def test_groups_that_make_no_sense_are_refused_in_one_line(groups: Any, text: str) -> None:
    with pytest.raises(InputError, match=text) as caught:
        Flock(ZEROS, ZEROS, groups=groups)
    assert "\n" not in str(caught.value)


def test_agents_work_unless_another_condition_is_said() -> None:
    still = np.zeros((1, 4, 2))
    assert Flock(still, still).conditions.tolist() == [[Condition.WORKING] * 4]
    assert Flock(still, still).all_working
    failed = Flock(still, still, [[0, 0, 1, 0]], conditions=[[0, 1, 2, 3]])
    assert failed.conditions.dtype == np.int8
    assert not failed.all_working
    assert failed.working.tolist() == [[True, False, False, False]]
    assert failed.muted.tolist() == [[False, True, True, False]]
    assert failed.effective_roles.tolist() == [[Role.FOLLOWER, Role.FOLLOWER, Role.LEADER, Role.LEADER]]
    assert failed[0].conditions.tolist() == [[0, 1, 2, 3]]
    assert repr(failed) == "Flock(B=1, N=4, D=2, R=1: 3 followers, 1 leaders, 1 silent, 1 stopped, 1 drifting)"


def test_obstacle_agents_are_no_agents_that_work() -> None:
    assert Flock(ZEROS, ZEROS, [[Role.LEADER, Role.OBSTACLE]]).working.tolist() == [[True, False]]


@pytest.mark.parametrize(
    ("conditions", "text"),
    [
        ([[0, 4]], r"conditions must be 0 \(working\), 1 \(silent\), 2 \(stopped\), 3 \(drifting\); got \[4\]"),
        ([0, 0], r"conditions must have shape \(B, N\) = \(1, 2\); got int64 of shape \(2,\)"),
        ([[0], [0, 1]], r"conditions must have shape \(B, N\)"),
        ([[2, 0]], "stopped agents must have zero velocity"),
        ([[0, 1]], r"obstacle agents cannot fail: their conditions must be 0 \(working\)"),
    ],
)
def test_conditions_that_make_no_sense_are_refused_in_one_line(conditions: Any, text: str) -> None:
    with pytest.raises(InputError, match=text) as caught:
        Flock(ZEROS, [[[1.0, 0.0], [0.0, 0.0]]], [[Role.FOLLOWER, Role.OBSTACLE]], conditions=conditions)
    assert "\n" not in str(caught.value)


def test_positions_that_no_float_can_hold_are_refused() -> None:
    with pytest.raises(InputError, match="positions must be numbers of shape"):
        Flock([[[10**400, 0]]], [[[0.0, 0.0]]])


def test_a_flock_in_other_units_is_the_same_flock_and_comes_back() -> None:
    flock = Flock([[[3.0, 1.0], [0.5, 0.0]]], [[[8.0, 2.0], [0.0, -1.0]]], groups=[[0, 4]], comm_radius=6.0)
    found = flock.in_units(length=2.0, time=0.25)
    assert np.array_equal(found.positions, [[[1.5, 0.5], [0.25, 0.0]]])
    assert np.array_equal(found.velocities, [[[1.0, 0.25], [0.0, -0.125]]])
    assert (found.comm_radius, found.groups.tolist()) == (3.0, [[0, 4]])
    back = found.in_units(length=0.5, time=4.0)
    assert all(map(np.array_equal, back.arrays, flock.arrays))
    assert not back.positions.flags.writeable
