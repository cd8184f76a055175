"""The option --safety of commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import failure, run

LIMITS = "max_acceleration=4:max_speed=1.5:min_separation=0.3:max_silence=1:fence=-5,-5,5,5"


def test_a_simulation_reports_which_limits_applied(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run("simulate", "--agents", "10", "--flocks", "2", "--duration", "0.1", "--safety", LIMITS)
    printed = capsys.readouterr().out
    assert "limits: " in printed and "LIMITED" in printed
    run("simulate", "--agents", "10", "--flocks", "2", "--duration", "0.1")
    assert "limits: " not in capsys.readouterr().out


def test_an_export_has_the_limits(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run("export", "starling", "--out", str(tmp_path / "agent.h"), "--safety", LIMITS)
    assert "#define AGENT_MAX_SPEED 1.5f" in (tmp_path / "agent.h").read_text()
    run("export", "starling", "--out", str(tmp_path / "agent.h"))
    assert "MAX_SPEED" not in (tmp_path / "agent.h").read_text()


@pytest.mark.parametrize(
    ("safety", "message"),
    [
        ("max_speed=1", "limits must have a max_acceleration"),
        ("max_acceleration=-4", "max_acceleration must be a finite number above 0; got -4"),
        ("max_acceleration=4:fence=5,5,-5,-5", "the first corner of the fence must be below the second"),
        ("max_acceleration=4:fence=-1,-1,-1,1,1,1", "the corners of the fence must have D = 2 numbers each; got 3"),
    ],
)
@pytest.mark.parametrize("command", ["simulate", "export", "deploy"])
def test_bad_limits_are_one_clear_line(
    command: str, safety: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if command == "deploy":
        pytest.importorskip("zenoh")
    arguments = {
        "simulate": ("--agents", "5", "--flocks", "1", "--duration", "0.01"),
        "export": ("starling", "--out", str(tmp_path / "agent.h")),
        "deploy": ("--agents", "3", "--duration", "0.01"),
    }
    printed = failure(capsys, command, *arguments[command], "--safety", safety)
    assert message in " ".join(printed.split())
