"""An environment is radio, body and failures; its settings restore it and identify its results."""

from __future__ import annotations

import json
from typing import Any

import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.bodies import body_names, make_body
from equiflock.evaluation.evaluate import build_evaluation_jobs
from equiflock.evaluation.sweep import SweepJob
from equiflock.simulation import flight_jobs
from equiflock.simulation.environment import FAILURE_OPTIONS, RADIO_OPTIONS, World, describe_environment, make_world

WORLDS: list[dict[str, Any]] = [
    {},
    {"packet_loss": 0.2, "burst": 3.0, "delay": 1, "jitter": 2, "noise": 0.01, "quantization": 16},
    {"send_interval": 2, "last_known": 5, "radio_seed": 7},
    {"fail": 5, "fail_kind": "silent", "fail_time": 1.0, "fail_rate": 0.01, "fail_seed": 3},
    {"max_acceleration": 5.0, "top_speed": 3.0, "drag": 0.1, "lag": 1e-5, "gust": 0.25, "body_seed": 4},
    {"body": "unicycle:max_turn_rate=2", "top_speed": 4.0, "packet_loss": 1.0},
]


def test_every_field_of_radio_and_failures_is_an_option_of_a_world() -> None:
    assert set(RADIO_OPTIONS.values()) == set(ef.Radio.__dataclass_fields__)
    assert set(FAILURE_OPTIONS.values()) == set(ef.Failures.__dataclass_fields__)
    assert not set(RADIO_OPTIONS) & set(FAILURE_OPTIONS)


@pytest.mark.parametrize("options", WORLDS)
def test_the_settings_of_a_world_make_it_again_after_json(options: dict[str, Any]) -> None:
    world = make_world(**options)
    assert make_world(**json.loads(json.dumps(world.settings))) == world
    assert (world.settings == {}) == (options == {})


def test_options_set_fields_of_their_parts() -> None:
    assert make_world(**WORLDS[1]).radio == ef.Radio(
        packet_loss=0.2, burst=3.0, delay=1, jitter=2, noise=0.01, quantization=16
    )
    assert make_world(**WORLDS[2]).radio == ef.Radio(send_interval=2, last_known=5, seed=7)
    assert make_world(**WORLDS[3]).failures == ef.Failures("silent", agents=5, time=1.0, rate=0.01, seed=3)
    assert make_world(**WORLDS[4]).body == ef.DoubleIntegrator(5.0, 3.0, 0.1, 1e-5, 0.25, seed=4)
    assert make_world(**WORLDS[5]).body == ef.Unicycle(max_turn_rate=2.0, max_speed=4.0)


def test_the_same_world_has_the_same_text_however_it_was_given() -> None:
    ways = (
        make_world(body="double-integrator:max_acceleration=5"),
        make_world(max_acceleration=5.0),
        make_world(body="double-integrator", max_acceleration=5.0, lag=0.0, packet_loss=0.0),
    )
    assert {repr(world) for world in ways} == {"World(body='double-integrator:max_acceleration=5')"}


def test_flight_options_are_the_parts_and_none_for_parts_without_effect() -> None:
    assert World().flight_options == {"radio": None, "body": ef.DoubleIntegrator(), "failures": None}
    assert make_world(radio_seed=3, fail_kind="silent").flight_options == World().flight_options
    world = make_world(packet_loss=0.1, fail=1, lag=0.1)
    assert world.flight_options == {"radio": world.radio, "body": world.body, "failures": world.failures}


def test_results_in_other_worlds_have_other_names() -> None:
    jobs = [SweepJob("tanner", 0, 10, 1.0, None, world=make_world(**options)) for options in WORLDS]
    assert len({job.key for job in jobs}) == len({repr(job) for job in jobs}) == len(WORLDS)
    assert all(len(job.key) < 150 and not set(":/ ") & set(job.key) for job in jobs)


def test_a_job_that_flies_hands_its_world_to_the_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def watched(*parts: Any, **arguments: Any) -> ef.Trajectory:
        given.update(arguments)
        return ef.simulate(*parts, **arguments)

    monkeypatch.setattr(flight_jobs, "simulate", watched)
    settings: dict[str, Any] = {"options": {"agents": 10}, "time_step": 0.01, "duration": 0.1, "baselines": ()}
    (job,) = build_evaluation_jobs("tanner", "flocking", **settings, world={"packet_loss": 0.5, "fail": 2, "lag": 0.1})
    job.fly(job.draw_start())
    assert given["radio"] == ef.Radio(packet_loss=0.5)
    assert given["failures"] == ef.Failures(agents=2)
    assert given["body"] == ef.DoubleIntegrator(lag=0.1)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, ""),
        (
            {"packet_loss": 0.2, "delay": 1, "max_acceleration": 5.0, "fail": 5, "fail_time": 1.0},
            "20% packet loss, 1 step of delay; at most 5 of acceleration; 5 agents stop at 1 s",
        ),
        (WORLDS[1], "20% packet loss, in bursts of 3 steps, 1 to 3 steps of delay, noise of 0.01, 16 bits per number"),
        (WORLDS[2], "a message every 2 steps, messages kept for 5 steps"),
        (WORLDS[3], "5 agents fall silent at 1 s, agents fall silent at a rate of 0.01 per second"),
        ({"fail": 1, "fail_kind": "drifting"}, "1 agent drifts uncontrolled at 0 s"),
        (
            WORLDS[4],
            "at most 5 of acceleration, at most 3 of speed, drag of 0.1 per second, 1e-05 s of lag, gusts of 0.25",
        ),
        (WORLDS[5], "100% packet loss; unicycle, at most 2 rad/s of turning, at most 4 of speed"),
    ],
)
def test_an_environment_is_described_as_text(options: dict[str, Any], text: str) -> None:
    assert describe_environment(make_world(**options)) == text


@pytest.mark.parametrize("name", body_names())
def test_every_body_is_made_by_its_name(name: str) -> None:
    assert make_world(body=f"{name}:max_speed=3").body == make_body(name, max_speed=3)


def test_agents_cannot_fail_after_the_end_nor_more_of_them_than_there_are() -> None:
    world = make_world(fail=4, fail_time=1.5)
    world.check_duration(1.5)
    with pytest.raises(InputError, match=r"fail_time must be at most the duration, 1 s; got 1\.5"):
        world.check_duration(1.0)
    start = ef.make_scenario("leaders", agents=6, leaders=2).draw()
    world.check_start(start)
    with pytest.raises(InputError, match="fail must be at most the number of followers, 4; got 5"):
        make_world(fail=5).check_start(start)
