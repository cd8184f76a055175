"""Progress of kernel compilation, which takes up to a minute in a first run without a cache.

Numba reports the start and the end of each function that it compiles, and nothing for functions from the cache, so a
warm start costs nothing. This module counts kernels, without Numba's own functions in them. The total is the number of
kernels that the call under way may reach; some of them turn out to be cached or unused.

After a second of compiling, standard error shows the progress: one line, rewritten on a terminal. A display that draws
its own lines wraps its work in `suppress_progress_output` and calls `format_progress`.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

from numba.core import event
from numba.core.dispatcher import Dispatcher

from equiflock._runtime.kernel_cache import KernelCache

PROGRESS_TEXT = "compiling kernels, first run only"
DISPLAY_DELAY = 1.0
"""Seconds of compiling before anything is shown."""
CLEAR_LINE = "\r\x1b[2K"


def format_progress() -> str | None:
    """Return a text such as "compiling kernels, first run only: 23 of 72"; None if nothing is compiled, or not long."""
    return _listener.format_text() if _listener.is_slow else None


@contextmanager
def suppress_progress_output() -> Iterator[None]:
    """Write nothing to standard error inside the block, as a display shows `format_progress`."""
    _listener.display_count += 1
    try:
        yield
    finally:
        _listener.display_count -= 1


class _Listener(event.Listener):
    """Counts compiled kernels. Numba compiles one function at a time, so events never overlap."""

    def __init__(self) -> None:
        self.display_count = 0
        self._compiled_count = 0
        self._compiling_stack: list[Dispatcher] = []
        """Kernels being compiled; each is needed by the one before it."""
        self._reachable: list[Dispatcher] = []
        """All kernels that the first of the stack may call."""
        self._total_seconds = 0.0
        """Seconds of finished compilations."""
        self._started_at = 0.0
        self._has_written = False

    @property
    def is_slow(self) -> bool:
        """Whether a kernel is being compiled now, and compiling took more than DISPLAY_DELAY seconds in total."""
        return bool(self._compiling_stack) and self._total_seconds + time.monotonic() - self._started_at > DISPLAY_DELAY

    def format_text(self) -> str:
        """Return the progress text: compiled kernels, of these plus the reachable ones that are not compiled yet."""
        uncompiled = (each for each in self._reachable if not each.overloads)
        waiting = {id(each) for each in (*uncompiled, *self._compiling_stack)}
        return f"{PROGRESS_TEXT}: {self._compiled_count} of {self._compiled_count + len(waiting)}"

    def on_start(self, event: Any) -> None:
        """Count the start of a compilation, if it is of a kernel, and show the progress."""
        dispatcher = event.data["dispatcher"]
        if not _is_kernel(dispatcher):
            return
        if not self._compiling_stack:
            self._started_at, self._reachable = time.monotonic(), list_kernels(dispatcher)
        self._compiling_stack.append(dispatcher)
        self._show()

    def on_end(self, event: Any) -> None:
        """Count the end of a compilation, if it is of a kernel; clear the progress line after the outermost one."""
        if not _is_kernel(event.data["dispatcher"]):
            return
        self._compiling_stack.pop()
        self._compiled_count += 1
        if self._compiling_stack:
            return
        self._total_seconds += time.monotonic() - self._started_at
        if self._has_written and not self.display_count:
            self._write(CLEAR_LINE)

    def _show(self) -> None:
        """Write the progress to standard error if compiling is slow and no display shows it.

        On a terminal one line is rewritten each time; elsewhere a line without numbers is written once.
        """
        # Child processes stay silent, as they share the terminal.
        if not self.is_slow or self.display_count or multiprocessing.parent_process() is not None:
            return
        if sys.stderr is not None and sys.stderr.isatty():
            self._has_written = True
            self._write(f"{CLEAR_LINE}{self.format_text()}")
        elif not self._has_written:
            self._has_written = True
            self._write(f"{PROGRESS_TEXT}; this may take a minute\n")

    def _write(self, text: str) -> None:
        """Write to standard error and ignore failures; a mere clearing of the line is only written to a terminal."""
        if sys.stderr is None or (text == CLEAR_LINE and not sys.stderr.isatty()):
            return
        with suppress(OSError, ValueError):  # a closed pipe must not stop a flight
            sys.stderr.write(text)
            sys.stderr.flush()


def _is_kernel(dispatcher: Any) -> bool:
    """Return whether a Numba dispatcher is a kernel of this package, by its cache."""
    return isinstance(getattr(dispatcher, "_cache", None), KernelCache)


def list_kernels(dispatcher: Dispatcher) -> list[Dispatcher]:
    """Return a kernel and all kernels that it may call, found by the names in its code and in inlined functions."""
    reachable, waiting = {id(dispatcher): dispatcher}, [dispatcher]
    while waiting:
        function = waiting.pop().py_func
        names = function.__code__.co_names
        values = [function.__globals__.get(name) for name in names]
        # Attributes of modules: geometry.diameter has the names geometry and diameter.
        values += [vars(each).get(name) for each in values if isinstance(each, ModuleType) for name in names]
        for each in values:
            if isinstance(each, Dispatcher) and id(each) not in reachable:
                reachable[id(each)] = each
                waiting.append(each)
    return [each for each in reachable.values() if _is_kernel(each)]


_listener = _Listener()


def register_listener() -> None:
    """Start counting compiled kernels."""
    event.register("numba:compile", _listener)
