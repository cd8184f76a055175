"""Commands as a user gives them, in this process, or each in a process of its own that remembers nothing."""

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
from equiflock.controllers import registry

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
    )


def run(*arguments: str) -> None:
    """Give a command in this process."""
    cli.main(list(arguments))


@contextmanager
def stays_alive() -> Iterator[None]:
    """Let a command in this process end as Ctrl-C ends it, with a SystemExit."""
    before = signal.getsignal(signal.SIGINT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "_exit", sys.exit)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)  # a program that ends ignores it


@contextmanager
def forgetting_plugins(folder: Path) -> Iterator[None]:
    """As in a process of its own: plugins in the folder are imported anew, and forgotten afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_factories", dict(registry._factories))
        patch.setattr(plugins, "_plugin_modules", {})
        patch.setattr(plugins, "_plugin_checksums", {})
        patch.setattr(sys, "dont_write_bytecode", True)  # or a change within a second would go unnoticed
        try:
            yield
        finally:
            for name, module in list(sys.modules.items()):
                if str(folder) in str(getattr(module, "__file__", None) or ""):
                    del sys.modules[name]


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a failing command prints on standard error."""
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    assert caught.value.code == 2
    return capsys.readouterr().err
