"""Exit with the parent process, even if it is killed: the system then closes the pipe that it holds.

The fork server imports this module first, with PIPE_VARIABLE set, and from then on exits with its parent.
"""

from __future__ import annotations

import os
import sys
import threading
from functools import cache
from multiprocessing.connection import wait

PIPE_VARIABLE = "EQUIFLOCK_PARENT_PIPE"
"""Environment variable with the path of the parent's pipe, for the fork server."""


@cache
def open_parent_pipe() -> str:
    """Open a pipe that closes with this process, and return the path by which its children open it. Linux only."""
    read_end, _ = os.pipe()
    return f"/proc/{os.getpid()}/fd/{read_end}"


def exit_when_closed(read_end: int) -> None:
    """Exit this process with code 1, or by SIGIO on Linux, once the other end of a pipe is closed.

    On Linux the system ends the process, whatever it does. Elsewhere a thread does, which has to wait for calls that
    hold the GIL, such as the compiler's.
    """
    if sys.platform == "linux":
        import fcntl

        # SIGIO, sent when the pipe closes, ends a process that has no handler for it.
        fcntl.fcntl(read_end, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(read_end, fcntl.F_SETFL, fcntl.fcntl(read_end, fcntl.F_GETFL) | os.O_ASYNC)
        if wait([read_end], timeout=0):  # closed before
            os._exit(1)
        return

    def wait_and_exit() -> None:
        wait([read_end])
        os._exit(1)

    threading.Thread(target=wait_and_exit, daemon=True).start()


if _path := os.environ.pop(PIPE_VARIABLE, None):
    try:
        exit_when_closed(os.open(_path, os.O_RDONLY | os.O_NONBLOCK))
    except PermissionError:  # on a hardened system; the fork server then exits when it has imported all modules
        pass
    except OSError:  # the parent has ended
        os._exit(1)
