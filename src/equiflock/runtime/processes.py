"""Start of child processes."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing import forkserver, resource_tracker
from typing import TYPE_CHECKING

from equiflock.runtime.files import ignore_sigint_in_children

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext


def get_process_context() -> ForkServerContext | SpawnContext:
    """Return the multiprocessing context for processes that share no thread and no lock with this one.

    On Linux a fork server creates them. It imports the package modules of this process, and torch, once, so that a
    process starts within milliseconds instead of seconds. The server starts at the first call, keeps the environment
    variables of that moment, and ends with this process.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    package = __name__.split(".")[0]
    context.set_forkserver_preload([name for name in sys.modules if name == "torch" or name.split(".")[0] == package])
    # Start the tracker first: its start would unblock Ctrl-C, which `ignore_sigint_in_children` blocks.
    resource_tracker.ensure_running()
    # The server must import from the path of this process, not from the current directory.
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "PYTHONSAFEPATH")}
    os.environ |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"}
    try:
        with ignore_sigint_in_children():
            forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
    return context
