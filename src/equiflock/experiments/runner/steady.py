"""Workers that stay for many rounds of jobs, such as the generations of a search, whose results come back at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing
from types import TracebackType

import pandas as pd

from equiflock.experiments.runner.cluster import Cluster
from equiflock.experiments.runner.jobs import Job, compute
from equiflock.experiments.runner.pool import Pool
from equiflock.experiments.runner.running import MOST_POOLS
from equiflock.runtime.checks import InputError, check_count


class SteadyWorkers:
    """Processes here, or the workers of a Dask scheduler, inside `with SteadyWorkers(4) as workers`.

    They start with the first round and end with the block, however it ends. One worker is this process itself.

    Args:
        workers: how many processes, if there is no scheduler.
        scheduler: the address of a Dask scheduler.
        prepare: called before every job, where it runs; importable.
    """

    def __init__(self, workers: int, scheduler: str | None = None, prepare: Callable[[], object] | None = None) -> None:
        self.workers = check_count("workers", workers)
        self.scheduler, self.prepare = scheduler, prepare
        self._cluster: Cluster | None = None
        self._pool: Pool | None = None

    def __enter__(self) -> SteadyWorkers:
        self._held = ExitStack()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._held.__exit__(kind, error, traceback)

    def tables(self, jobs: Sequence[Job], on_done: Callable[[], object] = lambda: None) -> list[pd.DataFrame]:
        """The results of all jobs, in their order; `on_done` is called after each of them."""
        found: dict[int, pd.DataFrame] = {}
        for _ in range(MOST_POOLS):
            missing = [number for number in range(len(jobs)) if number not in found]
            try:
                for place, table in self._round([jobs[number] for number in missing]):
                    found[missing[place]] = table
                    on_done()
            # The death of one process breaks the whole pool; what others have sent is kept.
            except BrokenProcessPool as error:
                self._held.pop_all().__exit__(type(error), error, error.__traceback__)
                self._pool = None
                continue
            return [found[number] for number in range(len(jobs))]
        raise InputError(f"processes died {MOST_POOLS} times, perhaps for want of memory")

    def _round(self, jobs: Sequence[Job]) -> Iterator[tuple[int, pd.DataFrame]]:
        """The number and the result of every job, as they are done."""
        if self.scheduler is not None:
            if self._cluster is None:
                self._cluster = self._held.enter_context(Cluster(self.scheduler, self.prepare))
            with closing(self._cluster.tables(jobs)) as tables:
                yield from tables
        elif self.workers == 1:
            for number, job in enumerate(jobs):
                yield number, _computed(job, self.prepare)
        else:
            if self._pool is None:
                self._pool = self._held.enter_context(Pool(self.workers))
            yield from self._pool.results(_computed, [(job, self.prepare) for job in jobs])


def _computed(job: Job, prepare: Callable[[], object] | None) -> pd.DataFrame:
    if prepare is not None:
        prepare()
    return compute(job)
