"""Ctrl-C is heard wherever it comes, also where Python drops exceptions."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SECONDS_UNTIL_AGAIN = 0.05
"""So long after a Ctrl-C that came at a bad moment it is pressed again."""

COMPILER = "llvmlite.binding.executionengine"
"""The module whose functions LLVM calls back while it compiles a kernel."""


@contextmanager
def heard_everywhere() -> Iterator[None]:
    """Ctrl-C in this block, of the main thread, is a KeyboardInterrupt in it.

    Python raises it wherever the program is. In a destructor, or in a function that C calls back, it drops it with no
    more than a printed line, and the program would fly on: there it is pressed again a moment later, until it counts.
    """
    # Left alone where Ctrl-C is ignored, as in a shell's background, or where somebody else handles it.
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    report = sys.unraisablehook

    def press_again_or_report(dropped: Any) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            _press_again()
        else:
            report(dropped)

    sys.unraisablehook = press_again_or_report
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = report


def interrupt(number: int, frame: FrameType | None) -> None:
    """The handler of a Ctrl-C that shall interrupt: raises KeyboardInterrupt, or sees to it that it is raised soon."""
    # Numba takes the compiled object in such a call: without it, it fails later with an error of its own.
    while frame is not None:
        if frame.f_globals.get("__name__") == COMPILER:
            _press_again()
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def _press_again() -> None:
    """Press Ctrl-C in a moment, from another thread, as here it would be dropped again."""
    timer = threading.Timer(SECONDS_UNTIL_AGAIN, _press)
    timer.daemon = True
    timer.start()


def _press() -> None:
    # Sent to the main thread where that is possible, which wakes it if it waits for something.
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)
