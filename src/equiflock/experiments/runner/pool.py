"""A pool of processes that works through jobs, and leaves no process or semaphore behind however it ends."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

from equiflock.runtime.files import deaf_children, uninterrupted


def in_a_pool(work: Callable[..., object], jobs: Sequence[tuple[Any, ...]], workers: int) -> Generator[int, None, None]:
    """Call `work(*job)` for every job in `workers` processes; yields the number of every job that is done.

    Whatever ends it early, such as Ctrl-C, a job that fails or a process that dies, ends all processes at once.

    Args:
        work: a function that can be imported; arguments of jobs must be fit for pickle.
        jobs: the arguments of each call.
        workers: how many processes, at most one for each job.
    """
    if not jobs:
        return
    # Processes that were there before belong to somebody else.
    others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(min(workers, len(jobs)), multiprocessing.get_context("spawn"), _begin)
    try:
        # The library does not clean up after an interrupted start, so Ctrl-C waits until all processes are started.
        with uninterrupted(), deaf_children():
            numbers = {pool.submit(work, *job): number for number, job in enumerate(jobs)}
        for future in as_completed(numbers):
            future.result()
            yield numbers[future]
    except BaseException:
        for process in multiprocessing.active_children():
            if process not in others:
                process.kill()
        raise
    finally:
        with uninterrupted():
            pool.shutdown(wait=True, cancel_futures=True)
            # Its semaphores go when the last reference to it does, of which the pool's own parts hold some in cycles.
            # Where the program ends by os._exit nobody else would remove them.
            del pool
            gc.collect()


def _begin() -> None:
    """In every process: ignore Ctrl-C, which the parent handles, and end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    # A killed parent cannot end its children, so each waits for the parent's end in a thread.
    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
