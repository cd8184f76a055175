"""`simulate` records frames, series, and the outcome of each flock."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.flock import Flock
from equiflock.outcomes import Outcome
from equiflock.protocols import Moment
from equiflock.simulation.simulate import compute_flown_duration, count_steps
from tests.simple import EndAt, Push


@pytest.fixture(scope="module")
def start() -> Flock:
    return ef.random_disk(3, 30, seed=4)


def no_number(moment: Moment) -> None:
    return None


def two_numbers(moment: Moment) -> NDArray[Any]:
    return np.zeros(2)


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
@pytest.mark.parametrize("name", ["tanner", "etdagnn"])
def test_fewer_frames_are_the_same_frames(start: Flock, name: str, keep_every: int | None, kept: Any) -> None:
    whole = ef.simulate(start, ef.load(name), duration=0.07)
    some = ef.simulate(start, ef.load(name), duration=0.07, keep_every=keep_every)
    assert (some.steps == whole.steps).all()
    assert some.outcome == whole.outcome
    assert (some.times == whole.times[list(kept)]).all()
    assert (some.positions == whole.positions[list(kept)]).all()
    assert (some.accelerations == whole.accelerations[list(kept)[:-1]]).all()


def test_metrics_can_be_recorded_without_frames(start: Flock) -> None:
    measures = [ef.metrics.velocity_variance, ef.metrics.mean_acceleration_norm]
    whole = ef.simulate(start, ef.load("tanner"), duration=0.2)
    bare = ef.simulate(start, ef.load("tanner"), duration=0.2, keep_every=None, record=measures)
    assert len(bare.positions) == 2
    np.testing.assert_array_equal(bare.series["velocity_variance"], ef.metrics.velocity_variance(whole))
    np.testing.assert_allclose(ef.metrics.ivv(bare), ef.metrics.ivv(whole), rtol=1e-14)
    np.testing.assert_allclose(ef.metrics.iman(bare), ef.metrics.iman(whole), rtol=1e-14)


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ({"duration": 0.001}, r"duration must be at least one time step \(0.01 s\); got 0.001"),
        ({"duration": 0.0099}, r"duration must be at least one time step \(0.01 s\); got 0.0099"),
        ({"time_step": 5.0}, r"duration must be at least one time step \(5 s\); got 2"),
        ({"duration": 0.0}, "duration must be a finite number above 0; got 0.0"),
        ({"duration": -1.0}, "duration must be a finite number above 0"),
        ({"duration": math.nan}, "duration must be a finite number above 0"),
        ({"duration": "1"}, "duration must be a finite number above 0; got '1'"),
        ({"time_step": 0.0}, "time_step must be a finite number above 0"),
        ({"time_step": 1e-300}, "duration / time_step must be at most 1e[+]08 steps"),
    ],
)
def test_flights_of_less_than_one_step_are_refused(start: Flock, times: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.simulate(start, ef.load("tanner"), **times)


@pytest.mark.parametrize(
    ("duration", "time_step", "steps", "flown"),
    [
        (1.0, 0.03, 33, 0.99),
        (1.0, 0.06, 17, 1.02),
        (0.01, 0.01, 1, 0.01),
        (0.07, 0.01, 7, 0.07),
        (0.1 + 0.2, 0.1, 3, 0.1 + 0.2),
        (1e8 * 0.01, 0.01, 100_000_000, 1e6),
    ],
)
def test_a_duration_between_two_steps_is_rounded_and_known(
    duration: float, time_step: float, steps: int, flown: float
) -> None:
    assert count_steps(duration, time_step) == steps
    assert compute_flown_duration(duration, time_step) == pytest.approx(flown, rel=1e-15)
    if flown == duration:
        assert compute_flown_duration(duration, time_step) == duration


def test_a_trajectory_has_the_duration_that_was_flown(start: Flock) -> None:
    run = ef.simulate(start, ef.load("tanner"), time_step=0.03, duration=0.1)
    assert run.config["duration"] == run.times[-1] == 3 * 0.03
    assert ef.simulate(start, ef.load("tanner"), duration=0.07).config["duration"] == 0.07


def test_metrics_may_be_recorded_by_their_names(start: Flock) -> None:
    tanner = ef.load("tanner")
    by_name = ef.simulate(start, tanner, duration=0.05, record=["velocity_variance", ef.metrics.diameter])
    by_function = ef.simulate(start, tanner, duration=0.05, record=[ef.metrics.velocity_variance])
    assert list(by_name.series) == ["velocity_variance", "diameter"]
    np.testing.assert_array_equal(by_name.series["velocity_variance"], by_function.series["velocity_variance"])
    renamed = ef.simulate(start, tanner, duration=0.05, record={"spread": "diameter"})
    np.testing.assert_array_equal(renamed.series["spread"], by_name.series["diameter"])


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (["velocity_varianse"], "record must be one of .*; got 'velocity_varianse'; did you mean 'velocity_varia"),
        ("velocity_variance", "record must be a list or a mapping of .* names of metrics; got 'velocity_variance'"),
        ([5], "a measure must be a function of a moment or the name of a metric; got 5"),
        ({"mine": None}, "a measure must be a function of a moment or the name of a metric; got None"),
        ([no_number], r"the measure 'no_number' must return a number per flock, \(3,\); got object of shape \(\)"),
        ([two_numbers], r"the measure 'two_numbers' must return .*, \(3,\); got float64 of shape \(2,\)"),
    ],
)
def test_measures_that_are_none_are_refused(start: Flock, record: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.simulate(start, ef.load("tanner"), duration=0.05, record=record)


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


def test_a_flight_whose_flocks_have_all_ended_stops(start: Flock) -> None:
    moments = list(ef.flight(start, Push(), time_step=0.1, ending=EndAt((1, 2, 0))))
    assert [moment.flying.tolist() for moment in moments] == [[True, True, False], [False, True, False], [False] * 3]
    run = ef.simulate(start, Push(), time_step=0.1, duration=0.5, ending=EndAt((1, 2, 0)), record=[flying_count])
    assert len(run.times) == 6
    assert run.series["flying_count"].tolist() == [[2, 2, 2], [1, 1, 2], [1, 0, 2], [1, 0, 2], [1, 0, 2], [1, 0, 2]]
    assert not np.isnan(run.positions).any()


def flying_count(moment: Moment) -> NDArray[Any]:
    return np.full(len(moment.flying), float(moment.flying.sum()))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"time_step": 0.0}, "time_step must be a finite number above 0; got 0.0"),
        ({"time_step": -0.1}, "time_step must be a finite number above 0"),
        ({"comm_radius": 0.0}, "comm_radius must be a finite number above 0"),
        ({"duration": 1e300}, "duration / time_step must be at most 1e\\+08 steps"),
        ({"duration": 9e5, "keep_every": 1}, "frames needs .* GiB, more than this machine has: raise keep_every"),
        (
            {"duration": 1e6, "keep_every": None, "record": {str(k): flying_count for k in range(1000)}},
            "recording 100,000,000 steps needs .* GiB, more than this machine has: shorten the flight",
        ),
        ({"keep_every": 0}, "keep_every must be a whole number of at least 1"),
        ({"config": {"a": object()}}, "config must be JSON-serializable"),
    ],
)
def test_invalid_options_raise_errors(start: Flock, options: dict[str, Any], text: str) -> None:
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


def test_functions_to_record_need_distinct_names(start: Flock) -> None:
    two = [lambda moment: moment.time * np.ones(3), lambda moment: np.zeros(3)]
    with pytest.raises(InputError, match="need distinct names, or a mapping"):
        ef.simulate(start, Push(), record=two)
    run = ef.simulate(start, Push(), duration=0.02, record={"time": two[0], "zero": two[1]})
    assert set(run.series) == {"time", "zero"}


def test_numpy_numbers_are_valid_arguments(start: Flock, tmp_path: Path) -> None:
    run = ef.simulate(start, Push(), time_step=np.float64(0.01), duration=np.float32(0.05), keep_every=np.int64(2))
    run.save(tmp_path / "run.zarr")


def test_one_flock_of_a_run_is_a_run(start: Flock) -> None:
    run = ef.simulate(start, ef.load("tanner"), duration=0.05, record=[ef.metrics.velocity_variance])
    one = run[-1]
    assert one.positions.shape == (6, 1, 30, 2)
    assert (ef.metrics.velocity_variance(one)[:, 0] == run.series["velocity_variance"][:, 2]).all()
    assert (one.series["velocity_variance"][:, 0] == run.series["velocity_variance"][:, 2]).all()


def test_the_default_radius_of_a_flight_is_that_of_its_flock() -> None:
    start = ef.random_disk(2, 50, comm_radius=5.0, disk_radius=15.0)
    run = ef.simulate(start, ef.load("tanner-dynamic"), duration=0.05, ending=ef.UntilDisconnected())
    assert run.comm_radius == run.flock().comm_radius == 5.0
    assert (ef.metrics.component_count(run) == 1).all()
    assert (ef.metrics.component_count(start) == 1).all()
    assert ef.components(start).max() == 0
    assert ef.radius_graph(start).degrees.min() >= 2
    heard = ef.observe(start, ef.paper_senses("mean", 3))
    assert (heard == ef.observe(start, ef.paper_senses("mean", 3), comm_radius=5.0)).all()
    assert (heard != ef.observe(start, ef.paper_senses("mean", 3), comm_radius=1.0)).any()
    said = ef.simulate(start, ef.load("tanner-dynamic"), comm_radius=1.0, duration=0.05, ending=ef.UntilDisconnected())
    assert said.comm_radius == said.flock().comm_radius == 1.0
    assert said.outcome == (Outcome.DISCONNECTED,) * 2
