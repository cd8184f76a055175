"""A pool of processes that works through jobs, and leaves no process or semaphore behind however it ends."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from types import TracebackType
from typing import Any

from equiflock.runtime.files import delay_sigint, ignore_sigint_in_children
from equiflock.runtime.processes import get_process_context


class ProcessPool:
    """Processes that wait for jobs, inside `with ProcessPool(4) as pool`; they start with the first jobs.

    Whatever ends the block early, such as Ctrl-C, a job that fails or a process that dies, ends all processes at once.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def __enter__(self) -> ProcessPool:
        # Processes that were there before belong to somebody else.
        self._other_processes = multiprocessing.active_children()
        self._pool = ProcessPoolExecutor(self.workers, get_process_context(), _initialize_worker)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            for process in multiprocessing.active_children():
                if process not in self._other_processes:
                    process.kill()
        with delay_sigint():
            self._pool.shutdown(wait=True, cancel_futures=True)
            # Its semaphores go when the last reference to it does, of which the pool's own parts hold some in cycles.
            # Where the program ends by os._exit nobody else would remove them.
            del self._pool
            gc.collect()

    def compute_results(self, work: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """Call `work(*job)` for every job; yields the number of every job that is done, and what it returned.

        Args:
            work: a function that can be imported; arguments of jobs, and results, must be fit for pickle.
            jobs: the arguments of each call.
        """
        # The library does not clean up after an interrupted start, so Ctrl-C waits until all processes are started.
        with delay_sigint(), ignore_sigint_in_children():
            numbers = {self._pool.submit(work, *job): number for number, job in enumerate(jobs)}
        for future in as_completed(numbers):
            yield numbers[future], future.result()


def run_in_pool(
    work: Callable[..., object], jobs: Sequence[tuple[Any, ...]], workers: int
) -> Generator[int, None, None]:
    """Call `work(*job)` for every job in `workers` processes; yields the number of every job that is done.

    Args:
        work: a function that can be imported; arguments of jobs must be fit for pickle.
        jobs: the arguments of each call.
        workers: how many processes, at most one for each job.
    """
    if not jobs:
        return
    with ProcessPool(min(workers, len(jobs))) as pool:
        for number, _ in pool.compute_results(work, jobs):
            yield number


def _initialize_worker() -> None:
    """In every process: ignore Ctrl-C, which the parent handles, and end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    # A killed parent cannot end its children, so each waits for the parent's end in a thread.
    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
