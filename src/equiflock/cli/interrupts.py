"""Ctrl-C and SIGTERM: exceptions also where Python drops them, or a request to stop that a training polls."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

RESEND_DELAY = 0.05
"""Seconds until a signal is sent again after Python dropped its exception."""

COMPILER_MODULE = "llvmlite.binding.executionengine"
"""Module of the functions that LLVM calls back while it compiles a kernel."""


@contextmanager
def ensure_keyboard_interrupt() -> Iterator[None]:
    """Ensure that Ctrl-C in this block of the main thread raises KeyboardInterrupt.

    Python drops it with a printed line in a destructor or in a function that C calls back; the program would continue.
    In that case SIGINT is sent again after a delay, until it has an effect. No effect if SIGINT is ignored, as in a
    shell's background job, or has a handler other than Python's.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    previous_hook = sys.unraisablehook

    def resend_or_report(dropped: Any) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            _resend(signal.SIGINT)
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
    if _is_compiler_callback(frame):
        _resend(signum)
    else:
        raise KeyboardInterrupt


def raise_system_exit(signum: int, frame: FrameType | None) -> None:
    """Handle SIGTERM: raise SystemExit with code 143, or send SIGTERM again later if a compiler callback is running."""
    if _is_compiler_callback(frame):
        _resend(signum)
    else:
        sys.exit(128 + signum)


@contextmanager
def defer_signals() -> Iterator[Callable[[], int | None]]:
    """Let Ctrl-C and SIGTERM in this block raise nothing; yield a function that returns the first of them, or None.

    For a loop that polls it, around C code such as that of ROS 2, which turns the exception of a signal handler into
    another one, or drops it. A signal that is ignored stays ignored.
    """
    received: list[int] = []
    watched = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) != signal.SIG_IGN]
    previous = {each: signal.signal(each, lambda signum, frame: received.append(signum)) for each in watched}
    try:
        yield lambda: received[0] if received else None
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)


def _is_compiler_callback(frame: FrameType | None) -> bool:
    """Return whether a frame is part of a function that LLVM calls back while it compiles.

    Numba receives the compiled object there; an exception would make it fail later.
    """
    while frame is not None:
        if frame.f_globals.get("__name__") == COMPILER_MODULE:
            return True
        frame = frame.f_back
    return False


def _resend(signum: int) -> None:
    """Send a signal to the main thread after a delay; now its exception would be dropped again."""
    timer = threading.Timer(RESEND_DELAY, _send_to_main_thread, [signum])
    timer.daemon = True
    timer.start()


def _send_to_main_thread(signum: int) -> None:
    """Send a signal to the main thread if possible, which wakes it if it is waiting, else to the process."""
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signum)
    else:
        signal.raise_signal(signum)


class StopRequest:
    """Context manager that turns Ctrl-C into a request to stop, which the training polls.

    In `with StopRequest(confirm) as stop_request: run.train(.., should_stop=stop_request)`, the first Ctrl-C makes
    `stop_request()` return True, so that the training stops at a checkpoint after this epoch, and calls `confirm` from
    a thread. A second Ctrl-C raises KeyboardInterrupt. So does one before the first poll, when no work would be lost.
    """

    def __init__(self, confirm: Callable[[], object]) -> None:
        self.confirm = confirm
        self._was_polled = self._is_requested = False
        self._block_ended = threading.Event()

    def __call__(self) -> bool:
        """Return whether Ctrl-C was pressed; the training calls this before every epoch."""
        self._was_polled = True
        return self._is_requested

    def __enter__(self) -> StopRequest:
        # Only the main thread may install signal handlers; in other threads Ctrl-C is unchanged. An ignored SIGINT, as
        # in a shell's background job, stays ignored.
        self._previous_handler: Any = None
        is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        if threading.current_thread() is threading.main_thread() and not is_ignored:
            self._previous_handler = signal.signal(signal.SIGINT, self._handle_sigint)
            # The handler may have interrupted a write to the terminal, so a thread prints the confirmation.
            self._confirm_thread = threading.Thread(target=self._confirm_when_requested, daemon=True)
            self._confirm_thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._previous_handler is not None:
            signal.signal(signal.SIGINT, self._previous_handler)
            self._block_ended.set()
            self._confirm_thread.join()

    def _handle_sigint(self, signum: int, frame: FrameType | None) -> None:
        if self._is_requested or not self._was_polled:
            raise_keyboard_interrupt(signum, frame)
        else:
            self._is_requested = True

    def _confirm_when_requested(self) -> None:
        """Wait for a request or the end of the block, and call `confirm` if there was a request. Runs in a thread."""
        has_ended = False
        while not (has_ended or self._is_requested):
            has_ended = self._block_ended.wait(timeout=0.05)
        if self._is_requested:
            self.confirm()
