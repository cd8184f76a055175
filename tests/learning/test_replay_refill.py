"""Repeated rollouts refill the replay with the same bits, or the user receives a notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.learning import checkpoints as replay_refill
from equiflock.learning.checkpoints import read_checkpoint, refill, write_checkpoint
from equiflock.learning.dagger import Trainer
from tests.learning.small import small

pytestmark = pytest.mark.usefixtures("own_registry")

EPOCHS = 7


def register_own_parts() -> None:
    """A module with all that a module may have, and a scenario whose flights are all of other lengths."""

    @ef.controller("restless")
    class Restless(torch.nn.Module):
        senses = ef.paper_senses("mean", hops=1)

        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(3)
            self.drop = torch.nn.Dropout(0.5)
            self.mix = torch.nn.Linear(3, 1, bias=False)

        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            inputs = observations[:, :, 0].transpose(2, 3)
            inputs = self.drop(self.norm(inputs.reshape(-1, 3)).reshape(inputs.shape))
            # Noise in flights too, which only torch's seed repeats.
            return self.mix(inputs).squeeze(-1) + 0.1 * torch.randn(inputs.shape[:-1])

    register_scenario(lambda speed: 0.005 + 0.05 * (speed % 1.0))


def register_scenario(longest: Callable[[float], float]) -> None:
    """A scenario whose flights end after a time that depends on the flock."""

    @ef.scenario("uneven")
    @dataclass(frozen=True)
    class Uneven:
        disk: ef.RandomDisk = field(default_factory=ef.RandomDisk)

        def draw(self, stop: Any = None) -> ef.Flock:
            return self.disk.draw(stop)

        def ending(self) -> Any:
            speeds: list[float] = []  # of the first agent at the beginning

            def end(time: float, flock: ef.Flock, flying: Any) -> Any:
                speeds.append(float(np.abs(flock.velocities[0, 0]).sum()))
                return np.full(len(flock), time > longest(speeds[0]))

            return end


def trained(recipe: ef.DAgger) -> Trainer:
    trainer = Trainer(recipe)
    for _ in range(EPOCHS):
        trainer.run_epoch()
    return trainer


def continued(trainer: Trainer, path: Path, notice: Callable[[str], object] = pytest.fail) -> Trainer:
    other = Trainer(trainer.recipe)
    read_checkpoint(write_checkpoint(trainer, path), other)
    refill(other, notice)
    return other


OPTIONS: list[dict[str, Any]] = [
    {},
    {"controller": "tdagnn", "expert_share": 0.0, "least_expert_share": 0.0},
    {"capacity": 7},
    {"capacity": 1000},
    {"scenario": "leaders:leaders=3", "min_degree": 1},
    {"scenario": "obstacles:sides=6", "min_degree": 1},
    {"scenario": "uneven", "flocks": 30, "capacity": 11},
    {"scenario": "2*uneven+1*leaders:leaders=1-3", "agents": "15-25", "disk_scale": "0.6-1", "schedule": "cosine"},
    {"controller": "restless", "expert_share": 0.5},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_replay_is_as_it_was_and_so_is_every_epoch_after_it(options: dict[str, Any], tmp_path: Path) -> None:
    register_own_parts()
    one = trained(small(epochs=20, **options))
    two = continued(one, tmp_path / "checkpoint.safetensors")
    assert two.epoch == EPOCHS
    assert list(two.rollouts) == list(one.rollouts)
    assert two.replay.total_added == one.replay.total_added
    for again, before in zip(two.replay.tuples, one.replay.tuples, strict=True):
        assert np.array_equal(again, before)
    for _ in range(3):
        assert one.run_epoch().loss == two.run_epoch().loss
    for a, b in zip(one.network.state_dict().values(), two.network.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_flights_of_the_uneven_scenario_have_different_lengths() -> None:
    register_own_parts()
    lengths = [rollout.tuples for rollout in trained(small(scenario="uneven", flocks=30, capacity=1000)).rollouts]
    assert len(set(lengths)) > 2


def test_rollouts_that_differ_cause_a_notice_and_the_training_continues(tmp_path: Path) -> None:
    one = trained(small(epochs=20))
    whole = list(one.rollouts)
    one.rollouts.clear()
    for rollout in whole:
        one.rollouts.add(replace(rollout, checksum=rollout.checksum ^ 1))  # as if another machine had flown them
    said: list[str] = []
    two = continued(one, tmp_path / "checkpoint.safetensors", said.append)
    assert len(said) == 1
    assert "repeated, differ from the original ones: the result will differ" in said[0]
    assert list(two.rollouts) == whole  # the next checkpoint is of the flights as they are now
    two.run_epoch()


@pytest.mark.parametrize(("then", "now"), [(0.095, 0.045), (0.045, 0.095)])
def test_flights_that_became_shorter_or_longer_leave_no_hole(then: float, now: float, tmp_path: Path) -> None:
    longest = then
    register_scenario(lambda speed: longest)
    one = trained(small(epochs=20, scenario="uneven", capacity=35))
    said: list[str] = []
    longest = now
    two = continued(one, tmp_path / "checkpoint.safetensors", said.append)
    assert len(said) == 1
    targets = two.replay.tuples[1][: len(two.replay)]
    assert len(targets) == min(35, sum(rollout.tuples for rollout in two.rollouts))
    assert np.abs(targets).sum(axis=(1, 2)).all()
    two.run_epoch()


def test_a_flight_that_fails_now_is_refused_in_one_line(tmp_path: Path) -> None:
    size = 1.0

    @ef.controller("rocket", privileged=True)
    def rocket(flock: ef.Flock, observations: Any) -> Any:
        return np.full_like(flock.positions, size)

    one = trained(small(epochs=20, expert="rocket"))
    size = 1e30
    text = r"the rollout of epoch 3 cannot be repeated: .* off the scale"
    with pytest.raises(InputError, match=text):
        continued(one, tmp_path / "checkpoint.safetensors")


def test_slow_rollouts_cause_a_progress_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_refill, "NOTICE_DELAY", -1.0)
    said: list[str] = []
    continued(trained(small(epochs=20)), tmp_path / "checkpoint.safetensors", said.append)
    assert said == ["repeating the last 5 rollouts, 1 done so far"]
