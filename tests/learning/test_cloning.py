"""Cloning on the whole training set with the loss min(1, (b^2 + MSE) / M)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from equiflock._runtime.checks import InputError
from equiflock.controllers.loading import make_network
from equiflock.learning.cloning import Cloner, CloningReport, clone
from equiflock.learning.dagger import DivergedError
from equiflock.learning.fast_forward import FastForward, FastForwardData
from equiflock.learning.recipe import Cloning

RECIPE = FastForward(train_flocks=3, test_flocks=2, steps=80, agents=20)


@pytest.fixture(scope="module")
def data() -> FastForwardData:
    return RECIPE.make()


def scaled(data: FastForwardData, factor: float) -> FastForwardData:
    """The same data with other targets."""
    return FastForwardData(RECIPE, {**data.arrays, "targets": data.arrays["targets"] * np.float32(factor)})


@pytest.mark.parametrize("name", ["tdagnn", "etdagnn"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_the_loss_is_the_mean_over_tuples_of_the_clipped_score(data: FastForwardData, name: str, split: Any) -> None:
    cloner = Cloner(Cloning(name, loss_scale=3.0), data)
    cloner.loss.bias.fill(0.7)
    expected = []
    flocks = range(3) if split == "train" else range(3, 5)
    for step in range(RECIPE.index_count):
        for flock in flocks:
            observations = torch.from_numpy(data.arrays[data.find_array_name(cloner.senses.channels)][step, flock])
            errors = cloner.network(observations[None])[0].detach().numpy() - data.arrays["targets"][step, flock]
            mse = np.mean([error @ error for error in errors])
            expected.append(min(1.0, (0.7**2 + mse) / 3.0))
    report = cloner.make_report()
    assert cloner.tuple_losses[split].ravel() == pytest.approx(expected, rel=1e-5)
    assert {"train": report.train_loss, "test": report.test_loss}[split] == pytest.approx(np.mean(expected), rel=1e-5)
    if split == "train":
        assert report.gradient_share == np.mean(np.array(expected) < 1.0)
        assert 0.0 < report.gradient_share < 1.0


@pytest.mark.slow
def test_it_learns_and_the_same_seed_gives_the_same_bits(data: FastForwardData) -> None:
    def run(seed: int) -> tuple[list[CloningReport], list[float]]:
        reports: list[CloningReport] = []
        network = clone(
            Cloning("tdagnn-tf-mean", seed, epochs=3, learning_rate=1e-3),
            data,
            on_epoch=lambda cloner, report: reports.append(report),
        )
        return reports, [weight.sum().item() for weight in network.parameters()]

    reports, weights = run(0)
    assert [report.epoch for report in reports] == [0, 1, 2, 3]
    assert reports[3].train_loss < 0.9 * reports[0].train_loss
    assert reports[3].gap == reports[3].test_loss - reports[3].train_loss
    assert run(0) == (reports, weights)
    assert run(1) != (reports, weights)


def test_an_epoch_goes_once_through_the_whole_training_set_in_large_reads(
    data: FastForwardData, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Any] = []
    get_tuples = FastForwardData.get_tuples

    def listen(self: FastForwardData, places: Any, channels: Any) -> Any:
        reads.append(places)
        return get_tuples(self, places, channels)

    monkeypatch.setattr(FastForwardData, "get_tuples", listen)
    cloner = Cloner(Cloning(batch=20), data)
    cloner.run_epoch()
    cloner.run_epoch()
    assert [len(read) for read in reads] == [data.samples] * 2
    for read in reads:
        assert sorted(read) == list(range(data.samples))
    assert not np.array_equal(*reads)
    assert cloner.updates == 2 * math.ceil(data.samples / 20)


def test_where_every_score_is_above_1_nothing_is_learned_without_a_warm_up(data: FastForwardData) -> None:
    far = scaled(data, 1e4)
    for warm_up, learns in ((0, False), (2, True)):
        cloner = Cloner(Cloning("tdagnn", warm_up=warm_up), far)
        make_report = cloner.make_report()
        assert (make_report.train_loss, make_report.gradient_share) == (1.0, 0.0)
        before = [weight.detach().clone() for weight in cloner.network.parameters()]
        cloner.run_epoch()
        same = all(torch.equal(a, b) for a, b in zip(before, cloner.network.parameters(), strict=True))
        assert same is not learns


def test_the_scores_bias_stays_where_the_bound_wants_it(data: FastForwardData) -> None:
    cloner = Cloner(Cloning("etdagnn", learning_rate=1.0), scaled(data, 0.0))
    cloner.loss.bias.fill(0.5)
    cloner.run_epoch()
    assert cloner.loss.bias.item() == 0.0
    at_start = Cloner(Cloning("etdagnn"), data)
    at_start.run_epoch()
    assert at_start.loss.bias.item() == 0.0  # where it begins, b^2 has no slope


def test_a_network_of_ones_own_is_trained_on(data: FastForwardData) -> None:
    network = make_network("etdagnn", seed=5)
    assert clone(Cloning(epochs=1), data, network) is network
    with pytest.raises(InputError, match="the network observes 2 hops, but the data has 3"):
        Cloner(Cloning(), data, make_network("etdagnn", hops=2))


def test_infinite_weights_raise_diverged_error(data: FastForwardData) -> None:
    with pytest.raises(DivergedError, match="no longer finite in epoch 1: lower learning_rate"):
        clone(Cloning("tdagnn-tf", epochs=1, learning_rate=1e38, warm_up=1000), data)


@pytest.mark.parametrize("options", [{"epochs": 0}, {"batch": 0}, {"loss_scale": 0.0}, {"warm_up": -1}])
def test_numbers_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        Cloning(**options)
