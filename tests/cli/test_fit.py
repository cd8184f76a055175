"""`equiflock fit`: what it prints and saves, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from equiflock.evaluation import robot_fit
from tests.cli.commands import failure, run

ROVER = (
    *("--comm-radius", "4", "--rate", "20", "--max-acceleration", "4", "--max-speed", "2", "--agents", "5"),
    *("--controller", "reynolds", "--flocks", "3"),
)


@pytest.fixture(autouse=True)
def few_flights(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("CANDIDATES", 3),
        ("FINALISTS", 1),
        ("SEARCH_FLOCKS", 2),
        ("BISECTIONS", 2),
        ("LONG_FACTOR", 3),
    ):
        monkeypatch.setattr(robot_fit, name, value)


def test_fit_prints_the_time_scale_the_demands_and_the_next_commands(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "fit.json"
    run("fit", *ROVER, "--out", str(path))
    printed, saved = capsys.readouterr().out, json.loads(path.read_text())
    assert saved["met"] and printed.count("  met: ") == len(saved["demands"]) == 5
    for text in ("time scale", "median settling time", "packet loss", "latency", "initial speed", f"saved: {path}"):
        assert text in printed
    tau = f"{saved['time_scale']:g}"
    assert f'load it:   ef.load("reynolds", comm_radius=4, time_scale={tau})' in printed
    assert f"export it: equiflock export reynolds:comm_radius=4:time_scale={tau} --out robot.h" in printed


def test_the_printed_export_command_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("fit", *ROVER, "--dimensions", "3")
    command = capsys.readouterr().out.split("export it: equiflock ")[1].split()
    run(*command)
    assert (tmp_path / "robot.h").is_file()


def test_fit_exits_with_1_and_names_the_demands_that_are_not_met(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run("fit", *ROVER, "--latency", "3")
    printed = capsys.readouterr()
    assert ended.value.code == 1
    assert "NOT MET" in printed.out and "load it:" in printed.out
    assert printed.err.startswith("demands that are not met: connected, calm and apart, long flight, latency")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (("--min-speed", "3"), "min_speed must be below max_speed"),
        (("--rate", "nan"), "rate must be a finite number above 0; got nan"),
        (("--max-speed", "0.001"), "max_speed must be at least 0.08 m/s"),
        (("--controller", "tanner"), "tanner is an expert"),
    ],
)
def test_bad_input_exits_with_2_and_one_line(
    capsys: pytest.CaptureFixture[str], changed: tuple[str, ...], message: Any
) -> None:
    line = failure(capsys, "fit", *ROVER, *changed)
    assert message in line


def test_a_result_is_not_written_over_a_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert str(tmp_path) in failure(capsys, "fit", *ROVER, "--out", str(tmp_path))
