"""Scenarios on the command line: their options are options of the commands, or follow the scenario's name."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import equiflock as ef
from equiflock.simulation.flight_jobs import resolve_measures
from tests.cli.commands import run


@pytest.mark.parametrize("scenario", ef.scenario_names())
def test_every_scenario_is_simulated_and_saved_with_its_name_and_options(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, scenario: str
) -> None:
    path = tmp_path / "run.zarr"
    small = "--agents", "20", "--flocks", "2", "--duration", "0.1", "--save", str(path)
    run("simulate", "--controller", "etdagnn", "--scenario", scenario, *small)
    made = ef.make_scenario(scenario, flocks=2, agents=20)
    assert ("ended:" in capsys.readouterr().out) == (made.ending() is not None)
    saved = ef.Trajectory.load(path)
    assert saved.config["scenario"] == scenario
    assert saved.config["start"]["agents"] == 20
    assert set(resolve_measures(made)) <= set(saved.series)
    assert (saved.positions[0] == made.draw().positions).all()


@pytest.mark.slow
def test_options_of_a_scenario_are_options_of_the_command_or_follow_its_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit):
        run("simulate", "--scenario", "obstacles", "--help")
    assert "--sides INT" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run("simulate", "--help")
    assert "--sides INT" not in capsys.readouterr().out
    ways = {
        "flags": ("--scenario", "obstacles", "--sides", "6", "--no-orbit"),
        "name": ("--scenario=obstacles:sides=6:orbit=none",),
        "both": ("--scenario", "obstacles:orbit=none", "--sides", "6"),
    }
    for name, words in ways.items():
        run("simulate", *words, "--agents", "20", "--duration", "0.01", "--save", str(tmp_path / f"{name}.zarr"))
        saved = ef.Trajectory.load(tmp_path / f"{name}.zarr")
        assert (saved.config["start"]["sides"], saved.config["orbit"]) == (6, None), name
    with pytest.raises(SystemExit):
        run("simulate", "--scenario", "obstacles:sides=48", "--sides", "6")
    assert "option 'sides' is given twice, as 48 in 'obstacles:sides=48' and as 6" in capsys.readouterr().err


def test_the_default_duration_is_that_of_the_scenario_test(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run("simulate", "--scenario", "leaders", "--agents", "10", "--save", str(tmp_path / "run.zarr"))
    saved = ef.Trajectory.load(tmp_path / "run.zarr")
    assert (saved.config["duration"], saved.time_step) == (3.0, 0.01)
    assert "leader velocity distance (MLVD), end" in capsys.readouterr().out


@pytest.mark.slow
def test_a_warning_is_printed_if_patterns_of_law_and_scenario_differ(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, jobs_here: None
) -> None:
    small = "--scenario", "formation", "--pattern", "EQ", "--agents", "9", "--duration", "0.02"
    for command in (
        ("simulate", "--controller"),
        ("evaluate", "--flocks", "1", "--workers", "1", "--out", str(tmp_path / "out")),
    ):
        run(*command, "formation", *small)
        warning = "the pattern of the scenario is 'EQ', that of the controller 'vee': choose the same for both"
        assert warning in capsys.readouterr().err.splitlines()
    run("simulate", "--controller", "formation:pattern=EQ", *small)
    assert "choose the same" not in capsys.readouterr().err


WALLED = """
import numpy as np
from dataclasses import dataclass, field
import equiflock as ef
from equiflock.scenarios.obstacle_shapes import add_obstacle, ring, wall

OUT = ef.Outcome.add("OUT", "the flock is out")


def first_agent(moment):
    return moment.flock.positions[:, 0, 0]


@ef.scenario("walled")
@dataclass(frozen=True)
class Walled:
    disk: ef.RandomDisk = field(default_factory=lambda: ef.RandomDisk(agents=15))
    length: float = 4.0
    \"\"\"Of the walls.\"\"\"
    measures = (first_agent,)
    duration = 0.2
    success_outcomes = (OUT,)

    def draw(self, stop=None):
        flock = self.disk.draw(stop)
        for y in (-5.0, 5.0):
            flock = add_obstacle(flock, wall((-5.0, y), (self.length - 5.0, y), 0.2))
        return add_obstacle(flock, ring((9.0, 0.0), 1.0, spacing=0.2))

    def ending(self):
        return lambda times, flock, flying: np.where(times > 0.1, OUT, ef.Outcome.FLYING)
"""


def test_a_plugin_scenario_with_walls_is_simulated_and_filmed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_registry: None
) -> None:
    (tmp_path / "walled_garden.py").write_text(WALLED)
    monkeypatch.setattr(sys, "path", list(sys.path))
    own = "--plugin", str(tmp_path / "walled_garden.py"), "--scenario", "walled", "--length", "3"
    run("simulate", *own, "--flocks", "2", "--save", str(tmp_path / "run.zarr"))
    printed = capsys.readouterr().out
    assert re.search(r"failed +0 of 2", printed)
    assert re.search(r"ended: out +2 of 2", printed)
    assert "first agent, end" in printed
    saved = ef.Trajectory.load(tmp_path / "run.zarr")
    assert saved.config["start"]["length"] == 3.0
    assert int(saved.obstacles.max()) == 2
    film = tmp_path / "film.mp4"
    run("animate", *own, "--out", str(film), "--dots-per-inch", "40", "--frames-per-second", "10")
    assert b"ftyp" in film.read_bytes()[:16]
