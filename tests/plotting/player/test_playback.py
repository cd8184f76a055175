"""Playback of saved flights."""

from __future__ import annotations

import json

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.plotting.player.playback import Playback
from equiflock.scenarios import SearchCancelledError, Stop


def run(controller: str = "tanner", **options: object) -> ef.Trajectory:
    start = ef.random_disk(flocks=3, agents=15, seed=1)
    return ef.simulate(start, ef.load(controller), **{"duration": 0.2, **options})


def test_seek_goes_to_any_frame() -> None:
    saved = run()
    playback = Playback([saved], flock=2)
    for frame in (0, 7, 20, 3):
        playback.seek(frame)
        picture = playback.make_pictures()[0]
        assert playback.time == saved.times[frame]
        assert np.array_equal(picture.flock.positions[0], saved.positions[frame, 2])
    playback.seek(10**6)
    assert playback.step == 20
    last = playback.make_pictures()[0].accelerations
    assert last is not None
    assert np.array_equal(last[0], saved.accelerations[19, 2])  # none follow: the last ones are shown


def test_the_page_receives_the_curves_of_the_whole_flight() -> None:
    saved = run()
    to_dict = Playback([saved], flock=1).to_dict()
    variance = [numbers[0][0] for numbers in to_dict["curves"]["metric_values"]]
    assert np.allclose(variance, ef.metrics.velocity_variance(saved)[:, 1])
    assert to_dict["comm_radius"] == saved.comm_radius
    (described,) = to_dict["flights"]
    assert described.pop("overlay")["success"] is None
    assert described == {"controller": "tanner", "scenario": "", "agents": 15, "ending": ""}
    effort = [numbers[0][3] for numbers in to_dict["curves"]["metric_values"]]
    assert np.allclose(effort[:-1], ef.metrics.mean_acceleration_norm(saved)[:, 1])
    assert effort[-1] == effort[-2]  # no step follows the last frame
    json.dumps(to_dict, allow_nan=False)
    assert to_dict["times"] == saved.times.tolist()


def test_a_three_dimensional_flight_is_seen_from_above() -> None:
    start = ef.random_disk(agents=12, dimensions=3)
    picture = Playback([ef.simulate(start, ef.load("tanner"), duration=0.1)]).make_pictures()[0]
    assert picture.flock.shape == (1, 12, 3)


@pytest.mark.parametrize("count", [0, 3])
def test_one_flight_or_two_can_be_shown(count: int) -> None:
    with pytest.raises(InputError, match=f"got {count}"):
        Playback([run()] * count)


def test_two_flights_must_have_the_same_times() -> None:
    with pytest.raises(InputError, match="same times"):
        Playback([run(), run(duration=0.1)])


def test_a_flock_index_out_of_range_is_refused() -> None:
    with pytest.raises(InputError, match="flock must be below 3"):
        Playback([run()], flock=3)


def test_a_flock_whose_flight_has_ended_stands_still() -> None:
    course = ef.ObstacleCourse(ef.RandomDisk(agents=30), sides=12).draw()
    saved = ef.simulate(course, ef.load("etdagnn"), duration=6.0, ending=ef.UntilPassed(clear_time=0.01))
    last = int(saved.steps[0])
    assert 0 < last < 600
    playback = Playback([saved])
    to_dict = playback.to_dict()
    assert to_dict["flights"][0]["ending"] == f"{saved.outcome[0]} at {last * 0.01:.2f} s"
    assert len(to_dict["times"]) == last + 1  # what comes after is no flight any more
    for frame, has_ended in ((last - 1, False), (last, True), (600, True)):
        playback.seek(frame)
        picture = playback.make_pictures()[0]
        assert picture.has_ended is has_ended
        assert picture.accelerations is not None
        assert np.array_equal(picture.accelerations, saved.accelerations[last - 1])
    assert playback.step == last


def test_two_flights_are_shown_until_both_have_ended() -> None:
    course = ef.ObstacleCourse(ef.RandomDisk(agents=30), sides=12).draw()
    ended = ef.simulate(course, ef.load("etdagnn"), duration=6.0, ending=ef.UntilPassed(clear_time=0.01))
    whole = ef.simulate(course, ef.load("etdagnn"), duration=6.0)
    to_dict = Playback([ended, whole]).to_dict()
    assert len(to_dict["times"]) == 601
    assert to_dict["flights"][1]["ending"] == ""


def test_the_scenario_of_a_flight_is_sent_without_its_options() -> None:
    to_dict = Playback([run(config={"controller": "tanner", "scenario": "obstacles:sides=48"})]).to_dict()
    assert to_dict["flights"][0]["scenario"] == "obstacles"


def test_the_measurement_of_a_flight_can_be_cancelled() -> None:
    stop = Stop()
    stop.set()
    playback = Playback([run()])
    with pytest.raises(SearchCancelledError):
        playback.to_dict(stop)


def test_held_accelerations_reproduce_the_motion_of_bodies() -> None:
    body = ef.Unicycle(max_turn_rate=3.0, max_acceleration=2.0)
    run = ef.simulate(ef.random_disk(agents=20), ef.load("tanner"), body=body, duration=0.1)
    shown = Playback([run])
    for frame in range(11):
        shown.seek(frame)
        (picture,) = shown.make_pictures()
        if frame < 10:
            assert picture.held_accelerations is not None
            # The page's own formula, at the end of the step: where the body took the agent, and its velocity there.
            at_end = run.positions[frame] + (run.velocities[frame] + 0.5 * picture.held_accelerations * 0.01) * 0.01
            np.testing.assert_allclose(at_end, run.positions[frame + 1], rtol=1e-13)
            np.testing.assert_allclose(
                run.velocities[frame] + picture.held_accelerations * 0.01, run.velocities[frame + 1], atol=1e-9
            )
    assert not np.any(picture.held_accelerations)
