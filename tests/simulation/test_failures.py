"""Agents fail when and as they were told to, and nobody else notices more than that they are gone."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.flock import Condition, Flock, Role
from equiflock.simulation.failures import NEVER, FailureKind
from tests.simple import EndAt, Push
from tests.simulation.failing import FIVE, KINDS, begin, moments


@pytest.fixture(scope="module")
def start() -> Flock:
    return begin()


# Who fails, and when.


@pytest.mark.parametrize("kind", KINDS)
def test_exactly_so_many_followers_of_each_flock_fail_at_that_step_and_for_good(
    start: Flock, kind: FailureKind
) -> None:
    code = Condition[kind.upper()]
    for moment in moments(start, ef.load("tanner"), 20, failures=FIVE[kind]):
        failed = moment.flock.conditions == code
        assert (failed.sum(axis=1) == (5 if moment.step >= 5 else 0)).all()
        assert (moment.flock.conditions[~failed] == Condition.WORKING).all()
        assert (moment.flock.roles == start.roles).all()
        assert (moment.flock.roles[failed] == Role.FOLLOWER).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["tanner", "tanner-fixed", "etdagnn"])
def test_before_they_fail_nobodys_numbers_change(start: Flock, kind: FailureKind, name: str) -> None:
    whole, failing = (moments(start, ef.load(name), 7, failures=failures) for failures in (None, FIVE[kind]))
    for one, other in zip(whole[:5], failing[:5], strict=True):
        for array, twin in zip(one.flock.arrays, other.flock.arrays, strict=True):
            assert array.tobytes() == twin.tobytes()
        assert one.observations.tobytes() == other.observations.tobytes()
        assert one.accelerations.tobytes() == other.accelerations.tobytes()
    # The step that the last of these decided on is made, and only then they fail.
    assert whole[5].flock.positions.tobytes() == failing[5].flock.positions.tobytes()
    assert whole[6].flock.positions.tobytes() != failing[6].flock.positions.tobytes()


def test_who_fails_depends_on_the_seed_the_flock_and_the_agent_alone() -> None:
    failures = ef.Failures(agents=3, time=1.0, rate=0.5, seed=7)
    many, few = (failures.draw_failure_steps(ef.random_disk(flocks, 20), 0.01) for flocks in (5, 2))
    assert (many[:2] == few).all()
    assert (failures.draw_failure_steps(ef.random_disk(2, 20, seed=9), 0.01) == few).all()
    assert (replace(failures, seed=8).draw_failure_steps(ef.random_disk(2, 20), 0.01) != few).any()
    assert (many[0] != many[1]).any()


def test_every_follower_is_as_likely_to_fail_as_any_other() -> None:
    flock = ef.random_disk(2000, 10)
    chosen = (ef.Failures(agents=3).draw_failure_steps(flock, 0.01) < NEVER).mean(axis=0)
    assert (np.abs(chosen - 0.3) < 4 * np.sqrt(0.3 * 0.7 / 2000)).all()


def test_the_share_that_failed_under_a_rate_is_that_of_the_exponential_distribution() -> None:
    flock, rate = ef.random_disk(400, 50), 0.7
    draw_failure_steps = ef.Failures(rate=rate).draw_failure_steps(flock, 0.01)
    for step in (1, 10, 50, 100, 300, 1000):
        expected = 1.0 - np.exp(-rate * step * 0.01)
        error = np.sqrt(expected * (1.0 - expected) / draw_failure_steps.size)
        assert abs((draw_failure_steps <= step).mean() - expected) < 4 * error, step


def test_a_rate_strikes_in_flight_at_the_steps_that_were_drawn(start: Flock) -> None:
    failures = ef.Failures("drifting", rate=5.0)
    draw_failure_steps = failures.draw_failure_steps(start, 0.01)
    for moment in moments(start, ef.load("tanner"), 30, failures=failures):
        assert ((moment.flock.conditions != Condition.WORKING) == (draw_failure_steps <= moment.step)).all()
    assert (draw_failure_steps[:, :4] == NEVER).all()  # leaders
    assert ((draw_failure_steps[:, 4:] > 0) & (draw_failure_steps[:, 4:] < NEVER)).all()


def test_some_fail_at_a_time_and_others_at_a_rate() -> None:
    flock = ef.random_disk(50, 40)
    alone, both = (ef.Failures(agents=agents, time=0.5, rate=0.1).draw_failure_steps(flock, 0.01) for agents in (0, 10))
    assert (both <= alone).all()
    assert (both[both < alone] == 50).all()
    assert ((both < alone).sum(axis=1) <= 10).all()


@pytest.mark.parametrize(
    ("time", "time_step", "step"), [(0.0, 0.1, 0), (0.3, 0.1, 3), (1.1, 0.1, 11), (0.31, 0.1, 4), (7.0, 0.07, 100)]
)
def test_they_fail_at_the_first_step_that_is_not_before_their_time(time: float, time_step: float, step: int) -> None:
    draw_failure_steps = ef.Failures(agents=1, time=time).draw_failure_steps(ef.random_disk(1, 5), time_step)
    assert sorted(draw_failure_steps[0].tolist()) == [step, NEVER, NEVER, NEVER, NEVER]


def test_times_beyond_any_flight_are_never() -> None:
    assert (ef.Failures(rate=1e-300).draw_failure_steps(ef.random_disk(1, 5), 1e-3) == NEVER).all()
    assert (ef.Failures(agents=5, time=1e300).draw_failure_steps(ef.random_disk(1, 5), 1e-3) == NEVER).all()


# In the loop.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("agents", [100, 4000])
def test_the_number_of_threads_changes_no_bit(kind: FailureKind, agents: int) -> None:
    start = ef.random_disk(2, agents, radius_rule="constant-density")
    failures, found = ef.Failures(kind, agents=20, time=0.01, rate=3.0), set()
    for count in (1, 2):
        with ef.threads.use(count):
            run = ef.simulate(start, ef.load("etdagnn"), duration=0.05, failures=failures)
            found.add(run.positions.tobytes() + run.conditions.tobytes())
    assert len(found) == 1
    assert run.conditions[-1].any()


def test_agents_of_a_flock_large_enough_for_cell_order_fail_by_their_own_numbers() -> None:
    start = ef.random_disk(1, 4000, radius_rule="constant-density")
    failures = ef.Failures(agents=100, time=0.02)
    draw_failure_steps = failures.draw_failure_steps(start, 0.01)
    for moment in moments(start, ef.load("etdagnn"), 4, failures=failures):
        assert ((moment.flock.conditions == Condition.STOPPED) == (draw_failure_steps <= moment.step)).all()


def test_skipped_steps_let_agents_fail_too(start: Flock) -> None:
    failures = ef.Failures("stopped", agents=5, time=0.05, rate=2.0)
    skipped = ef.flight(start, ef.load("etdagnn"), failures=failures)
    next(skipped)
    skipped.skip(9)
    after, made = next(skipped), moments(start, ef.load("etdagnn"), 11, failures=failures)[-1]
    assert after.step == made.step == 10
    for array, twin in zip(after.flock.arrays, made.flock.arrays, strict=True):
        assert array.tobytes() == twin.tobytes()


def test_a_flight_in_which_nobody_fails_is_one_without_failures(start: Flock) -> None:
    loop = ef.flight(start, ef.load("etdagnn"), failures=ef.Failures())
    assert loop._get_fused_step() is not None
    failing = ef.flight(start, ef.load("etdagnn"), failures=FIVE["silent"])
    assert failing._get_fused_step() is None


@pytest.mark.parametrize("name", ["etdagnn", "tanner"])
def test_a_flock_may_begin_with_failed_agents(start: Flock, name: str) -> None:
    at_once = moments(start, ef.load(name), 6, failures=ef.Failures("drifting", agents=5))
    conditions = at_once[0].flock.conditions
    begun = moments(replace(start, conditions=conditions), ef.load(name), 6)
    for one, other in zip(at_once, begun, strict=True):
        assert one.flock.positions.tobytes() == other.flock.positions.tobytes()
        assert (other.flock.conditions == conditions).all()


def test_failures_follow_agents_that_stay_and_new_ones_do_not_fail(start: Flock) -> None:
    failures = FIVE["stopped"]
    draw_failure_steps = failures.draw_failure_steps(start, 0.01)
    loop = ef.flight(start, ef.load("tanner"), failures=failures)
    moment = next(loop)
    keep = np.arange(30) % 3 > 0
    arrays = [np.concatenate([array[:, keep], array[:, :4]], axis=1) for array in moment.flock.arrays]
    arrays[0][:, -4:] += 50.0  # new agents, who are leaders as the first ones are, elsewhere
    loop.replace(Flock(*arrays), keep)
    for moment in itertools.islice(loop, 8):
        failed = moment.flock.conditions != Condition.WORKING
        assert (failed[:, :-4] == (draw_failure_steps[:, keep] <= moment.step)).all()
        assert not failed[:, -4:].any()


def test_whoever_was_made_a_leader_in_flight_does_not_fail(start: Flock) -> None:
    loop = ef.flight(start, ef.load("tanner"), failures=FIVE["silent"])
    flock = next(loop).flock
    loop.replace(replace(flock, roles=np.full((3, 30), Role.LEADER)))
    assert all(moment.flock.all_working for moment in itertools.islice(loop, 8))


def test_agents_of_flocks_that_have_ended_do_not_fail(start: Flock) -> None:
    failures = ef.Failures("stopped", agents=5, time=0.5)
    run = ef.simulate(start, Push(), time_step=0.1, duration=1.0, ending=EndAt((3, 5, 99)), failures=failures)
    assert (run.conditions[-1] != Condition.WORKING).sum(axis=1).tolist() == [0, 5, 5]
    assert run.steps.tolist() == [3, 5, 10]


def test_accelerations_of_the_caller_do_not_move_stopped_agents(start: Flock) -> None:
    loop = ef.flight(start, None, senses=ef.paper_senses(), failures=ef.Failures(agents=5))
    moment = next(loop)
    stopped = moment.flock.conditions == Condition.STOPPED
    moment = loop.step(np.ones(start.shape))
    assert not moment.flock.velocities[stopped].any()


def test_bodies_receive_stopped_and_drifting_agents_as_leaders(start: Flock) -> None:
    received = []

    class Curious(ef.DoubleIntegrator):
        def advance(self, step: ef.BodyStep) -> None:
            received.append(step.roles.copy())
            super().advance(step)

    for kind in KINDS:
        (_, moment) = moments(start, ef.load("tanner"), 2, body=Curious(), failures=ef.Failures(kind, agents=5))
        failed = moment.flock.conditions != Condition.WORKING
        expected = np.where(failed & (kind != "silent"), Role.LEADER, start.roles)
        assert (received[-1] == expected).all()


# Bad input.


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"kind": "stoped"},
            "kind must be one of 'silent', 'stopped', 'drifting'; got 'stoped'; did you mean 'stopped'",
        ),
        ({"rate": -1.0}, "rate must be a finite number of at least 0; got -1.0"),
        ({"time": float("nan")}, "time must be a finite number of at least 0; got nan"),
        ({"agents": 2.5}, "agents must be a whole number of at least 0; got 2.5"),
        ({"seed": -1}, "seed must be a whole number of at least 0; got -1"),
        ({"agents": 27}, "failures.agents must be at most the followers of a flock, 26; got 27"),
        ({"agents": 1, "time": 0.11}, "failures.time must be at most the duration, 0.1 s; got 0.11"),
    ],
)
def test_invalid_failures_raise_errors_of_one_line(start: Flock, options: Any, text: str) -> None:
    with pytest.raises(InputError, match=text) as caught:
        ef.simulate(start, ef.load("tanner"), duration=0.1, failures=ef.Failures(**options))
    assert "\n" not in str(caught.value)


def test_failures_of_another_type_raise_an_error(start: Flock) -> None:
    with pytest.raises(InputError, match=r"failures must be a Failures, such as equiflock.Failures\(.*\); got 5"):
        ef.flight(start, ef.load("tanner"), failures=5)  # type: ignore[arg-type]


def test_a_time_of_failure_after_the_end_is_valid_in_an_endless_flight_or_without_agents(start: Flock) -> None:
    next(ef.flight(start, ef.load("tanner"), failures=ef.Failures(agents=1, time=1e6)))
    run = ef.simulate(start, ef.load("tanner"), duration=0.1, failures=ef.Failures(agents=1, time=0.1))
    assert (run.conditions.any(axis=2).sum(axis=0) == 1).all()  # in the last frame
    ef.simulate(start, ef.load("tanner"), duration=0.1, failures=ef.Failures(time=5.0, rate=0.1))
