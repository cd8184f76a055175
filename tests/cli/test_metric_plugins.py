"""A metric of a plugin is shown by `simulate`, `evaluate` and `sweep`, and a broken one is refused before any job."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest

import equiflock as ef
from equiflock.cli import terminal as console
from tests.cli.commands import failure, forgetting_plugins, run

METRIC = """
import numpy as np
import equiflock as ef

@ef.metric("{name}", over_time="mean", larger_is_better=True)
def polarization(moment):
    "Length of the mean heading."
    headings = moment.flock.velocities / np.linalg.norm(moment.flock.velocities, axis=-1, keepdims=True)
    return np.linalg.norm(headings.mean(axis=1), axis={axis})
"""
SMALL = ("--flocks", "6", "--duration", "0.2", "--time-step", "0.02")


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_registry: None, jobs_here: None) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(console.out, "width", 100)


def write_plugin(file: str, name: str = "polarization", axis: int = -1) -> tuple[str, str]:
    Path(file).write_text(METRIC.format(name=name, axis=axis))
    return "--plugin", file


def has_title(printed: str) -> bool:
    """Return whether a table has the title of the metric, which `simulate` shows in one line, as a heading."""
    words = set(printed.split())
    return {"Length", "heading,", "mean"} <= words and "polarization" not in words


def test_simulate_shows_the_metric_in_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with forgetting_plugins(tmp_path):
        run("simulate", *write_plugin("polar_one.py"), *SMALL, "--agents", "15")
    assert "Length of the mean heading, mean" in capsys.readouterr().out


def test_evaluate_compares_by_the_metric(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = write_plugin("polar_two.py")
    with forgetting_plugins(tmp_path):
        run(
            "evaluate", "tanner-dynamic", "tanner", *plugin, *SMALL, "--agents", "15", "--workers", "1", "--out", "mine"
        )
    flights = pd.read_csv("mine/flights.csv").pivot(index="flock", columns="controller", values="polarization")
    comparison = pd.read_csv("mine/comparison.csv").set_index("metric")
    assert comparison.improvement["polarization"] == (flights["tanner"] > flights["tanner-dynamic"]).mean()
    curves = pd.read_csv("mine/flocking.csv")
    last = curves[(curves.metric == "polarization") & (curves.controller == "tanner")].sort_values("time")
    assert 0.0 < last["median"].iloc[0] < last["median"].iloc[-1] <= 1.0
    assert has_title(capsys.readouterr().out)


def test_sweep_has_a_column_and_a_heat_map_of_the_metric(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = write_plugin("polar_three.py")
    grid = ("--controller", "tanner", "--agents", "10,15", "--workers", "1", "--out", "swept")
    with forgetting_plugins(tmp_path):
        run("sweep", *plugin, *SMALL, *grid, "--metric", "polarization")
    assert Path("swept/polarization.png").exists()
    summary = pd.read_csv("swept/summary.csv")
    found = summary[summary.metric == "polarization"]
    assert found.agents.tolist() == [10, 15]
    assert found.n.tolist() == [6, 6]
    assert (found.interval_low < found["median"]).all()
    assert has_title(capsys.readouterr().out)


@pytest.mark.parametrize("command", [("evaluate", "tanner"), ("sweep", "--controller", "tanner", "--agents", "15")])
def test_a_metric_that_fails_is_reported_before_any_file_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    with forgetting_plugins(tmp_path):
        errors = failure(capsys, *command, *write_plugin("polar_four.py", axis=0), *SMALL)
    assert "the metric 'polarization' must return an array of " in errors
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("ivv", ("evaluate", "tanner")),
        ("outcome", ("evaluate", "tanner")),
        ("packet_loss", ("sweep", "--controller", "tanner", "--agents", "15", "--packet-loss", "0,0.1")),
        ("seed", ("sweep", "--controller", "tanner", "--agents", "15")),
    ],
)
def test_a_metric_must_not_have_the_name_of_another_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, command: tuple[str, ...]
) -> None:
    with forgetting_plugins(tmp_path):
        errors = failure(capsys, *command, *write_plugin("polar_five.py", name), *SMALL)
    assert f"the metric '{name}' has the name of another column of the table" in errors


def test_results_with_a_metric_are_not_those_without(tmp_path: Path) -> None:
    small = ("evaluate", "tanner-dynamic", "tanner", *SMALL, "--agents", "15", "--workers", "1", "--out", "mine")
    run(*small)
    assert len(list(Path("mine/jobs").iterdir())) == 2
    with forgetting_plugins(tmp_path):
        run(*small, *write_plugin("polar_six.py"), "--force")
        assert ef.metric_names()[-1] == "polarization"
    assert "polarization" in pd.read_csv("mine/flights.csv").columns
