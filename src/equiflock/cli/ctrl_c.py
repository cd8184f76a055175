"""Reliable Ctrl-C: a KeyboardInterrupt also where Python drops exceptions."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

RESEND_DELAY = 0.05
"""Seconds until SIGINT is sent again after Python dropped a KeyboardInterrupt."""

COMPILER_MODULE = "llvmlite.binding.executionengine"
"""Module of the functions that LLVM calls back while it compiles a kernel."""


@contextmanager
def ensure_keyboard_interrupt() -> Iterator[None]:
    """Ensure that Ctrl-C in this block of the main thread raises KeyboardInterrupt.

    Python raises it wherever the program is, and drops it with a printed line in a destructor or in a function that C
    calls back; the program would continue. In that case SIGINT is sent again after a delay, until it has an effect. No
    effect if SIGINT is ignored or has a handler other than Python's.
    """
    # Leave the handler alone if Ctrl-C is ignored, as in a shell's background job, or has another handler.
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    previous_hook = sys.unraisablehook

    def resend_or_report(dropped: Any) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            _resend_sigint()
        else:
            previous_hook(dropped)

    sys.unraisablehook = resend_or_report
    signal.signal(signal.SIGINT, raise_keyboard_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = previous_hook


def raise_keyboard_interrupt(signum: int, frame: FrameType | None) -> None:
    """Handle SIGINT: raise KeyboardInterrupt, or send SIGINT again later if a compiler callback is running."""
    # Numba receives the compiled object in such a callback; an exception there makes it fail later.
    while frame is not None:
        if frame.f_globals.get("__name__") == COMPILER_MODULE:
            _resend_sigint()
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def _resend_sigint() -> None:
    """Send SIGINT after a delay from another thread; here it would be dropped again."""
    timer = threading.Timer(RESEND_DELAY, _send_sigint)
    timer.daemon = True
    timer.start()


def _send_sigint() -> None:
    """Send SIGINT to the main thread, which wakes it if it is waiting."""
    # Send it to the main thread if possible, which wakes the thread if it is waiting.
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)
