"""The processes that a test has started."""

from __future__ import annotations

import contextlib

import psutil

from equiflock.deployment.robot_processes import ROBOT_CODE


def children() -> list[psutil.Process]:
    """Return the robot processes. Other children are those of earlier tests, such as a browser."""
    return [each for each in psutil.Process().children() if ROBOT_CODE in _command(each)]


def _command(process: psutil.Process) -> list[str]:
    """Return the command line; empty for a zombie."""
    with contextlib.suppress(psutil.ZombieProcess):
        return process.cmdline()
    return []
