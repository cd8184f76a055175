"""Parallel execution of the jobs of an experiment; each result is written as soon as it is computed."""

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
"""Number of process pools to try if processes die."""


def run_jobs(
    jobs: Sequence[Job],
    folder: Path,
    workers: int,
    on_done: Callable[[Job], object] = lambda job: None,
    prepare: Callable[[], object] | None = None,
    scheduler: str | None = None,
    on_notice: Callable[[str], object] = lambda text: None,
) -> None:
    """Run the jobs whose results in `folder` are missing or damaged, in parallel; return when all are done.

    Args:
        jobs: jobs of one or several experiments.
        folder: directory of the results.
        workers: number of local processes, without a scheduler.
        on_done: called with every job that is finished, including those of earlier runs.
        prepare: importable function, called by the worker before every job, for example to register controllers.
        scheduler: address of a Dask scheduler, such as tcp://10.0.0.1:8786, whose workers run the jobs.
        on_notice: called with a line of text about every damaged result.

    Each result is written atomically as soon as its job finishes, so an interruption never loses a finished job.
    Results do not depend on where the jobs run.
    """
    check_count("workers", workers)
    # Existing, intact results count as done.
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
    with closing(done):  # so that Ctrl-C in `on_done` also ends the processes
        for job in done:
            on_done(job)


def _run_in_processes(
    jobs: Sequence[Job], folder: Path, workers: int, prepare: Callable[[], object] | None
) -> Generator[Job, None, None]:
    """Run jobs in `workers` processes that write their results; yield each job when it is finished.

    If a process dies, for example for lack of memory, a new pool runs the remaining jobs; after the third time
    InputError is raised.
    """
    for _ in range(MAX_POOLS):
        missing = [job for job in jobs if not is_done(job, folder)]
        try:
            with closing(run_in_pool(_run_and_write, [(job, folder, prepare) for job in missing], workers)) as done:
                for number in done:
                    yield missing[number]
        # If one process dies the whole pool breaks; results written so far are kept.
        except BrokenProcessPool:
            continue
        return
    names = ", ".join(job.key for job in jobs if not is_done(job, folder))
    raise InputError(
        f"worker processes died {MAX_POOLS} times, perhaps for lack of memory: use fewer workers; not done: {names}"
    )


def _run_and_write(job: Job, folder: Path, prepare: Callable[[], object] | None) -> None:
    """Call `prepare`, if any, run a job and write its result; runs in a process of the pool."""
    if prepare is not None:
        prepare()
    write_result(compute_result(job), job, folder)
