"""Ctrl-C in a training: once to end at the next checkpoint, twice to end at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from equiflock.cli.ctrl_c import raise_keyboard_interrupt


class StopRequest:
    """Turns Ctrl-C into a request to stop: `with Stopping(say) as stopping: run.train(.., should_stop=stopping)`.

    The first Ctrl-C makes `stopping()` true, and `confirm` is called to confirm it. A second one, or one before the
    training has called `stopping()` at all, when nothing would be lost, is a KeyboardInterrupt as usual.
    """

    def __init__(self, confirm: Callable[[], object]) -> None:
        self.confirm = confirm
        self._was_polled = self._is_requested = False
        self._block_ended = threading.Event()

    def __call__(self) -> bool:
        """Whether Ctrl-C was pressed; the training calls this before every epoch."""
        self._was_polled = True
        return self._is_requested

    def __enter__(self) -> StopRequest:
        # Only the main thread may install handlers of signals; elsewhere Ctrl-C stays as it is.
        self._previous_handler: Any = None
        if threading.current_thread() is threading.main_thread():
            self._previous_handler = signal.signal(signal.SIGINT, self._handle_sigint)
            # The handler may have interrupted a write to the terminal, so it must not write itself; a thread does.
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
        """The handler of Ctrl-C."""
        if self._is_requested or not self._was_polled:
            raise_keyboard_interrupt(signum, frame)
        else:
            self._is_requested = True

    def _confirm_when_requested(self) -> None:
        """Wait in a thread for Ctrl-C or the end of the block; confirm the former."""
        over = False
        while not (over or self._is_requested):
            over = self._block_ended.wait(timeout=0.05)
        if self._is_requested:
            self.confirm()
