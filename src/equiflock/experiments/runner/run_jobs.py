"""Runs the jobs of an experiment in parallel; each result is written as soon as it is computed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from pathlib import Path

from equiflock.experiments.runner.dask_cluster import run_on_dask
from equiflock.experiments.runner.jobs import Job, compute_result, is_done, write_result
from equiflock.experiments.runner.process_pool import run_in_pool
from equiflock.runtime.checks import InputError, check_count

MAX_POOLS = 3
"""How many pools of processes are tried, if processes die."""


def run_jobs(
    jobs: Sequence[Job],
    folder: Path,
    workers: int,
    on_done: Callable[[Job], object] = lambda job: None,
    prepare: Callable[[], object] | None = None,
    scheduler: str | None = None,
    on_notice: Callable[[str], object] = lambda text: None,
) -> None:
    """Run the jobs whose results are not in `folder` yet, or are damaged.

    Args:
        jobs: the jobs of one or several experiments.
        folder: the folder of their results.
        workers: how many processes here, if there is no scheduler.
        on_done: called with every job that is done, or was before.
        prepare: called before every job, where it runs, such as to register one's own controllers; importable.
        scheduler: the address of a Dask scheduler, such as tcp://10.0.0.1:8786, whose workers run the jobs.
        on_notice: called with a line of text about every damaged result.

    Results are written atomically and at once, so no finished job is lost or run again, whatever happens. They do not
    depend on where the jobs run.
    """
    check_count("workers", workers)
    # Results that are there and intact count as done at once.
    missing = []
    for job in jobs:
        if is_done(job, folder, lambda text: on_notice(f"{text}; this job is computed again")):
            on_done(job)
        else:
            missing.append(job)
    if not missing:
        return
    folder.mkdir(parents=True, exist_ok=True)
    if scheduler is None:
        done = _run_in_processes(missing, folder, workers, prepare)
    else:
        done = run_on_dask(missing, folder, scheduler, prepare)
    with closing(done):  # so that Ctrl-C in `on_done` ends the processes, too
        for job in done:
            on_done(job)


def _run_in_processes(
    jobs: Sequence[Job], folder: Path, workers: int, prepare: Callable[[], object] | None
) -> Generator[Job, None, None]:
    """Run jobs in `workers` processes, each of which writes its results itself; yields the jobs that are done.

    If a process dies, such as for want of memory, the jobs that are not done are run in a new pool.
    """
    for _ in range(MAX_POOLS):
        missing = [job for job in jobs if not is_done(job, folder)]
        try:
            with closing(run_in_pool(_run_and_write, [(job, folder, prepare) for job in missing], workers)) as done:
                for number in done:
                    yield missing[number]
        # The death of one process breaks the whole pool; what others have written is kept.
        except BrokenProcessPool:
            continue
        return
    names = ", ".join(job.key for job in jobs if not is_done(job, folder))
    raise InputError(f"processes died {MAX_POOLS} times, perhaps for want of memory; not done: {names}")


def _run_and_write(job: Job, folder: Path, prepare: Callable[[], object] | None) -> None:
    if prepare is not None:
        prepare()
    write_result(compute_result(job), job, folder)
