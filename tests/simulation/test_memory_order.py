"""A large flock is kept in cell order in memory, which changes only the speed."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock.flock import Flock, Role
from equiflock.simulation import memory_order
from tests.simple import EndAt, Push


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Flock:
    """A flock that is large enough to be put into cell order, and numbered at random, with two leaders."""
    monkeypatch.setattr(memory_order, "CACHE_DISTANCE", 20)
    drawn = ef.random_disk(1, 3_500, seed=2, radius_rule="constant-density")
    order = np.random.default_rng(0).permutation(3_500)
    roles = np.zeros((1, 3_500), np.int8)
    roles[0, [5, 3_000]] = Role.LEADER
    return Flock(drawn.positions[:, order], drawn.velocities[:, order], roles)


def test_agents_in_cell_order_show_the_caller_what_agents_in_the_callers_order_do(
    large: Flock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tidy = ef.flight(large, ef.load("etdagnn"))
    for step in range(4):
        one = next(tidy)
        monkeypatch.setattr(memory_order, "MAX_STRAY_SHARE", 2.0)  # more than there are
        plain = ef.flight(large, ef.load("etdagnn"))
        other = next(itertools.islice(plain, step, None))
        monkeypatch.undo()
        monkeypatch.setattr(memory_order, "CACHE_DISTANCE", 20)
        assert np.array_equal(plain._state.positions, other.flock.positions)
        assert (one.step, one.time, one.comm_radius) == (other.step, other.time, other.comm_radius)
        for name in ("positions", "velocities", "roles"):
            assert np.array_equal(getattr(one.flock, name), getattr(other.flock, name)), (step, name)
        assert np.array_equal(one.observations, other.observations)
        assert np.array_equal(one.accelerations, other.accelerations)
        with pytest.raises(ValueError, match="read-only"):
            one.observations[0] = 0.0
    assert not np.array_equal(tidy._state.positions, one.flock.positions)  # they do stand otherwise in memory
    assert one.safety_states is None
    later = dataclasses.replace(one, time=7.0)
    assert (later.time, later.step) == (7.0, 3)
    assert np.array_equal(later.observations, one.observations)
    with pytest.raises(AttributeError, match="has no attribute 'colour'"):
        one.colour  # type: ignore[attr-defined]  # noqa: B018


def test_a_large_flock_with_limits_stays_in_the_callers_order(large: Flock) -> None:
    loop = ef.flight(large, ef.Safe("etdagnn", max_acceleration=4.0))
    moment = next(loop)
    assert loop._order is None and moment.safety_states is not None
    np.testing.assert_array_equal(moment.flock.positions, large.positions)
    assert (moment.safety_states[0, [5, 3_000]] == 0).all() and (moment.safety_states > 0).any()


def test_a_flock_in_cell_order_is_changed_in_the_callers_order(large: Flock, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = []
    for most in (0.2, 2.0):
        monkeypatch.setattr(memory_order, "MAX_STRAY_SHARE", most)
        loop = ef.flight(large, ef.load("etdagnn"))
        moment = next(itertools.islice(loop, 3, None))
        keep = np.arange(3_500) % 7 != 0
        loop.replace(
            Flock(moment.flock.positions[:, keep], moment.flock.velocities[:, keep], moment.flock.roles[:, keep]), keep
        )
        ends.append(next(itertools.islice(loop, 3, None)))
    assert ends[0].flock.shape == (1, 3_000, 2)
    assert np.array_equal(ends[0].flock.positions, ends[1].flock.positions)
    assert np.array_equal(ends[0].observations, ends[1].observations)


@pytest.mark.parametrize("moments", [1, 3])
@pytest.mark.parametrize("change", ["fewer", "more", "as many"])
def test_a_large_flock_that_stays_large_is_changed_at_any_time(
    large: Flock, monkeypatch: pytest.MonkeyPatch, moments: int, change: str
) -> None:
    ends = []
    for most in (0.2, 2.0):
        monkeypatch.setattr(memory_order, "MAX_STRAY_SHARE", most)
        loop = ef.flight(large, ef.load("etdagnn"))
        now = next(itertools.islice(loop, moments - 1, None)).flock
        keep = np.arange(3_500) % 10 != 0 if change == "fewer" else np.ones(3_500, bool)
        state = [array[:, keep] for array in (now.positions, now.velocities, now.roles)]
        if change == "more":
            state = [
                np.concatenate([array, array[:, :100] + (index == 0)], axis=1) for index, array in enumerate(state)
            ]
        loop.replace(Flock(*state), keep)
        ends.append(next(itertools.islice(loop, 2, None)))
    assert ends[0].flock.shape[1] == {"fewer": 3_150, "more": 3_600, "as many": 3_500}[change]
    assert np.array_equal(ends[0].flock.positions, ends[1].flock.positions)
    assert np.array_equal(ends[0].observations, ends[1].observations)


@pytest.mark.parametrize("first", [10, 3_000])
def test_of_two_equally_near_obstacle_agents_the_first_in_the_callers_order_counts(
    large: Flock, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    positions, roles = large.positions.copy(), large.roles.copy()
    other = 3_010 - first
    # The obstacle agents stand left and right of follower 100, far from everybody else.
    positions[0, [100, first, other]] = [[90.5, 90.5], [90.0, 90.5], [91.0, 90.5]]
    roles[0, [first, other]] = Role.OBSTACLE
    flock = Flock(positions, np.where((roles == Role.OBSTACLE)[..., None], 0.0, large.velocities), roles)
    found = []
    for most in (0.2, 2.0):
        monkeypatch.setattr(memory_order, "MAX_STRAY_SHARE", most)
        found.append(
            next(itertools.islice(ef.flight(flock, ef.load("etdagnn"), orbit=ef.Orbit()), 2, None)).observations
        )
    assert np.array_equal(*found)


def test_a_flock_in_cell_order_is_the_same_for_any_number_of_threads(large: Flock) -> None:
    found = []
    for count in (1, 2, 3):
        with ef.threads.use(count):
            found.append(next(itertools.islice(ef.flight(large, ef.load("etdagnn")), 3, None)).flock.positions)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


@pytest.mark.parametrize("options", [{"ending": EndAt((9,))}, {}], ids=["an ending", "one's own controller"])
def test_an_ending_or_a_custom_controller_keeps_the_callers_order(large: Flock, options: dict[str, Any]) -> None:
    controller = ef.load("etdagnn") if options else Push(senses=ef.paper_senses(hops=3))
    loop = ef.flight(large, controller, **options)  # type: ignore[arg-type]
    for moment in itertools.islice(loop, 3):
        assert np.shares_memory(moment.flock.positions, loop._state.positions)
