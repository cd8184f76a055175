"""Ctrl-C in a training: once to stop at a checkpoint after this epoch, twice to stop immediately."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from equiflock.cli.ctrl_c import raise_keyboard_interrupt


class StopRequest:
    """Context manager that turns Ctrl-C into a request to stop, which the training polls.

    In `with StopRequest(confirm) as stop_request: run.train(.., should_stop=stop_request)`, the first Ctrl-C makes
    `stop_request()` return True and calls `confirm` from a thread. A second Ctrl-C raises KeyboardInterrupt. So does
    one before the first poll, when no work would be lost.
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
        # Only the main thread may install signal handlers; in other threads Ctrl-C is unchanged.
        self._previous_handler: Any = None
        if threading.current_thread() is threading.main_thread():
            self._previous_handler = signal.signal(signal.SIGINT, self._handle_sigint)
            # The handler may have interrupted a write to the terminal, so a thread prints the confirmation.
            self._confirm_thread = threading.Thread(target=self._confirm_when_requested, daemon=True)
            self._confirm_thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._previous_handler is not None:
            signal.signal(signal.SIGINT, self._previous_handler)
            self._block_ended.set()
            self._confirm_thread.join()

    def _handle_sigint(self, signum: int, frame: FrameType | None) -> None:
        """Record the first SIGINT; raise KeyboardInterrupt for a second, or for one before the first poll."""
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
