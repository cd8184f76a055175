"""Ctrl-C in a training: once to end at the next checkpoint, twice to end at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class Stopping:
    """Whether the user wants a training to stop: `with Stopping(say) as stopping: run.train(.., should_stop=stopping)`.

    The first Ctrl-C is remembered, if the training has begun to ask, and `say` is called; the second one, or one that
    comes while nothing would be lost, is a KeyboardInterrupt as usual.
    """

    def __init__(self, say: Callable[[], object]) -> None:
        self.say = say
        self._asked = self._pressed = False
        self._over = threading.Event()

    def __call__(self) -> bool:
        """Whether to stop."""
        self._asked = True
        return self._pressed

    def __enter__(self) -> Stopping:
        self._before: Any = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._hear)
            # A handler must not write to a terminal that it may have interrupted the writing to; a thread may.
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
        if self._pressed or not self._asked:
            raise KeyboardInterrupt
        self._pressed = True

    def _tell(self) -> None:
        over = False
        while not (over or self._pressed):
            over = self._over.wait(timeout=0.05)
        if self._pressed:
            self.say()
