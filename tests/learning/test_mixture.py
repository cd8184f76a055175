"""Trainings with different experts, students and scenarios."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.controllers.loading import make_network
from equiflock.learning.dagger import Trainer
from equiflock.learning.mixture import Mixture
from tests.learning.small import small

pytestmark = pytest.mark.usefixtures("own_registry")


def test_a_student_with_a_fixed_topology_observes_its_initial_neighbours() -> None:
    class Loyal(torch.nn.Module):
        senses = ef.paper_senses("sum", hops=1, topology="fixed")

        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            return observations[:, :, 0, 0]

    start = ef.random_disk(1, 20)
    student: Any = Loyal()
    mixture = Mixture(ef.load("tanner"), student, 1.0, np.random.default_rng(0), 0.01)
    mixed, alone = (
        list(itertools.islice((m.observations.copy() for m in ef.flight(start, controller, time_step=0.2)), 4))
        for controller in (mixture, ef.load("tanner-fixed"))
    )
    assert mixture.senses.topology == "fixed"
    assert np.array_equal(mixed[0], alone[0])
    degrees = [np.count_nonzero(np.abs(each).sum(axis=(2, 3, 4))) for each in mixed]
    assert degrees == [20] * 4  # agents keep their neighbours of t = 0 at any distance


def test_an_expert_may_be_local_and_brings_its_own_senses() -> None:
    @ef.controller("align", senses=ef.Senses((("velocity", "mean"),)))
    def align(observations: Any, gain: float = 2.0) -> Any:
        return -gain * observations[:, :, 0, 0]

    trainer = Trainer(small(expert="align:gain=3", controller="tdagnn-tf-mean"))
    trainer.run_epoch()
    observations, targets = (rows[: len(trainer.replay)] for rows in trainer.replay.tuples)
    np.testing.assert_allclose(targets, -3.0 * observations[:, :2], rtol=1e-6)


def test_a_privileged_expert_may_be_a_function_too() -> None:
    @ef.controller("gather", privileged=True)
    def gather(flock: ef.Flock, observations: Any) -> Any:
        return flock.positions.mean(axis=1, keepdims=True) - flock.positions

    trainer = Trainer(small(expert="gather"))
    trainer.run_epoch()
    assert np.abs(trainer.replay.tuples[1][0].mean(axis=1)).max() < 1e-5


@pytest.mark.parametrize(("scenario", "followers"), [("leaders:leaders=3", 17), ("obstacles:sides=6", 18)])
def test_only_followers_are_learned_from(scenario: str, followers: int) -> None:
    trainer = Trainer(small(scenario=scenario, min_degree=1))
    trainer.run_epoch()
    assert trainer.replay.tuples[0].shape[1:] == (18, followers)
    assert len(trainer.replay) > 0
    assert [start.scenario.name for start in trainer.validator.starts] == [scenario.partition(":")[0]]
    trainer.run_validation()


def test_a_scenario_that_ends_a_flight_ends_what_is_learned_from_it() -> None:
    @ef.scenario("short")
    @dataclass(frozen=True)
    class Short:
        disk: ef.RandomDisk = field(default_factory=ef.RandomDisk)

        def draw(self, stop: Any = None) -> ef.Flock:
            return self.disk.draw(stop)

        def ending(self) -> Any:
            return lambda times, flock, flying: times > 0.045

    trainer = Trainer(small(scenario="short"))
    trainer.run_epoch()
    assert len(trainer.replay) == 5


def test_a_network_of_one_s_own_channels_is_trained_saved_and_flown(tmp_path: Any) -> None:
    channels = (("velocity", "mean"), ("velocity", "sum"), ("inverse-square", "mean"))
    network = make_network("etdagnn", channels=channels)
    student: Any = ef.train(small(epochs=2), network)
    path = ef.save(student, tmp_path / "mine.safetensors")
    back: Any = ef.load(path)
    assert back.senses == ef.Senses(channels, hops=3)
    run = ef.simulate(ef.random_disk(1, 20), back, duration=0.05)
    assert np.isfinite(run.positions).all()


def test_options_of_a_network_are_part_of_its_name() -> None:
    @ef.controller("mixer")
    class Mixer(torch.nn.Module):
        senses = ef.Senses((("velocity", "mean"),))

        def __init__(self, width: int = 2) -> None:
            super().__init__()
            self.options = {"width": width}
            self.inner, self.outer = torch.nn.Linear(1, width, bias=False), torch.nn.Linear(width, 1, bias=False)

        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            mixed: torch.Tensor = self.outer(self.inner(observations[:, :, 0].transpose(2, 3)))
            return mixed.squeeze(-1)

    student: Any = ef.train(small(controller="mixer:width=5", epochs=2))
    assert student.inner.weight.shape == (5, 1)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"expert": "taner"}, "controller must be one of .* did you mean 'tanner'"),
        ({"scenario": "flokking"}, "scenario must be one of .* did you mean 'flocking'"),
        ({"scenario": "leaders:sides=3"}, "scenario 'leaders' has no option 'sides'; it has"),
    ],
)
def test_an_expert_or_scenario_that_is_not_there_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        Trainer(small(**options))


def test_a_scenario_keeps_its_own_defaults_where_the_recipe_has_its() -> None:
    @ef.scenario("slow")
    @dataclass(frozen=True)
    class Slow:
        disk: ef.RandomDisk = field(default_factory=lambda: ef.RandomDisk(agents=12, max_speed=0.5))

        def draw(self, stop: Any = None) -> ef.Flock:
            return self.disk.draw(stop)

    scene: Any = ef.DAgger(scenario="slow").training_scenarios[0].make_middle(3, 0, "train")
    assert (scene.disk.agents, scene.disk.max_speed, scene.disk.flocks, scene.disk.split) == (12, 0.5, 3, "train")
    changed: Any = ef.DAgger(scenario="slow", agents=20).training_scenarios[0].make_middle(3, 0, "train")
    assert changed.disk.agents == 20


def test_flights_that_end_before_their_first_step_raise_input_error() -> None:
    @ef.scenario("over")
    @dataclass(frozen=True)
    class Over:
        disk: ef.RandomDisk = field(default_factory=ef.RandomDisk)

        def draw(self, stop: Any = None) -> ef.Flock:
            return self.disk.draw(stop)

        def ending(self) -> Any:
            return lambda times, flock, flying: np.ones(len(flock), bool)

    with pytest.raises(InputError, match="every flight of 'over' ended before its first step"):
        Trainer(small(scenario="over")).run_epoch()
