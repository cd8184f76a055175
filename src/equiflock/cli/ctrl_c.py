"""Ctrl-C is heard wherever it comes, also where Python drops exceptions."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

RESEND_DELAY = 0.05
"""So long after a Ctrl-C that came at a bad moment it is pressed again."""

COMPILER_MODULE = "llvmlite.binding.executionengine"
"""The module whose functions LLVM calls back while it compiles a kernel."""


@contextmanager
def ensure_keyboard_interrupt() -> Iterator[None]:
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
            _resend_sigint()
        else:
            report(dropped)

    sys.unraisablehook = press_again_or_report
    signal.signal(signal.SIGINT, raise_keyboard_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = report


def raise_keyboard_interrupt(signum: int, frame: FrameType | None) -> None:
    """The handler of a Ctrl-C that shall interrupt: raises KeyboardInterrupt, or sees to it that it is raised soon."""
    # Numba takes the compiled object in such a call: without it, it fails later with an error of its own.
    while frame is not None:
        if frame.f_globals.get("__name__") == COMPILER_MODULE:
            _resend_sigint()
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def _resend_sigint() -> None:
    """Press Ctrl-C in a moment, from another thread, as here it would be dropped again."""
    timer = threading.Timer(RESEND_DELAY, _send_sigint)
    timer.daemon = True
    timer.start()


def _send_sigint() -> None:
    # Sent to the main thread where that is possible, which wakes it if it waits for something.
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)
