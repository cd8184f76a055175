"""Ctrl-C in a training: once to end at the next checkpoint, twice to end at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from equiflock.cli.ctrl_c import interrupt


class Stopping:
    """Turns Ctrl-C into a request to stop: `with Stopping(say) as stopping: run.train(.., should_stop=stopping)`.

    The first Ctrl-C makes `stopping()` true, and `say` is called to confirm it. A second one, or one before the
    training has called `stopping()` at all, when nothing would be lost, is a KeyboardInterrupt as usual.
    """

    def __init__(self, say: Callable[[], object]) -> None:
        self.say = say
        self._asked = self._pressed = False
        self._over = threading.Event()

    def __call__(self) -> bool:
        """Whether Ctrl-C was pressed; the training calls this before every epoch."""
        self._asked = True
        return self._pressed

    def __enter__(self) -> Stopping:
        # Only the main thread may install handlers of signals; elsewhere Ctrl-C stays as it is.
        self._before: Any = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._hear)
            # The handler may have interrupted a write to the terminal, so it must not write itself; a thread does.
            self._teller = threading.Thread(target=self._tell, daemon=True)
            self._teller.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._over.set()
            self._teller.join()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        """The handler of Ctrl-C."""
        if self._pressed or not self._asked:
            interrupt(number, frame)
        else:
            self._pressed = True

    def _tell(self) -> None:
        """Wait in a thread for Ctrl-C or the end of the block; confirm the former."""
        over = False
        while not (over or self._pressed):
            over = self._over.wait(timeout=0.05)
        if self._pressed:
            self.say()
