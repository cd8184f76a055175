"""The processes that a test has started."""

from __future__ import annotations

import contextlib

import psutil


def children() -> list[psutil.Process]:
    """The processes of robots. Others of this process are those of earlier tests, such as multiprocessing's tracker."""
    return [each for each in psutil.Process().children() if "multiprocessing" not in " ".join(_command(each))]


def _command(process: psutil.Process) -> list[str]:
    """Its words; none of one that has ended and that nobody has waited for."""
    with contextlib.suppress(psutil.ZombieProcess):
        return process.cmdline()
    return []
