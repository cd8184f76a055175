"""Learning rate schedules, for both learners and in resumed trainings."""

from __future__ import annotations

import json
import math
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import tyro

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.controllers.loading import make_network
from equiflock.learning.checkpoints import read_checkpoint, write_checkpoint
from equiflock.learning.dagger import Trainer
from equiflock.learning.learner import CompiledLearner, TorchLearner
from equiflock.learning.training import train
from equiflock.learning.training_run import TrainingRun
from tests.learning.small import small
from tests.learning.test_training_run import Stop, assert_same_results, stop_after

FALLING: dict[str, Any] = {"schedule": "cosine", "warm_up": 2, "final_learning_rate": 0.1, "learning_rate": 1e-3}


def rates(**options: Any) -> list[float]:
    recipe = ef.DAgger(**{"learning_rate": 1.0, **options})
    return [recipe.compute_learning_rate(epoch) for epoch in range(recipe.epochs)]


def test_by_default_every_epoch_has_the_same_rate() -> None:
    assert set(rates(learning_rate=5e-5)) == {5e-5}


def test_a_linear_schedule_falls_by_the_same_amount_each_epoch_and_would_be_at_its_end_after_the_last() -> None:
    assert rates(epochs=4, schedule="linear") == [1.0, 0.75, 0.5, 0.25]
    assert rates(epochs=4, schedule="linear", final_learning_rate=0.2) == pytest.approx([1.0, 0.8, 0.6, 0.4])


def test_a_cosine_schedule_is_half_a_wave() -> None:
    found = rates(epochs=8, schedule="cosine", final_learning_rate=0.5)
    assert found == pytest.approx([0.75 + 0.25 * math.cos(math.pi * epoch / 8) for epoch in range(8)])
    assert found[0] == 1.0
    assert found[4] == pytest.approx(0.75)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_a_warm_up_grows_linearly_to_the_full_rate(schedule: str) -> None:
    found = rates(epochs=20, warm_up=4, schedule=schedule)
    assert found[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert found[4:] == pytest.approx(rates(epochs=16, schedule=schedule))


def test_rates_only_fall_after_the_warm_up_and_none_is_nothing() -> None:
    for schedule in ("linear", "cosine"):
        found = rates(schedule=schedule, warm_up=10)
        assert all(one > two > 0.0 for one, two in pairwise(found[10:]))


class Linear(torch.nn.Module):
    senses = ef.paper_senses("mean", hops=1)

    def __init__(self) -> None:
        super().__init__()
        self.mix = torch.nn.Linear(3, 1, bias=False)
        torch.nn.init.constant_(self.mix.weight, 0.1)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        mixed: torch.Tensor = self.mix(observations[:, :, 0].transpose(2, 3))
        return mixed.squeeze(-1)


def compiled() -> torch.nn.Module:
    return make_network("etdagnn")


@pytest.mark.parametrize(("make", "learner"), [(Linear, TorchLearner), (compiled, CompiledLearner)])
def test_steps_are_as_large_as_the_rate_of_their_epoch_says(make: Any, learner: type) -> None:
    def first_steps(**options: Any) -> torch.Tensor:
        """The change of weights by one step of Adam, which is as large as the rate whatever the gradient."""
        trainer = Trainer(small(updates=1, **options), make())
        assert isinstance(trainer.learner, learner)
        before = torch.cat([each.detach().flatten().clone() for each in trainer.network.parameters()])
        trainer.run_epoch()
        return torch.cat([each.detach().flatten() for each in trainer.network.parameters()]) - before

    usual, third = first_steps(learning_rate=3e-3), first_steps(learning_rate=3e-3, warm_up=2)
    assert usual.abs().max() == pytest.approx(3e-3, rel=1e-3)
    torch.testing.assert_close(third, usual / 3, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("make", [Linear, compiled])
def test_a_trainer_from_a_checkpoint_goes_on_with_the_same_bits(make: Any, tmp_path: Path) -> None:
    one, two = Trainer(small(**FALLING, capacity=1), make()), Trainer(small(**FALLING, capacity=1), make())
    for _ in range(3):
        one.run_epoch()
    read_checkpoint(write_checkpoint(one, tmp_path / "checkpoint.safetensors"), two)
    two.replay.tuples[0][:], two.replay.tuples[1][:], two.replay.total_added = (
        *one.replay.tuples,
        one.replay.total_added,
    )
    while one.epoch < 6:
        assert one.run_epoch().loss == two.run_epoch().loss
    for a, b in zip(one.network.parameters(), two.network.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_training_that_was_stopped_goes_on_to_the_same_bits_and_other_bits_than_without_a_schedule(
    tmp_path: Path,
) -> None:
    whole, two = (TrainingRun.create(tmp_path / name, small(**FALLING)) for name in ("whole", "two"))
    whole.train()
    with pytest.raises(Stop):
        two.train(stop_after(3))
    TrainingRun(two.folder).train()
    assert_same_results(two.folder, whole.folder)
    usual, ours = train(small(learning_rate=1e-3)), train(small(**FALLING))
    assert any((a != b).any() for a, b in zip(usual.parameters(), ours.parameters(), strict=True))


def test_a_training_whose_rates_depend_on_its_number_of_epochs_is_not_prolonged(tmp_path: Path) -> None:
    run = TrainingRun.create(tmp_path / "run", small(**FALLING))
    text = "the cosine schedule of .* has 6 epochs and cannot be extended: start a new training .* with --from"
    for epochs in (5, 7):
        with pytest.raises(InputError, match=text):
            run.check_epochs(epochs)
        with pytest.raises(InputError, match=text):
            run.extend_epochs(epochs)
    run.extend_epochs(6)
    # Nor by whoever writes the config.
    trainer = Trainer(small(**FALLING))
    path = write_checkpoint(trainer, tmp_path / "checkpoint.safetensors")
    with pytest.raises(InputError, match=r"written by another training: .*epochs"):
        read_checkpoint(path, Trainer(small(**{**FALLING, "epochs": 8})))


def test_a_warm_up_alone_may_be_prolonged(tmp_path: Path) -> None:
    whole = TrainingRun.create(tmp_path / "whole", small(warm_up=3))
    whole.train()
    two = TrainingRun.create(tmp_path / "two", small(warm_up=3, epochs=2))
    two.train()
    two.extend_epochs(6)
    two.train()
    assert_same_results(two.folder, whole.folder)


def test_the_command_and_the_settings_are_understood_as_the_recipe() -> None:
    recipe = ef.DAgger(**FALLING, average=0.98)
    arguments = shlex.split(recipe.command)[2:]
    assert tyro.cli(ef.DAgger, args=arguments) == recipe
    assert ef.DAgger.from_settings(json.loads(json.dumps(recipe.settings)), "config.json") == recipe
    assert ef.DAgger(schedule="constant", warm_up=0, average=0.0).command == ef.DAgger().command


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"schedule": "cosin"}, "schedule must be one of 'constant', 'cosine', 'linear'; got 'cosin'; did you mean"),
        ({"schedule": 3}, "schedule must be the name of a rule; got 3"),
        ({"schedule": "cosine", "final_learning_rate": 1.5}, "final_learning_rate must be from 0 to 1; got 1.5"),
        ({"final_learning_rate": 0.1}, "final_learning_rate needs a decaying schedule: set schedule to cosine or"),
        ({"warm_up": -1}, "warm_up must be a whole number of at least 0; got -1"),
    ],
)
def test_schedules_that_make_no_sense_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.DAgger(**options)
