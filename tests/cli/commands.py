"""Commands as a user gives them, in this process, or each in a process of its own that remembers nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import equiflock
from equiflock import cli

SOURCE = Path(equiflock.__file__).parents[1]


def start(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    """Begin a command in a folder, in a process group of its own, as a terminal has it."""
    return subprocess.Popen(
        [sys.executable, "-m", "equiflock", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "80"},
        start_new_session=True,
        # Where the tests run in the background, Ctrl-C is ignored, and a child would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def command(*arguments: str, folder: Path, code: int = 0) -> tuple[str, str]:
    """Run a command to its end; returns what it printed on standard output and standard error."""
    process = start(*arguments, folder=folder)
    printed, errors = process.communicate(timeout=300)
    assert process.returncode == code, printed + errors
    assert "Traceback" not in errors
    return printed, errors


def run(*arguments: str) -> None:
    """Give a command in this process."""
    cli.main(list(arguments))


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a failing command prints on standard error."""
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    assert caught.value.code == 2
    return capsys.readouterr().err
