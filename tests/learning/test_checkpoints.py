"""Checkpoints restore everything that the next epoch needs; other files raise InputError."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from equiflock._runtime.checks import InputError
from equiflock.controllers.networks.weights import read_tensors, write_tensors
from equiflock.learning.checkpoints import FORMAT, Checkpoints, read_checkpoint, refill, write_checkpoint
from equiflock.learning.dagger import Trainer
from equiflock.learning.run_directory import Tables
from tests.learning.small import small


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    trainer = Trainer(small())
    for _ in range(6):  # the replay is full and begins anew
        trainer.run_epoch()
    return trainer


def test_everything_comes_back(trainer: Trainer, tmp_path: Path) -> None:
    path = write_checkpoint(trainer, tmp_path / "checkpoint.safetensors")
    other = Trainer(small())
    read_checkpoint(path, other)
    refill(other, pytest.fail)
    assert (other.epoch, other.replay.total_added) == (6, 120)
    for restored, array in zip(other.replay.tuples, trainer.replay.tuples, strict=True):
        assert (restored == array).all()
    one, two = trainer.learner.state_dict(), other.learner.state_dict()
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        assert (two[name] == tensor).all(), name
    for a, b in zip(trainer.network.parameters(), other.network.parameters(), strict=True):
        assert (a == b).all()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda tensors, metadata: tensors.pop("network.layers.1.weight"), "does not fit etdagnn"),
        (lambda tensors, metadata: tensors.pop("flights.numbers"), "does not fit etdagnn"),
        (lambda tensors, metadata: tensors.update({"flights.numbers": torch.zeros(5, 3)}), "does not fit etdagnn"),
        (
            lambda tensors, metadata: tensors.pop("flights.network.layers.1.weight"),
            "the networks of its rollouts have other weights",
        ),
        (lambda tensors, metadata: metadata.pop("epoch"), "the metadata of .* is damaged"),
        (
            lambda tensors, metadata: metadata["made_by"].update(recipe={"agents": 20}),
            "was written by another training",
        ),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(trainer: Trainer, tmp_path: Path, change: Any, text: str) -> None:
    tensors, metadata = read_tensors(write_checkpoint(trainer, tmp_path / "good.safetensors"), FORMAT)
    change(tensors, metadata)
    path = write_tensors(tensors, tmp_path / "bad.safetensors", FORMAT, metadata)
    with pytest.raises(InputError, match=text):
        read_checkpoint(path, Trainer(small()))


def test_a_changed_number_in_the_metadata_is_damage_too(trainer: Trainer, tmp_path: Path) -> None:
    path = write_checkpoint(trainer, tmp_path / "checkpoint.safetensors")
    content = path.read_bytes()
    path.write_bytes(content.replace(b'\\"epoch\\": 6', b'\\"epoch\\": 2'))
    assert path.read_bytes() != content
    with pytest.raises(InputError, match="is damaged: its checksum does not match"):
        read_checkpoint(path, Trainer(small()))


def test_weights_are_no_checkpoint_and_half_a_file_is_none_either(trainer: Trainer, tmp_path: Path) -> None:
    network: Any = trainer.network
    with pytest.raises(InputError, match="expected format 'equiflock checkpoint 5'; got 'equiflock weights 1'"):
        read_checkpoint(network.save(tmp_path / "weights.safetensors"), trainer)
    path = write_checkpoint(trainer, tmp_path / "checkpoint.safetensors")
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(InputError, match="is not a safetensors file that can be read"):
        read_checkpoint(path, trainer)


def test_checkpoints_of_an_older_version_are_refused_in_one_line(trainer: Trainer, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, {"recipe": {}})
    checkpoints.folder.mkdir()
    for epoch in (1, 2):
        write_tensors({}, checkpoints.folder / f"epoch-{epoch:06d}.safetensors", "equiflock checkpoint 3", {})
    notices: list[str] = []
    text = "epoch-000002.* is of another version: .* got 'equiflock checkpoint 3'; remove .*checkpoints to restart"
    with pytest.raises(InputError, match=text):
        checkpoints.restore(trainer, Tables(tmp_path, small()), notices.append)
    assert notices == []
