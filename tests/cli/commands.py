"""Helpers that run commands, in this process or in a new one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import equiflock
from equiflock import cli
from equiflock.cli import plugins
from equiflock.controllers.registry import CONTROLLERS

SOURCE = Path(equiflock.__file__).parents[1]


def start(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    """Start a command in a directory, in a new process group, as a terminal does."""
    return subprocess.Popen(
        [sys.executable, "-m", "equiflock", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "80"},
        start_new_session=True,
    )


def run(*arguments: str) -> None:
    """Run a command in this process."""
    cli.main(list(arguments))


@contextmanager
def stays_alive() -> Iterator[None]:
    """Make Ctrl-C end a command in this process with SystemExit, not with os._exit."""
    before = signal.getsignal(signal.SIGINT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "_exit", sys.exit)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)  # the command ignores it at its end


@contextmanager
def forgetting_plugins(folder: Path) -> Iterator[None]:
    """Import plugins in the folder again, as in a new process, and forget them afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CONTROLLERS, "parts", dict(CONTROLLERS.parts))
        patch.setattr(plugins, "_plugin_modules", {})
        patch.setattr(plugins, "_plugin_checksums", {})
        patch.setattr(sys, "dont_write_bytecode", True)  # stale bytecode would hide a change within a second
        try:
            yield
        finally:
            for name, module in list(sys.modules.items()):
                if str(folder) in str(getattr(module, "__file__", None) or ""):
                    del sys.modules[name]


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that fails with exit code 2, and return its standard error."""
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    assert caught.value.code == 2
    return capsys.readouterr().err
