"""Extended trainings, and trainings that start from a weights file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import compute_file_checksum, read_json
from equiflock.controllers.networks.weights import FORMAT, read_tensors, write_weights
from equiflock.learning.run_directory import adapt_recipe
from equiflock.learning.training import train
from equiflock.learning.training_run import TrainingRun
from tests.learning.small import small
from tests.learning.test_training_run import Stop, assert_same_results, stop_after


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "long"
    TrainingRun.create(folder, small(epochs=11)).train()
    return folder


@pytest.mark.parametrize("first", [4, 6, 7])  # validates at 4 and 8, and at the end
def test_an_extended_training_has_the_bits_of_one_long_training(long: Path, tmp_path: Path, first: int) -> None:
    TrainingRun.create(tmp_path / "run", small(epochs=first)).train()
    run = TrainingRun(tmp_path / "run")
    run.extend_epochs(11)
    assert not run.is_finished
    said: list[str] = []
    epochs: list[int] = []
    TrainingRun(run.folder).train(lambda report: epochs.append(report.epoch), said.append)
    assert epochs == list(range(first + 1, 12))
    assert said == []
    assert_same_results(run.folder, long)
    assert read_json(run.folder / "config.json") == read_json(long / "config.json")


@pytest.mark.parametrize("controller", ["tdagnn:biases=uniform", "etdagnn:hop_mean=sender"])
def test_one_of_a_network_with_options_too_and_its_weights_are_loaded_without_them(
    controller: str, tmp_path: Path
) -> None:
    at_once, in_two = (TrainingRun.create(tmp_path / name, small(controller=controller, epochs=4)) for name in "ab")
    at_once.train()
    with pytest.raises(Stop):
        in_two.train(stop_after(2))
    TrainingRun(in_two.folder).train()
    assert_same_results(in_two.folder, at_once.folder)
    assert TrainingRun(at_once.folder).is_finished
    network: Any = ef.load(at_once.folder / "weights.safetensors")
    assert network.name == controller.partition(":")[0]


def test_a_training_that_is_stopped_and_extended_twice_has_the_same_bits(long: Path, tmp_path: Path) -> None:
    run = TrainingRun.create(tmp_path / "run", small(epochs=40))
    with pytest.raises(Stop):
        run.train(stop_after(3))
    run.extend_epochs(6)
    run.train()
    run.extend_epochs(9)
    with pytest.raises(Stop):
        run.train(stop_after(7))
    run.extend_epochs(11)
    run.train()
    assert_same_results(run.folder, long)


def test_an_extended_training_without_checkpoints_restarts_with_a_notice(long: Path, tmp_path: Path) -> None:
    run = TrainingRun.create(tmp_path / "run", small())
    run.train()
    shutil.rmtree(run.folder / "checkpoints")
    run.extend_epochs(11)
    said: list[str] = []
    run.train(on_notice=said.append)
    assert said == ["there is no checkpoint, so the training restarts"]
    assert_same_results(run.folder, long)


def test_the_number_of_epochs_may_be_reduced_to_the_completed_ones(tmp_path: Path) -> None:
    short = TrainingRun.create(tmp_path / "short", small())
    short.train()
    run = TrainingRun.create(tmp_path / "run", small(epochs=40))
    with pytest.raises(Stop):
        run.train(stop_after(7))
    with pytest.raises(InputError, match=r"epochs must be at least 6, the epochs completed in .*run; got 5"):
        run.extend_epochs(5)
    run.extend_epochs(6)
    run.train()
    assert_same_results(run.folder, short.folder)
    with pytest.raises(InputError, match="epochs must be at least 6"):
        run.extend_epochs(5)


def test_a_training_that_begins_from_weights_is_that_of_their_network(tmp_path: Path) -> None:
    weights = TrainingRun.create(tmp_path / "first", small()).train()
    recipe = small(seed=3, learning_rate=1e-3)
    run = TrainingRun.create(tmp_path / "second", recipe, weights)
    name, found = str(weights), compute_file_checksum(weights)
    weights.unlink()  # the folder has its own
    with pytest.raises(Stop):
        run.train(stop_after(3))
    TrainingRun(run.folder).train()
    expected = train(recipe, ef.load_module(run.folder / "from.safetensors"))
    trained: Any = ef.load_module(run.weights)
    for one, two in zip(trained.parameters(), expected.parameters(), strict=True):
        assert (one == two).all()
    _, metadata = read_tensors(run.weights, FORMAT)
    assert metadata["from"] == read_json(run.folder / "config.json")["from"] == {"name": name, "checksum": found}
    assert metadata["command"].endswith(f" --from {name}")


def test_results_of_a_training_from_other_weights_are_rejected(tmp_path: Path) -> None:
    fresh = TrainingRun.create(tmp_path / "fresh", small())
    weights = fresh.train()
    run = TrainingRun.create(tmp_path / "run", small(), weights)
    for name in ("checkpoints", "weights.safetensors"):
        source = fresh.folder / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, run.folder / name)
    assert not run.is_finished
    with pytest.raises(InputError, match="was written by another training: from = None, not"):
        run.train()


def test_network_and_hops_come_from_the_weights_unless_that_contradicts_what_was_given(tmp_path: Path) -> None:
    weights = TrainingRun.create(tmp_path / "run", small(controller="tdagnn", hops=2, epochs=1)).train()
    recipe = adapt_recipe(weights, small())
    assert (recipe.controller, recipe.hops, recipe.dimensions) == ("tdagnn", 2, 2)
    assert adapt_recipe(weights, small(hops=2), {"hops"}).hops == 2
    with pytest.raises(InputError, match=r"holds weights of hops = 2, not 3: omit hops"):
        adapt_recipe(weights, small(), {"hops"})
    with pytest.raises(InputError, match="holds weights of controller = tdagnn, not etdagnn"):
        adapt_recipe(weights, small(), {"controller"})
    with pytest.raises(InputError, match="holds weights of controller = tdagnn, not etdagnn"):
        TrainingRun.create(tmp_path / "other", small(), weights)


def test_modules_of_ones_own_begin_from_weights_too(tmp_path: Path, own_registry: None) -> None:
    @ef.controller("wide")
    class Wide(torch.nn.Module):
        senses = ef.paper_senses("mean", hops=1)

        def __init__(self, width: int = 1) -> None:
            super().__init__()
            self.options = {"width": width}
            self.mix = torch.nn.Linear(3, width, bias=False)

        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            return self.mix(observations[:, :, 0].transpose(2, 3)).sum(-1)

    weights = write_weights(Wide(5), tmp_path / "wide.safetensors")
    run = TrainingRun.create(tmp_path / "run", adapt_recipe(weights, small()), weights)
    assert run.recipe.controller == "wide"
    trained: Any = ef.load(run.train())
    assert trained.mix.weight.shape == (5, 3)
