"""Executors of jobs: local processes, or the workers of a Dask scheduler."""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, suppress
from functools import cache
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pandas as pd

from equiflock._runtime.checks import InputError, check_count
from equiflock._runtime.files import delay_sigint, ignore_sigint_in_children
from equiflock._runtime.jobs import Job, compute_result, get_result_path, is_done, write_result
from equiflock._runtime.provenance import read_package_versions, set_plugin_checksums

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext


# Start of child processes.


def get_process_context() -> ForkServerContext | SpawnContext:
    """Return the multiprocessing context for processes that share no thread and no lock with this one.

    On Linux a fork server creates them. It imports the package modules of this process, and torch, once, so that a
    process starts within milliseconds instead of seconds. The server starts at the first call, keeps the environment
    variables of that moment, and ends with this process.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    package = __name__.split(".")[0]
    context.set_forkserver_preload([name for name in sys.modules if name == "torch" or name.split(".")[0] == package])
    # Start the tracker first: its start would unblock Ctrl-C, which `ignore_sigint_in_children` blocks.
    resource_tracker.ensure_running()
    # The server must import from the path of this process, not from the current directory.
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "PYTHONSAFEPATH")}
    os.environ |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"}
    try:
        with ignore_sigint_in_children():
            forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
    return context


# Process pool for jobs that leaves no process or semaphore behind, however it ends.


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


# Execution of jobs on the workers of a Dask scheduler.

CONNECT_TIMEOUT = 15
"""Seconds to wait for a scheduler and for its first worker."""

_job_lock = threading.Lock()
"""Held by a worker thread during a job, which sets torch's threads and seed for the whole process."""


def run_on_dask(
    jobs: Sequence[Job], folder: Path, scheduler: str, prepare: Callable[[], object] | None
) -> Generator[Job, None, None]:
    """Run jobs on the workers of a scheduler, write their results locally, and yield each job when it is finished.

    If a worker dies, other workers run its jobs. A job that fails does not stop the others; the first
    error is raised at the end.
    """
    with DaskCluster(scheduler, prepare) as cluster:
        for number, table in cluster.compute_tables(jobs):
            write_result(table, jobs[number], folder)
            yield jobs[number]


class DaskCluster:
    """Workers of a Dask scheduler, inside `with DaskCluster(address, prepare) as cluster`.

    Args:
        scheduler: address of the scheduler.
        prepare: called on the worker before every job.
    """

    def __init__(self, scheduler: str, prepare: Callable[[], object] | None) -> None:
        self.scheduler, self.prepare = scheduler, prepare

    def __enter__(self) -> DaskCluster:
        try:
            self._dask = importlib.import_module("distributed")
        except ImportError:
            raise InputError("--scheduler needs Dask: pip install 'equiflock[cluster]'") from None
        try:
            self._client = self._dask.Client(self.scheduler, timeout=CONNECT_TIMEOUT)
        except (OSError, ValueError, TimeoutError) as error:
            raise InputError(f"no Dask scheduler answers at {self.scheduler}: {error}") from None
        # Without a worker the jobs would wait indefinitely, without a message.
        try:
            self._client.wait_for_workers(1, timeout=CONNECT_TIMEOUT)
        except TimeoutError:
            self._client.close()
            raise InputError(f"the Dask scheduler at {self.scheduler} has no workers") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._client.close()

    def compute_tables(self, jobs: Sequence[Job]) -> Generator[tuple[int, pd.DataFrame], None, None]:
        """Yield the index and result of every job as it finishes.

        A job that fails does not stop the others; the first error is raised at the end. If the generator is closed
        early, the remaining jobs are cancelled. Results are shared with other commands that run the same job of the
        same program.
        """
        fingerprint = fingerprint_program()
        # Dask computes each key once: two commands share the result of the same job of the same program.
        # The repr of `prepare` contains its memory address, so jobs with a plugin are not shared.
        suffix = hashlib.sha256(f"{json.dumps(fingerprint)} {self.prepare!r}".encode()).hexdigest()[:8]
        numbers = {f"{get_result_path(job, Path()).stem}-{suffix}": number for number, job in enumerate(jobs)}
        futures = [
            self._client.submit(_run_on_worker, jobs[number], self.prepare, fingerprint, key=name, pure=False)
            for name, number in numbers.items()
        ]
        failures: list[Exception] = []
        try:
            for future in self._dask.as_completed(futures):
                number = numbers[future.key]
                try:
                    table = future.result()
                except self._dask.KilledWorker:
                    failures.append(InputError(f"{jobs[number].key}: given up, because several workers died during it"))
                    continue
                except CancelledError:
                    raise InputError(
                        f"lost the connection to the Dask scheduler at {self.scheduler}; finished jobs are kept"
                    ) from None
                except Exception as error:
                    failures.append(error)
                    continue
                # Free the worker's copy.
                future.release()
                yield number, table
        finally:
            # After Ctrl-C or an error, cancel the pending jobs.
            with suppress(Exception):  # the scheduler may have ended
                self._client.cancel(futures)
        if failures:
            raise failures[0]


@cache
def fingerprint_program() -> dict[str, str]:
    """Return versions and a checksum of the package's source and weights, cached in the process.

    Programs with equal fingerprints give equal results.
    """
    source = hashlib.sha256()
    package = Path(__file__).parents[1]
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.safetensors")]):
        source.update(path.read_bytes())
    return {**read_package_versions("torch"), "source": source.hexdigest()[:12]}


def _run_on_worker(job: Job, prepare: Callable[[], object] | None, expected: Mapping[str, str]) -> pd.DataFrame:
    """Run a job on a worker, one at a time per process. Raise InputError if its program differs from the command's."""
    if fingerprint_program() != expected:
        other = ", ".join(f"{name} {value}, not {expected.get(name)}" for name, value in fingerprint_program().items())
        raise InputError(f"the worker on {socket.gethostname()} runs another program than the command: {other}")
    with _job_lock:
        try:
            set_plugin_checksums({})  # forget the plugin of an earlier command
            if prepare is not None:
                prepare()
            return compute_result(job)
        except InputError as error:
            raise InputError(f"on the worker at {socket.gethostname()}: {error}") from None


# Workers that persist over many rounds of jobs, such as the generations of a search, and return results directly.


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


# Parallel execution of the jobs of an experiment; each result is written as soon as it is computed.

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
