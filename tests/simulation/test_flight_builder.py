"""Flights are built from their parts: another body, other senses, another ending."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.flock import Flock
from equiflock.simulation.flight_builder import make_decision_function
from tests.simple import Push


class Slow:
    """A body with a largest speed, that moves by its velocity alone."""

    def __init__(self, max_speed: float) -> None:
        self.max_speed = max_speed

    def advance(self, step: ef.BodyStep) -> None:
        positions, velocities, active, time_step = step.positions, step.velocities, step.active, step.time_step
        velocities[active] += step.accelerations[active] * time_step
        speeds = np.sqrt(np.square(velocities).sum(axis=-1, keepdims=True))
        velocities *= self.max_speed / np.maximum(speeds, self.max_speed)
        positions[active] += velocities[active] * time_step


def test_another_body_moves_agents_differently() -> None:
    run = ef.simulate(ef.random_disk(2, 30), ef.load("tanner"), body=Slow(0.5), duration=0.3)
    assert np.sqrt(np.square(run.velocities[1:]).sum(axis=-1)).max() <= 0.5 + 1e-12
    assert run.config["body"] == {"kind": "Slow", "max_speed": 0.5}


def test_the_double_integrator_is_the_default_body() -> None:
    start = ef.random_disk(1, 30)
    runs = [
        ef.simulate(start, ef.load("tanner"), duration=0.1, **more) for more in ({}, {"body": ef.DoubleIntegrator()})
    ]
    assert np.array_equal(runs[0].positions, runs[1].positions)
    assert runs[0].config["body"] == {"kind": "DoubleIntegrator", **dataclasses.asdict(ef.DoubleIntegrator())}


@pytest.mark.parametrize("body", [ef.DoubleIntegrator, 3.0, "fast"])
def test_invalid_bodies_raise_errors(body: Any) -> None:
    with pytest.raises(InputError, match=r"body must be an object with advance\(\), such as"):
        ef.simulate(ef.random_disk(1, 30), ef.load("tanner"), body=body)


def test_senses_may_have_another_topology_than_a_controller_declares_but_no_other_channels() -> None:
    start = ef.random_disk(1, 30)
    fixed = ef.paper_senses("mean", hops=2, topology="fixed")
    assert next(ef.flight(start, Push(), senses=fixed)).observations.shape == (1, 30, 2, 3, 2)
    with pytest.raises(InputError, match="the controller needs the channels, hops and units of Senses"):
        ef.flight(start, Push(), senses=ef.Senses((("velocity", "sum"),), hops=2))


def test_a_saved_flight_has_its_parts_in_its_config() -> None:
    course = ef.ObstacleCourse(ef.RandomDisk(1, 30, min_degree=1), sides=6)
    run = ef.simulate(
        course.draw(), ef.load("etdagnn"), duration=0.05, ending=course.ending(), orbit=course.orbit, obstacles="all"
    )
    assert run.config["ending"] == {
        "kind": "UntilPassed",
        "comm_radius": None,
        "min_separation": 0.1,
        "clear_time": 1.0,
        "obstacle_node": "one",
        "awareness": "followers",
    }
    assert run.config["orbit"]["gravity_break"] == 0.5
    assert run.config["obstacles"] == "all"
    assert run.config["senses"]["channels"][0] == ["velocity", "mean"]


def test_only_a_compiled_network_is_independent_of_the_order_of_agents() -> None:
    assert make_decision_function(ef.load("etdagnn"), 0.01).compiled
    assert not make_decision_function(ef.load("tanner"), 0.01).compiled
    assert not make_decision_function(ef.load("tanner-dynamic"), 0.01).compiled


def test_an_ending_may_add_an_outcome(tmp_path: Any, own_registry: None) -> None:
    calm = ef.Outcome.add("CALM", "the flock came to rest")

    def until_calm(time: float, flock: Flock, flying: Any) -> Any:
        return np.where(ef.metrics.velocity_variance(flock) < 1.0, calm, ef.Outcome.FLYING)

    run = ef.simulate(ef.random_disk(2, 30), ef.load("tanner"), ending=until_calm, duration=2.0)
    assert run.outcome == (calm, calm)
    assert str(run.outcome[0]) == "the flock came to rest"
    again = ef.Trajectory.load(run.save(tmp_path / "run.zarr"))
    assert again.outcome == run.outcome
    assert again.config["ending"] == {"kind": "until_calm"}


def test_groups_fly_along_and_are_kept(tmp_path: Any) -> None:
    drawn = ef.random_disk(1, 30)
    start = Flock(drawn.positions, drawn.velocities, groups=np.arange(30)[None] % 3)
    run = ef.simulate(start, ef.load("tanner"), duration=0.05)
    assert np.array_equal(ef.Trajectory.load(run.save(tmp_path / "run.zarr")).groups, start.groups)
    assert np.array_equal(
        next(itertools.islice(ef.flight(start, ef.load("etdagnn")), 2, None)).flock.groups, start.groups
    )
