"""The processes that a test has started."""

from __future__ import annotations

import contextlib

import psutil

from equiflock.deployment.agent_processes import ROBOT_CODE


def children() -> list[psutil.Process]:
    """The processes of robots. Others of this process are those of earlier tests, such as a browser's."""
    return [each for each in psutil.Process().children() if ROBOT_CODE in _command(each)]


def _command(process: psutil.Process) -> list[str]:
    """Its words; none of one that has ended and that nobody has waited for."""
    with contextlib.suppress(psutil.ZombieProcess):
        return process.cmdline()
    return []
