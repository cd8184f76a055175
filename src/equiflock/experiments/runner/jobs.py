"""An experiment is a bag of jobs that know nothing of each other: run in parallel, each kept as soon as it is done."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Generator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pandas as pd

from equiflock.experiments.runner.pool import in_a_pool
from equiflock.runtime.checks import InputError, check_count
from equiflock.runtime.checksums import DamagedError, read_text, write_text

MOST_POOLS = 3
"""How often a pool whose processes die is made again."""


@runtime_checkable
class Job(Protocol):
    """One piece of an experiment: frozen, with everything that has a say in its result."""

    @property
    def key(self) -> str:
        """Its name among all jobs, fit for a file's."""
        ...

    @property
    def labels(self) -> dict[str, Any]:
        """What its rows are marked with in the experiment's table."""
        ...

    def run(self) -> pd.DataFrame:
        """The result, a tidy table."""
        ...


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
        jobs: of one or several experiments.
        folder: of their results.
        workers: how many processes here, if there is no scheduler.
        on_done: called with every job that is done, or was before.
        prepare: called before every job, where it runs, such as to register one's own controllers; importable.
        scheduler: the address of a Dask scheduler, such as tcp://10.0.0.1:8786, whose workers run the jobs.
        on_notice: called with a line of text about every damaged result.

    A result is written under its final name only when it is whole, as soon as it is there; so whatever happens, no
    finished job is lost or run again. Results do not depend on who runs the jobs.
    """
    check_count("workers", workers)
    folder.mkdir(parents=True, exist_ok=True)
    missing = []
    for job in jobs:
        if is_done(job, folder, lambda text: on_notice(f"{text}; this job is computed again")):
            on_done(job)
        else:
            missing.append(job)
    if not missing:
        return
    if scheduler is None:
        done = _on_processes(missing, folder, workers, prepare)
    else:
        from equiflock.experiments.runner.cluster import on_dask

        done = on_dask(missing, folder, scheduler, prepare)
    with closing(done):  # so that Ctrl-C in `on_done` ends the processes, too
        for job in done:
            on_done(job)


def is_done(job: Job, folder: Path, on_damage: Callable[[str], object] = lambda text: None) -> bool:
    """Whether the job's result is in the folder as it was written; a damaged one is told, and counts as missing."""
    try:
        read_text(path_of(job, folder))
    except FileNotFoundError:
        return False
    except DamagedError as error:
        on_damage(str(error))
        return False
    return True


def collect(jobs: Sequence[Job], folder: Path) -> pd.DataFrame:
    """The results of all jobs in one table, each row marked with its job's labels."""
    return pd.concat([read_table(path_of(job, folder)).assign(**job.labels) for job in jobs], ignore_index=True)


def read_table(path: Path) -> pd.DataFrame:
    """A job's result; an error if it is not what was written."""
    # Without the last line, rather than with comment="#": a text in the table may have that sign in it.
    return pd.read_csv(io.StringIO(read_text(path)))


def path_of(job: Job, folder: Path) -> Path:
    """Named by what the job is, so that the result of other settings is another file."""
    return folder / f"{job.key}-{hashlib.sha256(repr(job).encode()).hexdigest()[:12]}.csv"


def compute(job: Job) -> pd.DataFrame:
    """The job's table, by one thread."""
    from equiflock.runtime.threads import one_thread

    with one_thread():
        return job.run()


def keep(table: pd.DataFrame, job: Job, folder: Path) -> None:
    """Write a result, with a checksum as its last line."""
    write_text(table.to_csv(index=False, lineterminator="\n"), path_of(job, folder))


def _on_processes(
    jobs: Sequence[Job], folder: Path, workers: int, prepare: Callable[[], object] | None
) -> Generator[Job, None, None]:
    """Run jobs in so many processes, each of which writes its results itself; yields those that are done.

    If a process dies, such as for want of memory, the jobs that are not done are run again in new ones.
    """
    for _ in range(MOST_POOLS):
        missing = [job for job in jobs if not is_done(job, folder)]
        try:
            with closing(in_a_pool(_run, [(job, folder, prepare) for job in missing], workers)) as done:
                for number in done:
                    yield missing[number]
        except BrokenProcessPool:
            continue
        return
    names = ", ".join(job.key for job in jobs if not is_done(job, folder))
    raise InputError(f"processes died {MOST_POOLS} times, perhaps for want of memory; not done: {names}")


def _run(job: Job, folder: Path, prepare: Callable[[], object] | None) -> None:
    if prepare is not None:
        prepare()
    keep(compute(job), job, folder)
