"""Kernels on several threads.

Kernels release the GIL and write to disjoint parts of an array, and each agent's sum has a fixed order, so the number
of threads never changes a bit of a result. They run on plain threads rather than a parallel runtime, so any number of
flights may run at once.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from equiflock._runtime.checks import InputError, check_count

AGENTS_PER_THREAD = 1_500
"""Minimum number of agents per thread."""

MAX_SMALL_FLOCK = 3_000
"""Up to this size one thread computes a whole flock, and batches are split by flocks."""

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_pool_process = -1
_count: ContextVar[int | None] = ContextVar("threads", default=None)
"""Set by `use`, separately in each thread and asynchronous task."""


def count() -> int:
    """Return the number of threads of kernels: set by `use`, else by EQUIFLOCK_THREADS, else one per core."""
    chosen = _count.get()
    if chosen is not None:
        return chosen
    named = os.environ.get("EQUIFLOCK_THREADS", "")
    if named:
        if not named.isdigit() or int(named) < 1:
            raise InputError(f"EQUIFLOCK_THREADS must be an integer of at least 1; got {named!r}")
        return int(named)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def use(threads: int) -> Iterator[None]:
    """Limit kernels called from this thread to `threads` threads inside the block: `with threads.use(1): ...`."""
    token = _count.set(check_count("threads", threads))
    try:
        yield
    finally:
        _count.reset(token)


def run_parallel(kernel: Callable[..., Any], parts: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Call `kernel(*part)` for all parts in parallel, the first on this thread; return the results in order.

    All calls end before this returns or raises. `parts` must not be empty.
    """
    # A single part needs no pool: handing it over would take longer than a small kernel.
    if len(parts) == 1:
        return [kernel(*parts[0])]
    others = [_get_pool().submit(kernel, *part) for part in parts[1:]]
    try:
        first = kernel(*parts[0])
    finally:
        wait(others)  # even after a failure, as the caller may use the arrays afterwards
    return [first, *(other.result() for other in others)]


def split_range(size: int, least: int) -> list[tuple[int, int]]:
    """Split range(size) into at most `count()` half-open ranges of nearly equal size, which is at least `least`."""
    most = size // max(least, 1)
    parts = min(count(), most) if most > 1 else 1
    return list(itertools.pairwise(size * part // parts for part in range(parts + 1)))


def split_flocks(flocks: int, agents: int) -> list[tuple[int, int]]:
    """Split range(flocks) into half-open ranges, one per thread, with at least AGENTS_PER_THREAD agents if possible."""
    return split_range(flocks, -(-AGENTS_PER_THREAD // agents))  # rounded up


@contextmanager
def use_one_thread() -> Iterator[None]:
    """Use one thread in kernels, and in torch if it is imported, inside the block.

    More threads slow down networks this small and could change the bits of torch.
    """
    torch = sys.modules.get("torch")  # without an import there are no threads
    before = None if torch is None else torch.get_num_threads()
    if torch is not None:
        torch.set_num_threads(1)
    try:
        with use(1):
            yield
    finally:
        if torch is not None:
            torch.set_num_threads(before)


def _get_pool() -> ThreadPoolExecutor:
    """Return the thread pool; a forked child gets a new one, as the parent's threads do not exist there."""
    global _pool, _pool_process
    with _lock:
        if _pool is None or _pool_process != os.getpid():
            _pool = ThreadPoolExecutor(max_workers=64, thread_name_prefix="equiflock")
            _pool_process = os.getpid()
        return _pool
