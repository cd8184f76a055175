"""A resumed training gives the same bits as an uninterrupted one, and damage is detected."""

from __future__ import annotations

import errno
import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from filelock import FileLock
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import format_json, read_json, write_json
from equiflock._runtime.provenance import FORMAT, set_plugin_checksums
from equiflock.controllers.networks.weights import read_tensors, write_tensors
from equiflock.learning import checkpoints as checkpoint_format
from equiflock.learning.learner import CompiledLearner
from equiflock.learning.training import train
from equiflock.learning.training_run import TrainingRun
from equiflock.learning.validation import EpochReport
from tests.learning.small import small

RESULTS = "weights.safetensors", "metrics.csv", "validation.csv"
RESUME = """
import pathlib, sys
from equiflock.learning.training_run import TrainingRun

run = TrainingRun(pathlib.Path(sys.argv[1]))
print("ready", flush=True)
run.train(on_notice=lambda text: print("notice:", text, flush=True))
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    TrainingRun.create(folder, small()).train()
    return folder


def assert_same_results(one: Path, two: Path) -> None:
    for name in RESULTS:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name


def config_of(kind: str) -> bytes:
    return format_json({"kind": kind, "format": FORMAT}).encode()


def change_config(folder: Path, part: str, **change: Any) -> None:
    """Change config.json and update its checksum."""
    config = read_json(folder / "config.json")
    config[part] |= change
    write_json(config, folder / "config.json")


class Stop(Exception):  # noqa: N818
    pass


def stop_after(epoch: int) -> Any:
    def on_epoch(report: EpochReport) -> None:
        if report.epoch == epoch:
            raise Stop

    return on_epoch


def test_the_folder_holds_config_tables_events_checkpoints_and_weights(undisturbed: Path) -> None:
    config = json.loads((undisturbed / "config.json").read_text())
    assert config["recipe"]["agents"] == 20
    assert config["command"].startswith("equiflock train --controller etdagnn --epochs 6 --seed 0")
    assert set(config["versions"]) == {"equiflock", "python", "torch", "numpy", "numba"}
    metrics = pd.read_csv(undisturbed / "metrics.csv")
    assert metrics.epoch.tolist() == [1, 2, 3, 4, 5, 6]
    validation = pd.read_csv(undisturbed / "validation.csv")
    assert validation.epoch.tolist() == [0] * 3 + [4] * 3 + [6] * 3
    assert validation.controller.tolist() == ["tanner"] * 3 + ["etdagnn"] * 6
    kept = sorted(path.name for path in (undisturbed / "checkpoints").iterdir())
    assert kept == ["epoch-000004.safetensors", "epoch-000006.safetensors"]
    events = EventAccumulator(str(undisturbed)).Reload()
    assert [event.step for event in events.Scalars("loss")] == [1, 2, 3, 4, 5, 6]
    assert [event.step for event in events.Scalars("student/IVV")] == [4, 6]


def test_its_weights_are_those_of_a_training_without_a_folder(undisturbed: Path) -> None:
    controller = ef.load_module(str(undisturbed / "weights.safetensors"))
    for one, two in zip(controller.parameters(), train(small()).parameters(), strict=True):
        assert (one == two).all()


def test_the_experts_rows_are_what_the_expert_does(undisturbed: Path) -> None:
    table = pd.read_csv(undisturbed / "validation.csv").query("controller == 'tanner'")
    start = ef.random_disk(3, 20, split="validation")
    run = ef.simulate(start, ef.load("tanner"), duration=0.2)
    np.testing.assert_array_equal(table.ivv, ef.metrics.ivv(run))
    np.testing.assert_array_equal(table.iman, ef.metrics.iman(run))


@pytest.mark.parametrize(("epoch", "torn"), [(1, "1"), (3, "1,17"), (4, "3"), (5, "5,0.1")])
def test_a_training_that_was_stopped_goes_on_to_the_same_bits(
    undisturbed: Path, tmp_path: Path, epoch: int, torn: str
) -> None:
    run = TrainingRun.create(tmp_path / "run", small())
    with pytest.raises(Stop):
        run.train(stop_after(epoch))
    with run.metrics.open("a") as table:
        table.write(torn)  # a row that was being written
    TrainingRun(tmp_path / "run").train()
    assert_same_results(tmp_path / "run", undisturbed)


def kill_until_done(folder: Path, rng: random.Random, longest: float, most_kills: int) -> tuple[int, list[str]]:
    """Train in the folder, killed after random times up to `longest` seconds; return kills and notices."""
    kills, notices = 0, []
    while True:
        process = subprocess.Popen([sys.executable, "-c", RESUME, str(folder)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        try:
            process.wait(timeout=rng.uniform(0.0, longest) if kills < most_kills else None)
        except subprocess.TimeoutExpired:
            process.kill()
            kills += 1
            (folder / "checkpoints").mkdir(exist_ok=True)
            (folder / "checkpoints" / f".epoch-000004.{kills}.safetensors").write_bytes(b"half a checkpoint")
        notices += process.communicate()[0].splitlines()
        if process.returncode == 0:
            return kills, notices
        assert process.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_a_training_killed_repeatedly_at_random_times_has_the_same_bits(tmp_path: Path) -> None:
    recipe = small(epochs=60, checkpoint_every=1)
    undisturbed = TrainingRun.create(tmp_path / "undisturbed", recipe)
    undisturbed.train()
    folder = TrainingRun.create(tmp_path / "run", recipe).folder
    kills, notices = kill_until_done(folder, random.Random(0), longest=0.4, most_kills=2)
    assert kills >= 1
    assert notices == []
    assert_same_results(folder, undisturbed.folder)
    assert not list(folder.glob("checkpoints/.*"))


def test_a_damaged_checkpoint_falls_back_to_the_previous_one(undisturbed: Path, tmp_path: Path) -> None:
    run = TrainingRun.create(tmp_path / "run", small())
    with pytest.raises(Stop):
        run.train(stop_after(5))
    newest, before = run.checkpoints
    content = newest.read_bytes()
    newest.write_bytes(content[:-100] + bytes(100))
    said: list[str] = []
    run.train(on_notice=said.append)
    assert_same_results(tmp_path / "run", undisturbed)
    assert len(said) == 1
    assert "is damaged: its checksum does not match; continuing from the previous checkpoint" in said[0]
    assert before.name == "epoch-000002.safetensors"


def test_damage_to_all_checkpoints_raises_input_error(tmp_path: Path) -> None:
    run = TrainingRun.create(tmp_path / "run", small())
    with pytest.raises(Stop):
        run.train(stop_after(4))
    for path in run.checkpoints:
        path.write_bytes(b"")
    with pytest.raises(InputError, match=r"there is no other checkpoint: remove .*checkpoints to restart"):
        run.train()


def test_other_versions_and_a_table_with_holes_are_noticed(tmp_path: Path) -> None:
    TrainingRun.create(tmp_path / "run", small())
    change_config(tmp_path / "run", "versions", torch="0.1")
    run = TrainingRun(tmp_path / "run")
    with pytest.raises(Stop):
        run.train(stop_after(2))
    run.metrics.unlink()
    said: list[str] = []
    TrainingRun(tmp_path / "run").train(on_notice=said.append)
    assert len(said) == 2
    assert "started with torch = 0.1, not" in said[0]
    assert "bits may differ" in said[0]
    assert "metrics.csv was changed or is damaged: it is rewritten from the checkpoint" in said[1]
    assert run.metrics.read_text().count("\n") == 7
    _, metadata = read_tensors(run.weights, "equiflock weights 1")
    assert metadata["begun_with"]["torch"].startswith("0.")


def test_a_finished_training_is_left_alone(undisturbed: Path) -> None:
    epochs: list[EpochReport] = []
    assert TrainingRun(undisturbed).train(epochs.append) == undisturbed / "weights.safetensors"
    assert epochs == []


def test_two_trainings_never_write_into_one_folder(undisturbed: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="exists already"):
        TrainingRun.create(undisturbed, small())
    run = TrainingRun.create(tmp_path / "run", small())
    with FileLock(tmp_path / "run" / ".lock"), pytest.raises(InputError, match="another process is writing to"):
        run.train()


def test_a_loss_that_is_no_number_stops_it_and_the_last_good_checkpoint_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = TrainingRun.create(tmp_path / "run", small())
    with pytest.raises(Stop):
        run.train(stop_after(3))
    monkeypatch.setattr(
        CompiledLearner, "descend", lambda self, tuples, batch_indices: np.full(batch_indices.shape, np.nan)
    )
    with pytest.raises(InputError, match=r"diverged in epoch 3: .* is .*epoch-000002.safetensors"):
        run.train()
    assert [path.name for path in run.checkpoints] == ["epoch-000002.safetensors"]
    assert all(tensor.isfinite().all() for tensor in load_file(run.checkpoints[0]).values())


def test_a_full_disk_loses_nothing(undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = TrainingRun.create(tmp_path / "run", small())
    write = write_tensors

    def no_space(*arguments: Any) -> Path:
        if "000004" in str(arguments[1]):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*arguments)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(checkpoint_format, "write_tensors", no_space)
        run.train()
    run.train()
    assert_same_results(tmp_path / "run", undisturbed)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"agents": 30}, "epoch-000002.safetensors was written by another training: recipe agents = 20, not 30"),
        ({"controller": "tdagnn"}, "controller = etdagnn, not tdagnn"),
        ({"agents": None}, "config.json: agents must be a whole number below .*; got None"),
    ],
)
def test_a_config_that_does_not_fit_its_checkpoint_is_refused(
    tmp_path: Path, change: dict[str, Any], text: str
) -> None:
    run = TrainingRun.create(tmp_path / "run", small())
    with pytest.raises(Stop):
        run.train(stop_after(2))
    change_config(tmp_path / "run", "recipe", **change)
    with pytest.raises(InputError, match=text):
        TrainingRun(tmp_path / "run").train()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "is not the run directory of a training: it has no config.json"),
        (b"{", "config.json is damaged: its checksum does not match"),
        (b"[]", "config.json is damaged: it has no checksum"),
        ("ä".encode("latin-1"), "config.json is damaged: its checksum does not match"),
        (config_of("sweep"), "is the run directory of a sweep, not of a training"),
        (
            config_of("evaluation"),
            "is the run directory of an evaluation, not of a training",
        ),
        (
            config_of("training"),
            "config.json is damaged: expected a recipe and versions",
        ),
    ],
)
def test_a_folder_that_is_no_training_is_refused(tmp_path: Path, content: bytes | None, text: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(InputError, match=text):
        TrainingRun(tmp_path)


def test_a_changed_plugin_causes_a_notice(tmp_path: Path) -> None:
    set_plugin_checksums({"my_network.py": "11111111"})
    run = TrainingRun.create(tmp_path / "run", small())
    with pytest.raises(Stop):
        run.train(stop_after(2))
    set_plugin_checksums({"my_network.py": "22222222"})
    said: list[str] = []
    TrainingRun(tmp_path / "run").train(on_notice=said.append)
    assert len(said) == 1
    assert "started with my_network.py = 11111111, not 22222222: bits may differ" in said[0]
