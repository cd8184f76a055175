"""An environment is radio, body and failures; its settings restore it and identify its results."""

from __future__ import annotations

import doctest
import json
from itertools import islice
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.bodies import body_names, make_body
from equiflock.evaluation.evaluate import build_evaluation_jobs
from equiflock.evaluation.sweep import SweepJob
from equiflock.simulation import environment as environment_module
from equiflock.simulation import flight_jobs
from equiflock.simulation.environment import FAILURE_OPTIONS, RADIO_OPTIONS, Environment, describe_environment

OPTIONS: list[dict[str, Any]] = [
    {},
    {"packet_loss": 0.2, "burst": 3.0, "delay": 1, "jitter": 2, "noise": 0.01, "quantization": 16},
    {"send_interval": 2, "last_known": 5, "radio_seed": 7},
    {"fail": 5, "fail_kind": "silent", "fail_time": 1.0, "fail_rate": 0.01, "fail_seed": 3},
    {"max_acceleration": 5.0, "top_speed": 3.0, "drag": 0.1, "lag": 1e-5, "gust": 0.25, "body_seed": 4},
    {"body": "unicycle:max_turn_rate=2", "top_speed": 4.0, "packet_loss": 1.0},
]


def test_every_field_of_radio_and_failures_is_an_option_of_an_environment() -> None:
    assert set(RADIO_OPTIONS.values()) == set(ef.Radio.__dataclass_fields__)
    assert set(FAILURE_OPTIONS.values()) == set(ef.Failures.__dataclass_fields__)
    assert not set(RADIO_OPTIONS) & set(FAILURE_OPTIONS)


@pytest.mark.parametrize("options", OPTIONS)
def test_the_settings_of_an_environment_make_it_again_after_json(options: dict[str, Any]) -> None:
    environment = Environment.from_options(**options)
    assert Environment.from_options(**json.loads(json.dumps(environment.settings))) == environment
    assert (environment.settings == {}) == (options == {})


def test_options_set_fields_of_their_parts() -> None:
    built = [Environment.from_options(**options) for options in OPTIONS]
    assert built[1].radio == ef.Radio(packet_loss=0.2, burst=3.0, delay=1, jitter=2, noise=0.01, quantization=16)
    assert built[2].radio == ef.Radio(send_interval=2, last_known=5, seed=7)
    assert built[3].failures == ef.Failures("silent", agents=5, time=1.0, rate=0.01, seed=3)
    assert built[4].body == ef.DoubleIntegrator(5.0, 3.0, 0.1, 1e-5, 0.25, seed=4)
    assert built[5].body == ef.Unicycle(max_turn_rate=2.0, max_speed=4.0)


def test_the_same_environment_has_the_same_text_however_it_was_given() -> None:
    ways = (
        Environment.from_options(body="double-integrator:max_acceleration=5"),
        Environment.from_options(max_acceleration=5.0),
        Environment.from_options(body="double-integrator", max_acceleration=5.0, lag=0.0, packet_loss=0.0),
    )
    assert {repr(environment) for environment in ways} == {"Environment(body=DoubleIntegrator(max_acceleration=5))"}


@pytest.mark.parametrize("options", OPTIONS)
def test_the_text_of_an_environment_makes_it_again(options: dict[str, Any]) -> None:
    environment = Environment.from_options(**options)
    assert eval(repr(environment), vars(ef.api)) == environment


def test_the_example_in_the_docstring_runs() -> None:
    assert doctest.testmod(environment_module).attempted > 0
    assert doctest.testmod(environment_module).failed == 0


PARTS: list[dict[str, Any]] = [
    {},
    {"radio": ef.Radio(packet_loss=0.3, delay=1, noise=0.01)},
    {"body": ef.DoubleIntegrator(max_acceleration=5.0, gust=0.5)},
    {"failures": ef.Failures("silent", agents=3, time=0.05)},
    {"radio": ef.Radio(packet_loss=0.1), "body": ef.Unicycle(max_turn_rate=4.0), "failures": ef.Failures(rate=1.0)},
]


@pytest.mark.parametrize("parts", PARTS)
def test_shorthands_and_the_environment_give_the_same_bits(parts: dict[str, Any]) -> None:
    start, controller = ef.random_disk(flocks=2, agents=12), ef.load("etdagnn")
    first, *rest = parts or {"radio": None}
    ways: list[dict[str, Any]] = [
        parts,
        {"environment": ef.Environment(**parts)},
        # One part as a shorthand, the others in the environment.
        {first: parts.get(first), "environment": ef.Environment(**{name: parts[name] for name in rest})},
    ]
    expected, *others = (ef.simulate(start, controller, duration=0.2, **way) for way in ways)
    for run in others:
        assert np.array_equal(run.positions, expected.positions)
        assert np.array_equal(run.conditions, expected.conditions)
        assert run.config == expected.config
    flights = [ef.flight(start, controller, **way) for way in ways]
    for moments in islice(zip(*flights, strict=True), 10):
        assert len({moment.flock.positions.tobytes() for moment in moments}) == 1


def test_an_ideal_environment_needs_no_message_buffer_and_keeps_the_fused_step() -> None:
    start, controller = ef.random_disk(flocks=1, agents=12), ef.load("etdagnn")
    for environment in (None, ef.Environment(), ef.Environment(radio=ef.Radio(seed=3), failures=ef.Failures("silent"))):
        flight = ef.flight(start, controller, environment=environment)
        next(flight)
        assert flight.sensing.message_buffer is None  # type: ignore[attr-defined]
        assert flight._fused is not None
    config = ef.simulate(start, controller, duration=0.1, environment=environment).config
    assert (config["radio"], config["failures"]) == (None, None)


@pytest.mark.parametrize("function", [ef.flight, ef.simulate])
@pytest.mark.parametrize(("name", "part"), [(name, part) for parts in PARTS[1:4] for name, part in parts.items()])
def test_a_part_cannot_be_given_both_ways(function: Any, name: str, part: Any) -> None:
    with pytest.raises(InputError, match=f"^{name} is given twice, in environment= and as {name}=: leave out one"):
        function(
            ef.random_disk(flocks=1, agents=12),
            ef.load("tanner"),
            environment=ef.Environment(**{name: part}),
            **{name: part},
        )


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ef.Environment(radio=0.2), r"radio must be a Radio, such as .*; got 0.2"),  # type: ignore[arg-type]
        (lambda: ef.Environment(body=ef.Unicycle), r"body must be an object with advance\(\), such as .*; got"),
        (lambda: ef.Environment(failures=5), r"failures must be a Failures, such as .*; got 5"),  # type: ignore[arg-type]
        (
            lambda: ef.flight(ef.random_disk(flocks=1, agents=12), ef.load("tanner"), environment={"delay": 1}),  # type: ignore[arg-type]
            r"environment must be an Environment, such as .*; got \{'delay': 1\}",
        ),
    ],
)
def test_an_invalid_part_is_refused(make: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        make()


def test_none_stands_for_the_default_of_a_part() -> None:
    assert ef.Environment(radio=None, body=None, failures=None) == ef.Environment()  # type: ignore[arg-type]


def test_results_in_other_environments_have_other_names() -> None:
    environments = [Environment.from_options(**options) for options in OPTIONS]
    jobs = [SweepJob("tanner", 0, 10, 1.0, None, environment=environment) for environment in environments]
    assert len({job.key for job in jobs}) == len({repr(job) for job in jobs}) == len(OPTIONS)
    assert all(len(job.key) < 150 and not set(":/ ") & set(job.key) for job in jobs)


def test_a_job_that_flies_hands_its_environment_to_the_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def watched(*parts: Any, **arguments: Any) -> ef.Trajectory:
        given.update(arguments)
        return ef.simulate(*parts, **arguments)

    monkeypatch.setattr(flight_jobs, "simulate", watched)
    settings: dict[str, Any] = {"options": {"agents": 10}, "time_step": 0.01, "duration": 0.1, "baselines": ()}
    options = {"packet_loss": 0.5, "fail": 2, "lag": 0.1}
    (job,) = build_evaluation_jobs("tanner", "flocking", **settings, environment=options)
    job.fly(job.draw_start())
    assert given["environment"] == ef.Environment(
        ef.Radio(packet_loss=0.5), ef.DoubleIntegrator(lag=0.1), ef.Failures(agents=2)
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, ""),
        (
            {"packet_loss": 0.2, "delay": 1, "max_acceleration": 5.0, "fail": 5, "fail_time": 1.0},
            "20% packet loss, 1 step of delay; at most 5 of acceleration; 5 agents stop at 1 s",
        ),
        (OPTIONS[1], "20% packet loss, in bursts of 3 steps, 1 to 3 steps of delay, noise of 0.01, 16 bits per number"),
        (OPTIONS[2], "a message every 2 steps, messages kept for 5 steps"),
        (OPTIONS[3], "5 agents fall silent at 1 s, agents fall silent at a rate of 0.01 per second"),
        ({"fail": 1, "fail_kind": "drifting"}, "1 agent drifts uncontrolled at 0 s"),
        (
            OPTIONS[4],
            "at most 5 of acceleration, at most 3 of speed, drag of 0.1 per second, 1e-05 s of lag, gusts of 0.25",
        ),
        (OPTIONS[5], "100% packet loss; unicycle, at most 2 rad/s of turning, at most 4 of speed"),
    ],
)
def test_an_environment_is_described_as_text(options: dict[str, Any], text: str) -> None:
    assert describe_environment(Environment.from_options(**options)) == text


@pytest.mark.parametrize("name", body_names())
def test_every_body_is_made_by_its_name(name: str) -> None:
    built = Environment.from_options(body=f"{name}:max_acceleration=3").body
    assert built == make_body(name, max_acceleration=3)


def test_agents_cannot_fail_after_the_end_nor_more_of_them_than_there_are() -> None:
    environment = Environment.from_options(fail=4, fail_time=1.5)
    environment.check_duration(1.5)
    with pytest.raises(InputError, match=r"fail_time must be at most the duration, 1 s; got 1\.5"):
        environment.check_duration(1.0)
    start = ef.make_scenario("leaders", agents=6, leaders=2).draw()
    environment.check_start(start)
    with pytest.raises(InputError, match="fail must be at most the number of followers, 4; got 5"):
        Environment.from_options(fail=5).check_start(start)
