"""Workers that persist over many rounds of jobs, such as the generations of a search, and return results directly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing
from types import TracebackType

import pandas as pd

from equiflock.experiments.runner.dask_cluster import DaskCluster
from equiflock.experiments.runner.jobs import Job, compute_result
from equiflock.experiments.runner.process_pool import ProcessPool
from equiflock.experiments.runner.run_jobs import MAX_POOLS
from equiflock.runtime.checks import InputError, check_count


class PersistentWorkers:
    """Local processes or the workers of a Dask scheduler, inside `with PersistentWorkers(4) as workers`.

    They start with the first round and end with the block, however it ends. A single worker is this process.

    Args:
        workers: number of processes, without a scheduler.
        scheduler: address of a Dask scheduler.
        prepare: importable function, called by the worker before every job.
    """

    def __init__(self, workers: int, scheduler: str | None = None, prepare: Callable[[], object] | None = None) -> None:
        self.workers = check_count("workers", workers)
        self.scheduler, self.prepare = scheduler, prepare
        self._cluster: DaskCluster | None = None
        self._pool: ProcessPool | None = None

    def __enter__(self) -> PersistentWorkers:
        self._exit_stack = ExitStack()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exit_stack.__exit__(kind, error, traceback)

    def compute_tables(self, jobs: Sequence[Job], on_done: Callable[[], object] = lambda: None) -> list[pd.DataFrame]:
        """Return the results of all jobs in order; call `on_done` after each job.

        If a local process dies, a new pool runs the missing jobs; raise InputError after the third time. A failed job
        raises its error.
        """
        tables: dict[int, pd.DataFrame] = {}
        for _ in range(MAX_POOLS):
            missing = [number for number in range(len(jobs)) if number not in tables]
            try:
                for index, table in self._run_round([jobs[number] for number in missing]):
                    tables[missing[index]] = table
                    on_done()
            # If one process dies the whole pool breaks; results received so far are kept.
            except BrokenProcessPool as error:
                self._exit_stack.pop_all().__exit__(type(error), error, error.__traceback__)
                self._pool = None
                continue
            return [tables[number] for number in range(len(jobs))]
        raise InputError(f"worker processes died {MAX_POOLS} times, perhaps for lack of memory: use fewer workers")

    def _run_round(self, jobs: Sequence[Job]) -> Iterator[tuple[int, pd.DataFrame]]:
        """Yield the index and result of every job as it finishes; the first call starts the workers."""
        if self.scheduler is not None:
            if self._cluster is None:
                self._cluster = self._exit_stack.enter_context(DaskCluster(self.scheduler, self.prepare))
            with closing(self._cluster.compute_tables(jobs)) as results:
                yield from results
        elif self.workers == 1:
            for number, job in enumerate(jobs):
                yield number, _prepare_and_compute(job, self.prepare)
        else:
            if self._pool is None:
                self._pool = self._exit_stack.enter_context(ProcessPool(self.workers))
            yield from self._pool.compute_results(_prepare_and_compute, [(job, self.prepare) for job in jobs])


def _prepare_and_compute(job: Job, prepare: Callable[[], object] | None) -> pd.DataFrame:
    """Call `prepare`, if any, and return the result of a job; runs on the worker."""
    if prepare is not None:
        prepare()
    return compute_result(job)
