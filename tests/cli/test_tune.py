"""`equiflock tune`: improved weights, resuming, and one-line errors."""

from __future__ import annotations

import os
import re
import shlex
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import equiflock as ef
from equiflock.controllers.networks.weights import FORMAT, read_tensors
from tests.cli.commands import failure, run, stays_alive

TASKS = "1*flocking:agents=20:duration=0.3+1*obstacles:sides=6:agents=20:duration=1"
SMALL = (
    *("--tasks", TASKS, "--population", "4", "--flocks", "2", "--validation-flocks", "2", "--validate-every", "2"),
    *("--workers", "1"),
)


@pytest.mark.slow
def test_tune_prints_each_measure_and_its_command_repeats_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("tune", "etdagnn:3", *SMALL, "--generations", "3")
    printed = capsys.readouterr().out
    assert "generation 2: cost" in printed
    assert "obstacles:sides=6:agents=20:duration=1 failures" in printed
    assert "orbit technique of the weights: gravity_break" in printed
    folder = Path("runs/tuning/etdagnn-3-0")
    assert f"weights: {folder}/weights.safetensors" in printed.replace("\n", "")
    # Called again it is done, and with more generations it goes on.
    before = (folder / "weights.safetensors").read_bytes()
    run("tune", "etdagnn:3", *SMALL, "--generations", "3")
    assert "all 3 generations are done" in capsys.readouterr().out
    assert (folder / "weights.safetensors").read_bytes() == before
    command = read_tensors(folder / "weights.safetensors", FORMAT)[1]["command"]
    run(*shlex.split(command)[1:], "--workers", "1", "--out", "again")
    assert Path("again/weights.safetensors").read_bytes() == before
    run("tune", "etdagnn:3", *SMALL, "--generations", "4", "--out", "again")
    assert Path("again/scores/generation-000004.csv").exists()
    assert list(folder.glob("events.*"))


def test_tuned_weights_fly_with_their_own_orbit_parameters_which_are_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs_here: None
) -> None:
    network: Any = ef.load_module("etdagnn")
    network.orbit = ef.Orbit(near=0.25)
    path = ef.save(network, tmp_path / "mine.safetensors")
    course = "--scenario", "obstacles", "--sides", "6", "--agents", "20", "--flocks", "2", "--duration", "0.1"
    run("simulate", "--controller", str(path), *course, "--save", str(tmp_path / "run.zarr"))
    text = "orbit technique of the weights: gravity_break 0.5, dodge_angle 1.57, near 0.25, slow 1"
    assert text in capsys.readouterr().out
    assert ef.Trajectory.load(tmp_path / "run.zarr").config["orbit"]["near"] == 0.25
    run("simulate", "--controller", str(path), *course, "--no-orbit")
    run("simulate", "--controller", "etdagnn", *course)
    assert "orbit technique" not in capsys.readouterr().out
    monkeypatch.setattr("equiflock.evaluation.evaluate.list_baselines", lambda *_: ())  # they take their time
    run("evaluate", str(path), *course, "--workers", "1", "--out", str(tmp_path / "evaluation"))
    assert text in capsys.readouterr().out


@pytest.mark.slow
def test_invalid_input_is_a_one_line_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = "--out", str(tmp_path / "run")
    for words, expected in (
        (("tanner",), "tanner has no weights to tune: choose a trained network or a weights file"),
        (("nowhere.safetensors",), "nowhere.safetensors: there is no such file"),
        (("etdagn",), "did you mean 'etdagnn'"),
        (("etdagnn:comm_radius=5",), "weights are tuned in the units of their training: leave out comm_radius"),
        (("etdagnn", "--tasks", "1*floking"), "did you mean 'flocking'"),
        (("etdagnn", "--tasks", "flocking+leaders"), "tasks must be a name, or several with their shares"),
        (("etdagnn", "--measures", "1*speed"), "a measure must be one of"),
        (("etdagnn", "--tasks", "obstacles:side=3"), "scenario 'obstacles' has no option 'side'"),
        (("etdagnn", "--generations=-1"), "generations must be a whole number of at least 0"),
        (("etdagnn", "--workers", "0"), "workers must be a whole number of at least 1"),
        (
            ("etdagnn", *SMALL, "--measures", "1*leaders", "--tasks", "flocking:agents=20:duration=0.2"),
            "no task has a measure among leaders",
        ),
    ):
        text = failure(capsys, "tune", *words, *out)
        assert expected in text.replace("\n", " "), text
        assert "Traceback" not in text
    assert not (tmp_path / "run").exists()
    run("tune", "etdagnn", *SMALL, "--generations", "1", *out)
    capsys.readouterr()
    text = failure(capsys, "tune", "etdagnn", *SMALL, "--generations", "1", "--sigma", "0.1", *out)
    assert "has results of other settings: settings sigma = 0.05, not 0.1" in text.replace("\n", " ")
    run("tune", "etdagnn", *SMALL, "--generations", "1", "--sigma", "0.1", *out, "--force")


@pytest.mark.slow
def test_ctrl_c_finishes_the_generation_and_the_same_command_resumes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """In this process: its workers are those of a sweep, in tests/cli/test_interrupt.py."""
    words = ("tune", "etdagnn", *SMALL)
    scores = tmp_path / "run" / "scores"

    def press_after_the_second_generation() -> None:
        while not (scores / "generation-000002.csv").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press_after_the_second_generation, daemon=True).start()
    with stays_alive(), pytest.raises(SystemExit) as caught:
        run(*words, "--generations", "100000", "--out", str(tmp_path / "run"))
    printed, errors = capsys.readouterr()
    assert caught.value.code == 130, printed + errors
    assert re.search(r"finishing generation \d+; press Ctrl-C again to stop immediately", printed)
    assert "resume with: equiflock tune etdagnn --tasks" in errors
    done = len(list(scores.glob("generation-*.csv")))
    assert done >= 2
    for folder in ("run", "undisturbed"):
        run(*words, "--generations", str(done + 1), "--out", str(tmp_path / folder))
    weights = [(tmp_path / folder / "weights.safetensors").read_bytes() for folder in ("run", "undisturbed")]
    assert weights[0] == weights[1]
