"""`equiflock train`: run directories, Ctrl-C, --resume and --from."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

import equiflock as ef
from equiflock._runtime.checksums import read_json
from equiflock._runtime.provenance import write_config
from equiflock.controllers.networks.weights import FORMAT, read_tensors
from equiflock.learning.dagger import Trainer
from equiflock.learning.learner import CompiledLearner
from equiflock.learning.training_run import TrainingRun
from tests.cli.commands import failure, run, stays_alive
from tests.test_cli import SMALL_TRAINING

RESULTS = "weights.safetensors", "metrics.csv", "validation.csv"
ENDLESS = (
    *("--agents", "20", "--flocks", "5", "--duration", "0.2", "--updates", "5", "--epochs", "100000"),
    *("--validation-flocks", "2", "--validate-every", "100000", "--checkpoint-every", "100000"),
)


def interrupt(arguments: list[str], ready: Callable[[], bool]) -> tuple[int, str]:
    """Run a command, press Ctrl-C when it is ready, and return its exit code and what it printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "equiflock", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # a terminal sends Ctrl-C to all processes of a command
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None and not ready():
        time.sleep(0.02)
    assert process.poll() is None, process.communicate()[0]
    os.killpg(process.pid, signal.SIGINT)
    printed, _ = process.communicate(timeout=120)
    return process.returncode, printed


def rows(folder: Path) -> int:
    table = folder / "metrics.csv"
    return table.read_text().count("\n") - 1 if table.exists() else 0


@pytest.mark.slow
def test_ctrl_c_finishes_the_epoch_and_writes_a_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    code, printed = interrupt(["train", *ENDLESS, "--out", str(folder)], lambda: rows(folder) > 2)
    assert code == 130
    assert "press Ctrl-C again to stop immediately" in printed
    assert f"resume with: equiflock train --resume {folder}" in printed.splitlines()
    assert "Traceback" not in printed
    (checkpoint,) = TrainingRun(folder).checkpoints
    assert checkpoint.stem == f"epoch-{rows(folder):06d}"
    run("train", "--resume", str(folder), "--epochs", str(rows(folder) + 2))
    recipe = TrainingRun(folder).recipe
    undisturbed = TrainingRun.create(tmp_path / "undisturbed", recipe)
    undisturbed.train()
    for name in RESULTS:
        assert (folder / name).read_bytes() == (undisturbed.folder / name).read_bytes(), name


def test_ctrl_c_twice_stops_immediately(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    descend, printed = CompiledLearner.descend, ""

    def press_twice_in_the_second_epoch(learner: CompiledLearner, *given: Any) -> Any:
        nonlocal printed
        if rows(folder) == 1:
            signal.raise_signal(signal.SIGINT)
            # A thread confirms. Read when it has ended: text that is written during a read would be lost.
            for thread in threading.enumerate():
                if "_confirm_when_requested" in thread.name:
                    thread.join()
            printed = capsys.readouterr().out
            signal.raise_signal(signal.SIGINT)
        return descend(learner, *given)

    monkeypatch.setattr(CompiledLearner, "descend", press_twice_in_the_second_epoch)
    with stays_alive(), pytest.raises(SystemExit) as caught:
        run("train", *ENDLESS, "--out", str(folder))
    assert caught.value.code == 130
    assert "finishing epoch 2; press Ctrl-C again to stop immediately" in printed
    assert rows(folder) == 1
    assert TrainingRun(folder).checkpoints == []


@pytest.mark.slow
def test_ctrl_c_lets_several_trainings_write_their_checkpoints(tmp_path: Path) -> None:
    folder = tmp_path / "several"
    runs = [folder / f"etdagnn-{seed}" for seed in range(2)]
    several = "--seeds", "0-2", "--workers", "2"
    arguments = ["train", *ENDLESS, *several, "--out", str(folder)]
    code, printed = interrupt(arguments, lambda: all(rows(path) > 2 for path in runs))
    assert code == 130
    assert "finishing the current epochs; press Ctrl-C again to stop immediately" in printed
    assert f"resume with: equiflock train --resume {folder} --workers 2" in printed.splitlines()
    assert "Traceback" not in printed
    assert "leaked" not in printed
    for path in runs:
        with FileLock(path / ".lock", timeout=30):  # no process outlives the command
            pass
        (checkpoint,) = TrainingRun(path).checkpoints
        assert checkpoint.stem == f"epoch-{rows(path):06d}"


@pytest.mark.slow
def test_resume_with_epochs_extends_a_training_even_to_the_default_number(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("train", *SMALL_TRAINING, "--out", str(tmp_path / "run"))
    run("train", *SMALL_TRAINING, "--epochs", "7", "--out", str(tmp_path / "long"))
    run("train", "--resume", str(tmp_path / "run"), "--epochs", "7")
    for name in RESULTS:
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "long" / name).read_bytes(), name
    assert "epochs must be at least 7" in failure(capsys, "train", "--resume", str(tmp_path / "run"), "--epochs", "5")
    monkeypatch.setattr(TrainingRun, "train", lambda *_, **__: None)  # it would take a while
    run("train", "--resume", str(tmp_path / "run"), "--epochs", "400")
    assert TrainingRun(tmp_path / "run").recipe.epochs == 400
    for more in (("--hops", "3"), ("--seed", "1"), ("--force",), ("--from", "x.safetensors")):
        assert "the only option that it allows is --epochs" in failure(
            capsys, "train", "--resume", str(tmp_path / "run"), *more
        )


def test_resume_of_another_kind_of_run_directory_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_config(tmp_path, "sweep", {})
    assert "is the run directory of a sweep, not of a training" in failure(capsys, "train", "--resume", str(tmp_path))


def test_a_training_with_damaged_weights_is_not_finished(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run("train", *SMALL_TRAINING, "--out", str(tmp_path / "run"))
    weights = tmp_path / "run" / "weights.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-10])
    capsys.readouterr()
    run("train", "--resume", str(tmp_path / "run"))
    printed = capsys.readouterr().out.replace("\n", "")
    assert "are done" not in printed
    assert "it counts as missing and is rewritten" in printed
    assert weights.read_bytes() == whole


@pytest.mark.slow
def test_from_starts_with_the_weights_of_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs_here: None
) -> None:
    monkeypatch.chdir(tmp_path)
    run("train", *SMALL_TRAINING, "--controller", "tdagnn", "--hops", "2", "--out", "first")
    weights = "first/weights.safetensors"
    run("train", *SMALL_TRAINING, "--from", weights, "--seed", "5")
    folder = tmp_path / "runs" / "tdagnn-5"  # named after the network in the file
    config = read_json(folder / "config.json")
    assert config["recipe"]["hops"] == 2
    assert config["from"]["name"] == weights
    run(*config["command"].split()[1:], "--out", "again")
    assert (folder / "weights.safetensors").read_bytes() == Path("again/weights.safetensors").read_bytes()
    assert read_tensors(folder / "weights.safetensors", FORMAT)[1]["from"] == config["from"]
    for option, text in (
        (("--hops", "3"), "holds weights of hops = 2, not 3: omit hops"),
        (("--controller", "etdagnn"), "holds weights of controller = tdagnn, not etdagnn: omit controller"),
        (("--controller", "all"), "holds weights of controller = tdagnn, not all: omit controller"),
        (("--dimensions", "3"), "holds weights of dimensions = 2, not 3: omit dimensions"),
    ):
        assert text in failure(capsys, "train", "--from", weights, *option, "--out", "no")
    assert "nowhere.safetensors: there is no such file" in failure(capsys, "train", "--from", "nowhere.safetensors")
    several = "--seeds", "0-1", "--workers", "1", "--out", "several"
    run("train", *SMALL_TRAINING, "--from", weights, *several)
    assert TrainingRun(Path("several/tdagnn-1")).is_finished
    assert not Path("no").exists()


@pytest.mark.slow
def test_a_training_that_fails_before_its_first_result_leaves_no_directory(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs_here: None
) -> None:
    folder = tmp_path / "run"
    bad = "--learning-rate", "1e30", "--out", str(folder)
    assert "the training diverged in epoch 1" in failure(capsys, "train", *SMALL_TRAINING, *bad)
    assert not folder.exists()
    assert "diverged" in failure(capsys, "train", *SMALL_TRAINING, *bad, "--seeds", "0-1", "--workers", "1")
    assert not folder.exists()

    def no_memory(trainer: Trainer) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory: you ..")

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "collect", no_memory)
        assert "not enough memory: lower" in failure(capsys, "train", *SMALL_TRAINING, "--out", str(folder))
    assert not folder.exists()
    run("train", *SMALL_TRAINING, "--out", str(folder))
    assert "exists already: continue with --resume" in failure(capsys, "train", *SMALL_TRAINING, "--out", str(folder))
    run("train", *SMALL_TRAINING, "--seed", "4", "--out", str(folder), "--force")
    assert json.loads((folder / "config.json").read_text())["recipe"]["seed"] == 4


def test_a_training_takes_the_options_of_random_disk(tmp_path: Path) -> None:
    options = "--dimensions", "3", "--disk-radius", "1.5", "--no-connected", "--min-degree", "1", "--comm-radius", "0.9"
    run("train", *SMALL_TRAINING, *options, "--controller", "tdagnn", "--out", str(tmp_path / "run"))
    command = read_json(tmp_path / "run" / "config.json")["command"]
    assert "--dimensions 3 --disk-radius 1.5 --min-degree 1 --no-connected" in command
    controller = ef.load(tmp_path / "run" / "weights.safetensors")
    assert ef.simulate(ef.random_disk(1, 20, dimensions=3), controller, duration=0.02).positions.shape[-1] == 3


@pytest.mark.slow
def test_train_simulates_radio_and_body_and_refuses_invalid_ones(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, jobs_here: None
) -> None:
    hard = "--packet-loss", "0-0.5", "--delay", "0-2", "--max-acceleration", "3-100", "--lag", "0-0.1"
    several = "--seeds", "0-1", "--workers", "1", "--out", str(tmp_path / "hard")
    run("train", *SMALL_TRAINING, *hard, *several)
    config = read_json(tmp_path / "hard" / "etdagnn-1" / "config.json")
    assert [config["recipe"][name] for name in ("packet_loss", "delay", "max_acceleration")] == [
        "0-0.5",
        "0-2",
        "3-100",
    ]
    assert config["command"].endswith(" ".join(hard))
    # The same by its own command, and begun from these weights.
    again = shlex.split(config["command"])[1:]
    run(*again, "--out", str(tmp_path / "again"))
    weights = [tmp_path / name / "weights.safetensors" for name in ("hard/etdagnn-1", "again")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    run("train", *SMALL_TRAINING, "--from", str(weights[0]), "--packet-loss", "0.2", "--out", str(tmp_path / "more"))
    assert "the only option that it allows is --epochs" in failure(
        capsys, "train", "--resume", str(tmp_path / "again"), "--packet-loss", "0.1"
    )
    for option, text in (
        (("--packet-loss", "0-1.5"), "packet_loss must be a share from 0 to 1; got 1.5 in the range 0-1.5"),
        (("--delay", "0-0.5"), "delay must be a whole number, or a range of them such as 0-2; got '0-0.5'"),
        (("--packet-loss", "5-3"), "packet_loss must be a range from low to high, 3-5; got '5-3'"),
        (("--max-acceleration", "0-10"), "max_acceleration must be a finite number above 0; got 0.0 in the range 0-10"),
    ):
        assert text in failure(capsys, "train", *option, "--out", str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()
