"""The simulation loop: its moments, its state, and how it ends."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import torch

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.flock import Flock, Role
from equiflock.outcomes import Outcome
from tests.simple import EndAt, Push


@pytest.fixture(scope="module")
def start() -> Flock:
    return ef.random_disk(3, 30, seed=4)


def test_a_moment_holds_the_state_and_what_follows_from_it(start: Flock) -> None:
    moments = list(itertools.islice(ef.flight(start, ef.load("tanner-dynamic"), time_step=0.1), 2))
    assert [moment.step for moment in moments] == [0, 1]
    assert moments[1].time == 0.1
    assert moments[0].observations.shape == (3, 30, 1, 3, 2)
    first = next(ef.flight(start, ef.load("tanner-dynamic"), time_step=0.1))
    assert (first.flock.positions == start.positions).all()
    expected = start.positions + start.velocities * 0.1 + first.accelerations * 0.005
    np.testing.assert_allclose(moments[1].flock.positions, expected, rtol=1e-14)


def test_a_moment_is_read_only_and_the_start_is_left_alone(start: Flock) -> None:
    before = start.positions.copy()
    for moment in itertools.islice(ef.flight(start, ef.load("tanner")), 3):
        for array in (moment.flock.positions, moment.observations, moment.accelerations):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0.0
    assert (start.positions == before).all()


def test_the_controller_is_called_for_flying_flocks_only(start: Flock) -> None:
    asked = []

    class Curious(Push):
        def __call__(self, observations: Any) -> Any:
            asked.append(len(observations))
            return super().__call__(observations)

    ef.simulate(start, Curious(), time_step=0.1, duration=0.5, ending=EndAt((2, 4, 0)))
    assert asked == [2, 2, 1, 1]


def test_leaders_fly_straight_and_obstacle_agents_stand() -> None:
    positions = np.array([[[0.0, 0.0], [0.5, 0.0], [0.0, 0.5]]])
    velocities = np.array([[[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]])
    flock = Flock(positions, velocities, [[Role.FOLLOWER, Role.LEADER, Role.OBSTACLE]])
    run = ef.simulate(flock, ef.load("tanner"), duration=0.3)
    np.testing.assert_allclose(run.positions[-1, 0, 1], [0.5, 0.6], rtol=1e-12)
    assert (run.positions[-1, 0, 2] == [0.0, 0.5]).all()
    assert not run.accelerations[:, 0, 1:].any()


def test_agents_can_be_removed_and_added_between_steps(start: Flock) -> None:
    loop = ef.flight(start, Push(), time_step=0.1)
    before = next(loop)
    keep = np.arange(30) % 2 == 0
    positions, velocities = before.flock.positions[:, keep], before.flock.velocities[:, keep]
    stone = np.zeros((3, 1, 2))
    roles = np.zeros((3, 16), np.int8)
    roles[:, -1] = Role.OBSTACLE
    loop.replace(
        Flock(np.concatenate([positions, stone], axis=1), np.concatenate([velocities, stone], axis=1), roles), keep
    )
    after = next(loop)
    assert after.flock.shape == (3, 16, 2)
    np.testing.assert_allclose(after.flock.velocities[:, :-1], velocities + 0.1)
    assert not after.flock.positions[:, -1].any()
    with pytest.raises(InputError, match="keep must be booleans of shape"):
        loop.replace(start, keep)
    with pytest.raises(InputError, match="the new flock must be 3 flocks of at least 16 agents"):
        loop.replace(start[0])


def test_the_number_of_threads_changes_no_bit_of_a_flight(start: Flock) -> None:
    many = ef.random_disk(60, 100, seed=1)
    runs = []
    for count in (1, 2):
        with ef.threads.use(count):
            runs.append(ef.simulate(many, ef.load("tanner"), duration=0.3).positions.tobytes())
    assert runs[0] == runs[1]


def test_flights_may_run_in_several_threads_at_once() -> None:
    from concurrent.futures import ThreadPoolExecutor

    starts = [ef.random_disk(40, 100, seed=seed) for seed in range(4)]
    fly = lambda start: ef.simulate(start, ef.load("tanner"), duration=0.2).positions.tobytes()  # noqa: E731
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(fly, starts)) == [fly(start) for start in starts]


def test_space_works_like_the_plane() -> None:
    run = ef.simulate(ef.random_disk(2, 80, dimensions=3), ef.load("tanner"), duration=1.0)
    assert (ef.metrics.velocity_variance(run)[-1] < 0.05).all()
    assert (ef.metrics.component_count(run)[-1] == 1).all()


def test_an_ending_must_return_outcomes(start: Flock) -> None:
    for wrong in (np.full(3, 9), np.zeros(2), 0):
        with pytest.raises(InputError, match=r"one Outcome, or True or False, for each flock, \(3,\)"):
            ef.simulate(start, Push(), ending=lambda *_, wrong=wrong: wrong)


def test_a_controller_cannot_change_the_state_of_the_senses(start: Flock) -> None:
    class Vandal(Push):
        def __call__(self, observations: Any) -> Any:
            observations *= 0.0
            return super().__call__(observations)

    with pytest.raises(ValueError, match="read-only"):
        ef.simulate(start, Vandal())


@pytest.mark.parametrize(
    ("controller", "text"),
    [
        ("tanner", r"use equiflock.load\('tanner'\)"),
        (lambda observations: observations, "function must declare senses, such as senses = equiflock"),
        (Push(senses="mean"), "Push must declare senses, such as .* got 'mean'"),  # type: ignore[arg-type]
        (Push(amount=float("nan")), "returned NaN or infinity at t = 0 s"),
        (Push(amount=float("inf")), "returned NaN or infinity"),
    ],
)
def test_invalid_controllers_raise_errors(start: Flock, controller: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.simulate(start, controller)


@pytest.mark.parametrize("wrong", [np.zeros((1, 2, 2)), None])
def test_an_invalid_start_raises_an_error(wrong: Any) -> None:
    with pytest.raises(InputError, match="start must be a Flock of at least one flock"):
        ef.simulate(wrong, ef.load("tanner"))
    with pytest.raises(InputError, match="start must be a Flock of at least one flock"):
        ef.simulate(ef.random_disk(1, 10)[0:0], ef.load("tanner"))


def test_accelerations_of_a_wrong_shape_are_refused(start: Flock) -> None:
    class Wrong(Push):
        def __call__(self, observations: Any) -> Any:
            return observations

    with pytest.raises(InputError, match=r"accelerations of shape \(B, N, D\) = \(3, 30, 2\); got \(3, 30, 2, 3, 2\)"):
        ef.simulate(start, Wrong())


def test_a_runaway_flock_ends_in_an_error_not_in_nan(start: Flock) -> None:
    with pytest.raises(InputError, match="off the scale"):
        ef.simulate(start, Push(amount=1e13), time_step=1.0, duration=9.0)


def test_an_ending_may_return_booleans(start: Flock) -> None:
    def lone_first(time: float, flock: Flock, flying: Any) -> Any:
        return np.arange(len(flock)) == 0

    run = ef.simulate(start, ef.load("tanner"), duration=0.05, ending=lone_first)
    assert run.outcome == (Outcome.ENDED, Outcome.TIME_UP, Outcome.TIME_UP)
    assert run.steps.tolist() == [0, 5, 5]
    assert str(Outcome.ENDED) == "the ending's condition was met"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"orbit": ef.Orbit}, r"orbit must be an Orbit, such as equiflock.Orbit\(\), or None; got <class"),
        ({"orbit": True}, "orbit must be an Orbit, .* got True"),
        ({"ending": ef.UntilDisconnected}, r"ending must be an instance: UntilDisconnected\(\), not UntilDisconnected"),
        ({"ending": 3.0}, "ending must be callable, .* got 3.0"),
        ({"comm_radius": 10**400}, "comm_radius must be a finite number above 0; got 1000"),
        ({"time_step": "fast"}, "time_step must be a finite number above 0; got 'fast'"),
    ],
)
def test_invalid_parts_raise_errors_of_one_line(start: Flock, options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text) as caught:
        ef.simulate(start, ef.load("tanner"), **options)
    assert "\n" not in str(caught.value)


def test_a_controller_s_class_is_not_a_controller(start: Flock) -> None:
    with pytest.raises(InputError, match=r"controller must be an instance: Push\(\), not Push"):
        ef.flight(start, Push)


@pytest.mark.parametrize("kind", [complex, bool, object])
def test_a_controller_that_returns_anything_but_real_numbers_is_refused(start: Flock, kind: type) -> None:
    class Odd:
        senses = ef.paper_senses("mean", hops=1)

        def __call__(self, observations: Any) -> Any:
            return observations[:, :, 0, 0].astype(kind)

    with pytest.raises(InputError, match=f"must return an array of real numbers; got {np.dtype(kind)}"):
        next(ef.flight(start, Odd()))


def test_a_changed_flock_keeps_the_radius_of_the_flight(start: Flock) -> None:
    loop = ef.flight(start, ef.load("tanner"))
    next(loop)
    with pytest.raises(InputError, match="must have comm_radius = 1, that of the flight; got 3"):
        loop.replace(dataclasses.replace(start, comm_radius=3.0))


def test_the_caller_can_provide_accelerations_instead_of_a_controller(start: Flock) -> None:
    ours, theirs = ef.flight(start, ef.load("tanner")), ef.flight(start, None, senses=ef.paper_senses())
    one, other = next(ours), next(theirs)
    for _ in range(3):
        assert not other.accelerations.any()
        other = theirs.step(one.accelerations)
        one = next(ours)
        assert np.array_equal(one.flock.positions, other.flock.positions)
    assert other.observations.shape == (3, 30, 3, 3, 2)


def test_a_step_of_the_caller_replaces_the_commanded_one_for_that_step_only(start: Flock) -> None:
    loop = ef.flight(start, Push(amount=5.0), time_step=0.1)
    before = next(loop).flock.velocities.copy()
    after = loop.step(np.zeros(start.shape)).flock.velocities.copy()
    assert np.array_equal(before, after)
    np.testing.assert_allclose(next(loop).flock.velocities, after + 0.5)


def test_leaders_obstacle_agents_and_flocks_that_ended_do_not_obey() -> None:
    roles = [[Role.FOLLOWER, Role.LEADER, Role.OBSTACLE], [Role.FOLLOWER] * 3]
    flock = Flock(np.arange(12.0).reshape(2, 3, 2), np.zeros((2, 3, 2)), roles)
    loop = ef.flight(flock, None, senses=ef.paper_senses(), time_step=0.1, ending=EndAt((9, 0)))
    next(loop)
    moment = loop.step(np.ones((2, 3, 2)))
    assert moment.flock.velocities.any(axis=2).tolist() == [[True, False, False], [False, False, False]]


@pytest.mark.parametrize("wrong", [np.zeros((3, 30, 3)), np.full((3, 30, 2), np.nan), "up", None])
def test_invalid_accelerations_raise_errors(start: Flock, wrong: Any) -> None:
    loop = ef.flight(start, None, senses=ef.paper_senses())
    with pytest.raises(InputError, match="the flight has not started: get its first moment"):
        loop.step(np.zeros(start.shape))
    next(loop)
    with pytest.raises(InputError, match=r"accelerations must be finite numbers of shape|array of real numbers"):
        loop.step(wrong)


def test_a_flight_without_a_controller_needs_senses(start: Flock) -> None:
    with pytest.raises(InputError, match="a flight without a controller needs senses"):
        ef.flight(start, None)


def test_wrong_accelerations_are_described_by_their_shape_and_gradients_are_refused(start: Flock) -> None:
    loop = ef.flight(start, ef.load("tanner"))
    next(loop)
    B, N, D = start.shape
    for wrong, text in (
        (np.zeros((N, D)), rf"of shape \(B, N, D\) = \({B}, {N}, {D}\); got \({N}, {D}\)$"),
        (np.full(start.shape, np.nan), r"of shape .*; got NaN or infinity$"),
        (torch.zeros(start.shape, requires_grad=True), r"^accelerations must be .*: use .detach\(\) on the tensor$"),
        (np.full(start.shape, "1"), r"^accelerations must be an array of real numbers; got <U1 of shape"),
    ):
        with pytest.raises(InputError, match=text):
            loop.step(wrong)
    assert loop.step(torch.zeros(start.shape)).step == 1


class Differentiable:
    """A controller that is no torch module, but returns tensors with gradients."""

    senses = ef.paper_senses("mean", 1)

    def __call__(self, observations: Any) -> torch.Tensor:
        return torch.zeros(observations.shape[:2] + observations.shape[4:], requires_grad=True)


def test_a_controller_that_returns_gradients_is_refused(start: Flock) -> None:
    with pytest.raises(InputError, match=r"the controller must return numbers without gradients, .*: use .detach\(\)"):
        next(ef.flight(start, Differentiable()))


def test_a_flight_that_is_over_has_no_further_step(start: Flock) -> None:
    loop = ef.flight(start, None, senses=ef.paper_senses(), time_step=0.1, ending=EndAt((0, 0, 0)))
    next(loop)
    with pytest.raises(InputError, match="every flock of the flight has ended"):
        loop.step(np.zeros(start.shape))
