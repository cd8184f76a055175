"""How processes of the package start."""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext


def fresh_context() -> ForkServerContext | SpawnContext:
    """Return the multiprocessing context for processes that share no thread and no lock with this one.

    A server without threads forks them. It imports once what this process has imported of the package, and torch, so a
    process starts within milliseconds, where an interpreter of its own would import for seconds. The server starts with
    the first process, keeps the environment variables of that moment, and ends with this process.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():  # on Windows
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    package = __name__.split(".")[0]
    context.set_forkserver_preload([name for name in sys.modules if name == "torch" or name.split(".")[0] == package])
    # Its start unblocks Ctrl-C, which `deaf_children` blocks while processes start.
    resource_tracker.ensure_running()
    return context
