"""DAgger follows the paper's recipe, is reproducible, and lowers the loss."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock._runtime.randomness import make_rng
from equiflock.controllers.loading import make_network
from equiflock.learning.dagger import DivergedError, Trainer
from equiflock.learning.mixture import Mixture
from equiflock.learning.training import train
from equiflock.learning.validation import EpochReport
from tests.learning.small import small
from tests.learning.test_network_checks import Flat


@pytest.mark.parametrize(("beta", "same"), [(1.0, "expert"), (0.0, "student")])
def test_the_mixture_returns_accelerations_of_expert_or_student_and_always_stores_the_target(
    beta: float, same: str
) -> None:
    start = ef.random_disk(1, 30)
    expert, student = ef.load("tanner"), make_network("etdagnn")
    mixture = Mixture(expert, student, beta, np.random.default_rng(0), 0.01)
    moment = next(ef.flight(start, mixture))
    wanted = next(ef.flight(start, expert)).accelerations
    np.testing.assert_array_equal(mixture.target, wanted)
    expected = wanted if same == "expert" else next(ef.flight(start, student)).accelerations
    # A network that learns is asked through torch, one that flies is compiled.
    np.testing.assert_allclose(moment.accelerations, expected, rtol=0.0 if same == "expert" else 1e-4, atol=1e-6)


def test_the_expert_acts_with_probability_beta() -> None:
    asked = 0

    class Pupil(torch.nn.Module):
        senses = ef.paper_senses("mean", hops=1)

        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            nonlocal asked
            asked += 1
            return torch.zeros(observations.shape[0], observations.shape[1], observations.shape[-1])

    mixture = Mixture(ef.load("tanner"), Pupil(), 0.7, np.random.default_rng(0), 0.01)
    for moment in ef.flight(ef.random_disk(1, 10), mixture):
        if moment.step == 999:
            break
    assert 250 < asked < 350


def test_an_epoch_keeps_every_step_with_the_experts_answer() -> None:
    trainer = Trainer(small(duration=0.3, controller="tdagnn"))
    trainer.run_epoch()
    assert len(trainer.replay) == 30
    drawn = int(make_rng(0, "collect", 0).integers(5))
    first = next(ef.flight(ef.random_disk(5, 20, split="train")[drawn], ef.load("tanner")))
    # As rows of agents, in which form compiled kernels read them.
    observations, targets = trainer.replay.tuples
    np.testing.assert_allclose(targets[0], first.accelerations[0].T, rtol=1e-6)
    observed = ef.observe(first.flock, ef.paper_senses("sum", 3))[0]
    np.testing.assert_array_equal(observations[0], observed.reshape(20, -1).T)
    for _ in range(3):
        trainer.run_epoch()
    assert len(trainer.replay) == 100
    assert trainer.replay.total_added == 120


def test_an_epoch_returns_a_report_and_validates_when_due() -> None:
    reports: list[EpochReport] = []
    student: Any = train(small(epochs=6, validate_every=4), on_epoch=reports.append)
    assert [report.epoch for report in reports] == [1, 2, 3, 4, 5, 6]
    assert [report.epoch for report in reports if report.validation is not None] == [4, 6]
    assert reports[1].expert_share == pytest.approx(0.993**2)
    assert reports[-1].validation is not None
    start = ef.random_disk(3, 20, seed=0, split="validation")
    flown = ef.metrics.ivv(ef.simulate(start, student, duration=0.2))
    np.testing.assert_array_equal(reports[-1].validation.ivv, flown)


@pytest.mark.slow
def test_an_epoch_allocates_no_lasting_memory() -> None:
    trainer = Trainer(small(capacity=30))

    def tensors() -> int:
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    places = [array.ctypes.data for array in trainer.replay.tuples]
    for _ in range(2):
        trainer.run_epoch()
    before = tensors()
    for _ in range(5):
        trainer.run_epoch()
    assert tensors() == before
    assert [array.ctypes.data for array in trainer.replay.tuples] == places


@pytest.mark.slow
def test_a_module_of_ones_own_learns(own_registry: None) -> None:
    class Linear(torch.nn.Module):
        senses = ef.paper_senses("mean", hops=1)

        def __init__(self) -> None:
            super().__init__()
            self.mix = torch.nn.Linear(3, 1, bias=False)

        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            return self.mix(observations[:, :, 0].transpose(2, 3)).squeeze(-1)

    mine = Linear()
    before = mine.mix.weight.detach().clone()
    assert train(small(epochs=1), mine) is mine
    assert (mine.mix.weight != before).any()
    ef.controller("linear")(Linear)
    assert isinstance(train(small(epochs=1, controller="linear")), Linear)


def test_a_module_that_draws_numbers_itself_gives_the_same_bits_and_flies_without_dropout() -> None:
    class Dropping(torch.nn.Module):
        senses = ef.paper_senses("mean", hops=1)

        def __init__(self) -> None:
            super().__init__()
            self.mix = torch.nn.Linear(3, 1, bias=False)
            torch.nn.init.constant_(self.mix.weight, 0.1)
            self.drop = torch.nn.Dropout(0.5)
            self.modes: list[bool] = []

        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            self.modes.append(self.training and not torch.is_inference_mode_enabled())
            assert self.training != torch.is_inference_mode_enabled()
            return self.mix(self.drop(observations[:, :, 0].transpose(2, 3))).squeeze(-1)

    one, two = Dropping(), Dropping()
    for network in (one, two):
        train(small(epochs=2), network)
    assert (one.mix.weight == two.mix.weight).all()
    assert any(one.modes)
    assert not one.training


def test_the_same_seed_gives_the_same_bits_and_another_seed_others() -> None:
    weights = [torch.cat([p.flatten() for p in train(small(epochs=3, seed=seed)).parameters()]) for seed in (0, 0, 1)]
    assert (weights[0] == weights[1]).all()
    assert (weights[0] != weights[2]).any()


@pytest.mark.parametrize("name", ["tdagnn-tf-mean", "etdagnn"])
def test_ten_epochs_lower_the_loss_and_beat_an_untrained_network(name: Any) -> None:
    losses: list[float] = []
    recipe = ef.DAgger(controller=name, epochs=10, learning_rate=1e-3, agents=50, flocks=20, duration=1.0, updates=60)
    student = ef.train(recipe, on_epoch=lambda report: losses.append(report.loss))
    assert len(losses) == 10
    assert losses[-1] < 0.9 * losses[0]
    unseen = ef.random_disk(10, 50, split="validation")
    final = {
        label: np.median(ef.metrics.ivv(ef.simulate(unseen, controller)))
        for label, controller in (("trained", student), ("fresh", make_network(name)))
    }
    assert final["trained"] < 0.5 * final["fresh"]


def test_a_loss_that_is_no_number_stops_the_training_and_says_when() -> None:
    with pytest.raises(InputError, match=r"the training diverged in epoch 1: the loss became .*; lower learning_rate"):
        train(small(learning_rate=1e30))


def test_a_network_that_flies_off_the_scale_is_a_training_that_diverged() -> None:
    recipe = small(controller="tdagnn", learning_rate=1e11)
    with pytest.raises(
        DivergedError, match=r"the training diverged in epoch \d+: .* off the scale .*; lower learning_rate"
    ):
        train(replace(recipe, expert_share=0.0, least_expert_share=0.0))
    with pytest.raises(
        DivergedError, match=r"the training diverged in epoch 2: .* off the scale .*; lower learning_rate"
    ):
        train(replace(recipe, expert_share=1.0, validate_every=2))  # found by the validation


def test_flights_that_end_off_the_scale_before_the_first_update_are_not_blamed_on_the_learning_rate() -> None:
    class Rocket(Flat):
        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            return 1e30 * torch.ones_like(super().forward(observations))

    with pytest.raises(InputError, match="off the scale") as caught:
        train(small(expert_share=0.0, least_expert_share=0.0), Rocket())
    assert "learning_rate" not in str(caught.value)
