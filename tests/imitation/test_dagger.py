"""DAgger follows the paper's recipe, gives the same bits for the same seed, and teaches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import equiflock as ef
from equiflock.controllers.networks import new_network
from equiflock.imitation.dagger import Trainer, imitation_loss, train
from equiflock.imitation.mixture import Mixture
from equiflock.randomness import stream
from equiflock.types import InputError

SMALL: dict[str, Any] = {"agents": 30, "flocks": 5, "duration": 0.3, "updates": 20, "capacity": 100}


def test_the_defaults_are_the_papers_recipe() -> None:
    recipe = ef.DAgger()
    assert (recipe.epochs, recipe.capacity, recipe.updates, recipe.batch) == (400, 10_000, 200, 20)
    assert (recipe.learning_rate, recipe.time_step, recipe.duration, recipe.hops) == (5e-5, 1e-2, 2.0, 3)


def test_the_share_of_the_expert_falls_to_one_half() -> None:
    recipe = ef.DAgger()
    assert recipe.beta(0) == 0.993
    assert recipe.beta(1) == pytest.approx(0.993 * 0.993)
    assert recipe.beta(97) > 0.5
    assert recipe.beta(98) == recipe.beta(399) == 0.5


def test_the_loss_is_the_mean_squared_length_of_the_error() -> None:
    accelerations = torch.zeros(2, 3, 2)
    targets = torch.zeros(2, 3, 2)
    targets[0, 0] = torch.tensor([3.0, 4.0])
    assert imitation_loss(accelerations, targets).item() == pytest.approx(25.0 / 6.0)


@pytest.mark.parametrize(("beta", "same"), [(1.0, "expert"), (0.0, "pupil")])
def test_the_mixture_is_the_expert_or_the_pupil_and_always_knows_what_the_expert_would_do(
    beta: float, same: str
) -> None:
    start = ef.random_disk(1, 30)
    expert, pupil = ef.load("tanner"), new_network("etdagnn")
    mixture = Mixture(expert, pupil, beta, np.random.default_rng(0))
    moment = next(ef.flight(start, mixture))
    wanted = next(ef.flight(start, expert)).accelerations
    np.testing.assert_array_equal(mixture.target, wanted)
    expected = wanted if same == "expert" else next(ef.flight(start, pupil)).accelerations
    assert (moment.accelerations == expected).all()


def test_the_mixture_asks_each_about_as_often_as_it_should() -> None:
    asked = 0

    class Pupil(torch.nn.Module):
        hops, one_hop = 1, "mean"

        def forward(self, messages: torch.Tensor) -> torch.Tensor:
            nonlocal asked
            asked += 1
            return torch.zeros(messages.shape[0], messages.shape[1], messages.shape[-1])

    mixture = Mixture(ef.load("tanner"), Pupil(), 0.7, np.random.default_rng(0))
    for moment in ef.flight(ef.random_disk(1, 10), mixture):
        if moment.step == 999:
            break
    assert 250 < asked < 350


def test_an_epoch_keeps_every_step_with_the_experts_answer() -> None:
    trainer = Trainer(ef.DAgger(**SMALL))
    trainer.run_epoch()
    assert len(trainer.replay) == 30
    drawn = int(stream(0, "collect", 0).integers(5))
    first = next(ef.flight(ef.random_disk(5, 30, split="train")[drawn], ef.load("tanner")))
    np.testing.assert_allclose(trainer.replay.targets[0], first.accelerations[0], rtol=1e-6)
    one_hop = ef.messages(first.flock, one_hop="mean")[0]
    np.testing.assert_array_equal(trainer.replay.messages[0], one_hop)
    for _ in range(3):
        trainer.run_epoch()
    assert len(trainer.replay) == 100
    assert trainer.replay.added == 120


def test_the_same_seed_gives_the_same_bits_and_another_seed_others() -> None:
    weights = [
        torch.cat([p.flatten() for p in train(ef.DAgger(epochs=3, seed=seed, **SMALL)).parameters()])
        for seed in (0, 0, 1)
    ]
    assert (weights[0] == weights[1]).all()
    assert (weights[0] != weights[2]).any()


@pytest.mark.parametrize("name", ["tdagnn-tf-mean", "etdagnn"])
def test_ten_epochs_lower_the_loss_and_beat_an_untrained_network(name: Any) -> None:
    losses: list[float] = []
    recipe = ef.DAgger(controller=name, epochs=10, learning_rate=1e-3, agents=50, flocks=20, duration=1.0, updates=60)
    pupil = ef.train(recipe, on_epoch=lambda report: losses.append(report.loss))
    assert len(losses) == 10
    assert losses[-1] < 0.9 * losses[0]
    unseen = ef.random_disk(10, 50, split="validation")
    final = {
        label: np.median(ef.metrics.ivv(ef.simulate(unseen, pilot)))
        for label, pilot in (("trained", pupil), ("fresh", new_network(name)))
    }
    assert final["trained"] < 0.5 * final["fresh"]


def test_a_loss_that_is_no_number_stops_the_training_and_says_when() -> None:
    with pytest.raises(InputError, match=r"the loss turned .* in epoch 1: lower learning_rate"):
        train(ef.DAgger(learning_rate=1e30, **SMALL))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"epochs": 0}, "epochs must be a whole number of at least 1"),
        ({"expert_share": 1.5}, "expert_share must be from 0 to 1; got 1.5"),
        ({"duration": 0.001}, "duration / time_step must be a whole number of at least 1; got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be a finite number above 0"),
    ],
)
def test_recipes_that_make_no_sense_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.DAgger(**options)
