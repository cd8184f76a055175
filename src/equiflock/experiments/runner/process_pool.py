"""Process pool for jobs that leaves no process or semaphore behind, however it ends."""

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

    If the block ends early, by Ctrl-C, a failed job or a dead process, all processes are killed at once.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def __enter__(self) -> ProcessPool:
        # Child processes that already exist belong to other code.
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
            # The semaphores are removed with the last reference to the pool, and its parts reference it in cycles.
            # A program that ends by os._exit would not remove them otherwise.
            del self._pool
            gc.collect()

    def compute_results(self, work: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """Call `work(*job)` for every job; yield the index and return value of each as it finishes.

        The first error of a call is raised here, BrokenProcessPool if a process died.

        Args:
            work: importable function; arguments and results must be picklable.
            jobs: arguments of each call.
        """
        # The library does not clean up after an interrupted start, so delay Ctrl-C until all processes have started.
        with delay_sigint(), ignore_sigint_in_children():
            numbers = {self._pool.submit(work, *job): number for number, job in enumerate(jobs)}
        for future in as_completed(numbers):
            yield numbers[future], future.result()


def run_in_pool(
    work: Callable[..., object], jobs: Sequence[tuple[Any, ...]], workers: int
) -> Generator[int, None, None]:
    """Call `work(*job)` for every job in `workers` processes; yield the index of each job as it finishes.

    Args:
        work: importable function; arguments must be picklable.
        jobs: arguments of each call.
        workers: number of processes, at most one per job.
    """
    if not jobs:
        return
    with ProcessPool(min(workers, len(jobs))) as pool:
        for number, _ in pool.compute_results(work, jobs):
            yield number


def _initialize_worker() -> None:
    """Set up a worker process: ignore Ctrl-C, which the parent handles, and exit with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    # A killed parent cannot end its children, so each waits in a thread for the parent to end.
    def exit_with_parent() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()
