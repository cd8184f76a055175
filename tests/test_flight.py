"""One loop: what it yields, what it keeps, how it ends."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import equiflock as ef
from equiflock.types import Flock, InputError, Moment, Outcome, Role


@dataclass(frozen=True)
class Push:
    """A constant acceleration, the same for everybody."""

    amount: float = 1.0
    hops: int = 2
    one_hop: str = "mean"

    def __call__(self, messages: Any) -> Any:
        return np.full((*messages.shape[:2], messages.shape[-1]), self.amount)


@dataclass(frozen=True)
class EndAt:
    """Ends flock b at steps[b]."""

    steps: tuple[int, ...]

    def __call__(self, time: float, flock: Flock, flying: NDArray[Any]) -> NDArray[Any]:
        over = time > np.array(self.steps) * 0.1 - 1e-9
        return np.where(over, Outcome.DISCONNECTED, Outcome.FLYING).astype(np.int8)


@pytest.fixture(scope="module")
def start() -> Flock:
    return ef.random_disk(3, 30, seed=4)


def test_a_moment_holds_the_state_and_what_follows_from_it(start: Flock) -> None:
    moments = list(itertools.islice(ef.flight(start, ef.load("tanner-dynamic"), time_step=0.1), 2))
    assert [moment.step for moment in moments] == [0, 1]
    assert moments[1].time == 0.1
    assert moments[0].messages.shape == (3, 30, 1, 3, 2)
    first = next(ef.flight(start, ef.load("tanner-dynamic"), time_step=0.1))
    assert (first.flock.positions == start.positions).all()
    expected = start.positions + start.velocities * 0.1 + first.accelerations * 0.005
    np.testing.assert_allclose(moments[1].flock.positions, expected, rtol=1e-14)


def test_a_moment_is_read_only_and_the_start_is_left_alone(start: Flock) -> None:
    before = start.positions.copy()
    for moment in itertools.islice(ef.flight(start, ef.load("tanner")), 3):
        for array in (moment.flock.positions, moment.messages, moment.accelerations):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0.0
    assert (start.positions == before).all()


def test_simulate_keeps_every_frame_of_the_loop(start: Flock) -> None:
    run = ef.simulate(start, ef.load("tanner"), time_step=0.1, duration=0.5)
    assert run.times.tolist() == [0.0, 0.1, 0.2, 0.30000000000000004, 0.4, 0.5]
    assert run.positions.shape == run.velocities.shape == (6, 3, 30, 2)
    assert run.accelerations.shape == (5, 3, 30, 2)
    for moment, positions in zip(ef.flight(start, ef.load("tanner"), time_step=0.1), run.positions, strict=False):
        assert (moment.flock.positions == positions).all()
        if moment.step == 5:
            break
    assert run.outcome == (Outcome.TIME_UP,) * 3
    assert run.steps.tolist() == [5, 5, 5]


@pytest.mark.parametrize(
    ("keep_every", "kept"), [(1, range(8)), (2, [0, 2, 4, 6, 7]), (7, [0, 7]), (99, [0, 7]), (None, [0, 7])]
)
def test_fewer_frames_are_the_same_frames(start: Flock, keep_every: int | None, kept: Any) -> None:
    whole = ef.simulate(start, ef.load("tanner"), duration=0.07)
    some = ef.simulate(start, ef.load("tanner"), duration=0.07, keep_every=keep_every)
    assert (some.times == whole.times[list(kept)]).all()
    assert (some.positions == whole.positions[list(kept)]).all()
    assert (some.accelerations == whole.accelerations[list(kept)[:-1]]).all()


def test_metrics_can_be_had_without_frames(start: Flock) -> None:
    measures = [ef.metrics.velocity_variance, ef.metrics.mean_acceleration_norm]
    whole = ef.simulate(start, ef.load("tanner"), duration=0.2)
    bare = ef.simulate(start, ef.load("tanner"), duration=0.2, keep_every=None, record=measures)
    assert len(bare.positions) == 2
    np.testing.assert_array_equal(bare.series["velocity_variance"], ef.metrics.velocity_variance(whole))
    np.testing.assert_allclose(ef.metrics.ivv(bare), ef.metrics.ivv(whole), rtol=1e-14)
    np.testing.assert_allclose(ef.metrics.iman(bare), ef.metrics.iman(whole), rtol=1e-14)


def test_no_time_is_one_frame(start: Flock) -> None:
    run = ef.simulate(start, ef.load("tanner"), duration=0.0)
    assert run.positions.shape[0] == 1
    assert len(run.accelerations) == 0
    assert ef.metrics.ivv(run).tolist() == [0.0, 0.0, 0.0]


def test_flocks_end_at_their_own_times_and_stay_where_they_were(start: Flock) -> None:
    run = ef.simulate(start, Push(), time_step=0.1, duration=1.0, ending=EndAt((2, 99, 0)))
    assert run.steps.tolist() == [2, 10, 0]
    assert run.outcome == (Outcome.DISCONNECTED, Outcome.TIME_UP, Outcome.DISCONNECTED)
    assert (run.positions[2:, 0] == run.positions[2, 0]).all()
    assert (run.positions[:, 2] == start.positions[2]).all()
    assert run.accelerations[:2, 0].all()
    assert not run.accelerations[2:, 0].any()
    assert not run.accelerations[:, 2].any()
    # The one that flies on is not disturbed.
    alone = ef.simulate(start[1], Push(), time_step=0.1, duration=1.0)
    assert (run.positions[:, 1] == alone.positions[:, 0]).all()


def test_a_controller_is_asked_for_flying_flocks_only(start: Flock) -> None:
    asked = []

    class Curious(Push):
        def __call__(self, messages: Any) -> Any:
            asked.append(len(messages))
            return super().__call__(messages)

    ef.simulate(start, Curious(), time_step=0.1, duration=0.5, ending=EndAt((2, 4, 0)))
    assert asked == [2, 2, 1, 1]


def test_a_flight_whose_flocks_have_all_ended_stops(start: Flock) -> None:
    moments = list(ef.flight(start, Push(), time_step=0.1, ending=EndAt((1, 2, 0))))
    assert [moment.flying.tolist() for moment in moments] == [[True, True, False], [False, True, False], [False] * 3]
    run = ef.simulate(start, Push(), time_step=0.1, duration=0.5, ending=EndAt((1, 2, 0)), record=[flying_count])
    assert len(run.times) == 6
    assert run.series["flying_count"].tolist() == [[2, 2, 2], [1, 1, 2], [1, 0, 2], [1, 0, 2], [1, 0, 2], [1, 0, 2]]
    assert not np.isnan(run.positions).any()


def flying_count(moment: Moment) -> NDArray[Any]:
    return np.full(len(moment.flying), float(moment.flying.sum()))


def test_leaders_fly_straight_and_obstacle_agents_stand() -> None:
    positions = np.array([[[0.0, 0.0], [0.5, 0.0], [0.0, 0.5]]])
    velocities = np.array([[[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]])
    flock = Flock(positions, velocities, [[Role.FOLLOWER, Role.LEADER, Role.OBSTACLE]])
    run = ef.simulate(flock, ef.load("tanner"), duration=0.3)
    np.testing.assert_allclose(run.positions[-1, 0, 1], [0.5, 0.6], rtol=1e-12)
    assert (run.positions[-1, 0, 2] == [0.0, 0.5]).all()
    assert not run.accelerations[:, 0, 1:].any()


def test_a_reader_may_remove_and_add_agents_between_steps(start: Flock) -> None:
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


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"time_step": 0.0}, "time_step must be a finite number above 0; got 0.0"),
        ({"time_step": -0.1}, "time_step must be a finite number above 0"),
        ({"radius": 0.0}, "radius must be a finite number above 0"),
        ({"duration": -1.0}, "duration must be a finite number of at least 0"),
        ({"duration": float("nan")}, "duration must be a finite number"),
        ({"duration": "long"}, "duration must be a finite number of at least 0; got 'long'"),
        ({"duration": 1e300}, "duration / time_step must be at most 1e\\+08 steps"),
        ({"duration": 9e5, "keep_every": 1}, "frames needs .* GiB, more than this machine has: raise keep_every"),
        ({"keep_every": 0}, "keep_every must be a whole number of at least 1"),
        ({"config": {"a": object()}}, "config must be such as JSON can hold"),
    ],
)
def test_wrong_options_are_named(start: Flock, options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.simulate(start, ef.load("tanner"), **options)


def test_ended_flocks_are_not_measured_again(start: Flock) -> None:
    sizes = []

    def variance(moment: Moment) -> NDArray[Any]:
        sizes.append(len(moment.flock))
        return ef.metrics.velocity_variance(moment)

    options: dict[str, Any] = {"time_step": 0.1, "duration": 0.5, "ending": EndAt((2, 99, 0))}
    run = ef.simulate(start, Push(), record={"mine": variance}, **options)
    assert sizes == [3, 2, 2, 1, 1, 1]
    assert (run.series["mine"] == ef.metrics.velocity_variance(run)).all()


def test_functions_to_record_need_names_of_their_own(start: Flock) -> None:
    two = [lambda moment: moment.time * np.ones(3), lambda moment: np.zeros(3)]
    with pytest.raises(InputError, match="names of their own, or a mapping"):
        ef.simulate(start, Push(), record=two)
    run = ef.simulate(start, Push(), duration=0.02, record={"time": two[0], "zero": two[1]})
    assert set(run.series) == {"time", "zero"}


def test_an_ending_must_return_outcomes(start: Flock) -> None:
    for wrong in (np.full(3, 9), np.zeros(2), 0):
        with pytest.raises(InputError, match=r"one Outcome per flock, \(3,\)"):
            ef.simulate(start, Push(), ending=lambda *_, wrong=wrong: wrong)


def test_a_controller_cannot_spoil_what_agents_remember(start: Flock) -> None:
    class Vandal(Push):
        def __call__(self, messages: Any) -> Any:
            messages *= 0.0
            return super().__call__(messages)

    with pytest.raises(ValueError, match="read-only"):
        ef.simulate(start, Vandal())


def test_numbers_of_numpy_are_as_good_as_others(start: Flock, tmp_path: Path) -> None:
    run = ef.simulate(start, Push(), time_step=np.float64(0.01), duration=np.float32(0.05), keep_every=np.int64(2))
    run.save(tmp_path / "run.zarr")


def test_one_flock_of_a_run_is_a_run(start: Flock) -> None:
    run = ef.simulate(start, ef.load("tanner"), duration=0.05, record=[ef.metrics.velocity_variance])
    one = run[-1]
    assert one.positions.shape == (6, 1, 30, 2)
    assert (ef.metrics.velocity_variance(one)[:, 0] == run.series["velocity_variance"][:, 2]).all()
    assert (one.series["velocity_variance"][:, 0] == run.series["velocity_variance"][:, 2]).all()


@pytest.mark.parametrize(
    ("pilot", "text"),
    [
        ("tanner", r"use equiflock.load\('tanner'\)"),
        (lambda messages: messages, "declare hops and one_hop"),
        (Push(hops=0), "hops must be a whole number of at least 1"),
        (Push(one_hop="median"), "one_hop must be one of 'sum', 'mean'"),
        (Push(amount=float("nan")), "returned NaN or infinity at t = 0 s"),
        (Push(amount=float("inf")), "returned NaN or infinity"),
    ],
)
def test_what_is_no_controller_is_refused(start: Flock, pilot: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.simulate(start, pilot)


@pytest.mark.parametrize("wrong", [np.zeros((1, 2, 2)), None])
def test_what_is_no_flock_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match="start must be a Flock of at least one flock"):
        ef.simulate(wrong, ef.load("tanner"))
    with pytest.raises(InputError, match="start must be a Flock of at least one flock"):
        ef.simulate(ef.random_disk(1, 10)[0:0], ef.load("tanner"))


def test_accelerations_of_a_wrong_shape_are_refused(start: Flock) -> None:
    class Wrong(Push):
        def __call__(self, messages: Any) -> Any:
            return messages

    with pytest.raises(InputError, match=r"accelerations of shape \(B, N, D\) = \(3, 30, 2\); got \(3, 30, 2, 3, 2\)"):
        ef.simulate(start, Wrong())


def test_a_runaway_flock_ends_in_an_error_not_in_nan(start: Flock) -> None:
    with pytest.raises(InputError, match="off the scale"):
        ef.simulate(start, Push(amount=1e13), time_step=1.0, duration=9.0)
