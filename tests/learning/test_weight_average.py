"""The exponential average of the weights over epochs, and trainings that use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.controllers.loading import make_network
from equiflock.learning.checkpoints import read_checkpoint, write_checkpoint
from equiflock.learning.dagger import Trainer
from equiflock.learning.learner import WeightAverage, copy_state_dict
from equiflock.learning.training import train
from equiflock.learning.training_run import TrainingRun
from tests.learning.small import small
from tests.learning.test_replay_refill import register_own_parts
from tests.learning.test_training_run import Stop, assert_same_results, stop_after

AVERAGED: dict[str, Any] = {"average": 0.7, "learning_rate": 1e-3}


def weights(network: Any) -> torch.Tensor:
    return torch.cat([each.detach().flatten().clone() for each in network.parameters()])


def trained(recipe: ef.DAgger) -> tuple[Trainer, list[torch.Tensor]]:
    """A trainer at its end, and the network's own weights after each epoch."""
    trainer, found = Trainer(recipe), []
    while trainer.epoch < recipe.epochs:
        trainer.run_epoch()
        found.append(weights(trainer.network))
    return trainer, found


def mean_by_the_book(each: list[torch.Tensor], decay: float) -> torch.Tensor:
    """The mean in which an epoch counts decay times as much as the next."""
    shares = [decay ** (len(each) - 1 - epoch) for epoch in range(len(each))]
    return torch.stack([share * w.double() for share, w in zip(shares, each, strict=True)]).sum(0) / sum(shares)


def test_the_average_is_the_weighted_mean_of_all_epochs_without_a_bias_to_the_first_weights() -> None:
    network = make_network("etdagnn")
    average, each = WeightAverage(network, 0.9), []
    for epoch in range(1, 21):
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter)
        each.append(weights(network))
        average.add(network, epoch)
        with average.swap_into(network):
            torch.testing.assert_close(weights(network).double(), mean_by_the_book(each, 0.9), rtol=1e-5, atol=1e-6)
        assert torch.equal(weights(network), each[-1])
        if epoch == 1:
            assert all(map(torch.equal, average.tensors.values(), copy_state_dict(network).values()))


def test_flights_and_updates_are_those_of_the_networks_own_weights() -> None:
    (one, own), (two, plain) = trained(small(**AVERAGED)), trained(small(learning_rate=1e-3))
    assert all(map(torch.equal, own, plain))
    assert [rollout.checksum for rollout in one.rollouts] == [rollout.checksum for rollout in two.rollouts]


def test_what_is_returned_validated_and_written_is_the_average(tmp_path: Path) -> None:
    recipe = small(**AVERAGED)
    _, own = trained(recipe)
    expected = mean_by_the_book(own, 0.7)
    reports: list[Any] = []
    student: Any = train(recipe, on_epoch=reports.append)
    torch.testing.assert_close(weights(student).double(), expected, rtol=1e-5, atol=1e-7)
    assert not torch.equal(weights(student), own[-1])
    flown = ef.metrics.ivv(ef.simulate(ef.random_disk(3, 20, split="validation"), student, duration=0.2))
    np.testing.assert_array_equal(reports[-1].validation.ivv, flown)
    run = TrainingRun.create(tmp_path / "run", recipe)
    assert torch.equal(weights(ef.load_module(run.train())), weights(student))


def test_a_module_is_given_the_average_in_place() -> None:
    mine = make_network("etdagnn", 0)
    again = train(small(**AVERAGED))
    assert train(small(**AVERAGED), mine) is mine
    assert torch.equal(weights(mine), weights(again))


@pytest.mark.parametrize("epoch", [1, 3, 4, 5])
def test_a_training_that_was_stopped_or_prolonged_goes_on_to_the_same_bits(epoch: int, tmp_path: Path) -> None:
    whole = TrainingRun.create(tmp_path / "whole", small(**AVERAGED))
    whole.train()
    two = TrainingRun.create(tmp_path / "two", small(**AVERAGED))
    with pytest.raises(Stop):
        two.train(stop_after(epoch))
    TrainingRun(two.folder).train()
    assert_same_results(two.folder, whole.folder)
    three = TrainingRun.create(tmp_path / "three", small(**AVERAGED, epochs=epoch))
    three.train()
    three.extend_epochs(6)
    three.train()
    assert_same_results(three.folder, whole.folder)


@pytest.mark.usefixtures("own_registry")
def test_buffers_are_averaged_too_and_counters_are_those_of_the_network(tmp_path: Path) -> None:
    register_own_parts()
    recipe = small(controller="restless", **AVERAGED)
    one, _ = trained(recipe)
    assert one.average is not None
    own = copy_state_dict(one.network)
    assert torch.equal(one.average.tensors["norm.num_batches_tracked"], own["norm.num_batches_tracked"])
    assert not torch.equal(one.average.tensors["norm.running_var"], own["norm.running_var"])
    two = Trainer(recipe)
    read_checkpoint(write_checkpoint(one, tmp_path / "checkpoint.safetensors"), two)
    assert two.average is not None
    for name, tensor in one.average.tensors.items():
        assert torch.equal(two.average.tensors[name], tensor)
        assert torch.equal(copy_state_dict(two.network)[name], own[name])


def test_an_average_of_other_weights_is_refused() -> None:
    average = WeightAverage(make_network("etdagnn"), 0.9)
    with pytest.raises(ValueError, match="its averaged weights belong to another network"):
        average.load_state_dict(copy_state_dict(make_network("etdagnn", hops=2)))
    with pytest.raises(ValueError, match="its averaged weights belong to another network"):
        average.load_state_dict({})


@pytest.mark.parametrize("average", [1.0, -0.1])
def test_a_decay_is_from_nothing_to_below_one(average: float) -> None:
    with pytest.raises(InputError, match="average must be from 0 to below 1; got"):
        ef.DAgger(average=average)
