"""The executor of jobs: local processes, the workers of a Dask scheduler, or this process.

`run_jobs` runs jobs that have result files. `Executor` runs other rounds of jobs, such as the generations of a search,
and jobs that report their progress, such as trainings. Results do not depend on where the jobs run.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import multiprocessing
import os
import queue
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

import pandas as pd

from equiflock._runtime.checks import InputError, TimeStepWarning, check_count
from equiflock._runtime.exit_with_parent import PIPE_VARIABLE, exit_when_closed, open_parent_pipe
from equiflock._runtime.files import delay_sigint, ignore_sigint_in_children
from equiflock._runtime.jobs import Job, compute_result, is_done, write_result
from equiflock._runtime.provenance import read_package_versions, set_plugin_checksums

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

MAX_POOLS = 3
"""Number of process pools to try if processes die."""
CONNECT_TIMEOUT = 15
"""Seconds to wait for a Dask scheduler and for its first worker."""
POLL_INTERVAL = 0.2
"""Longest time between two looks at the messages of jobs and at `should_stop`, in seconds."""

_job_lock = threading.Lock()
"""Held by a worker thread of a cluster during a job, which sets torch's threads and seed for the whole process."""

Prepare: TypeAlias = Callable[[], object] | None
"""Importable function that a worker calls before every job, for example to register controllers."""


def run_jobs(
    jobs: Sequence[Job],
    folder: Path,
    workers: int,
    on_done: Callable[[Job], object] = lambda job: None,
    prepare: Prepare = None,
    scheduler: str | None = None,
    on_notice: Callable[[str], object] = lambda text: None,
    here: bool = False,
) -> None:
    """Run the jobs whose results in `folder` are missing or damaged, and write each result as soon as it is computed.

    An interruption never loses a finished job. `on_done` is called with every finished job, including those of earlier
    runs, and `on_notice` with a line of text about every damaged result. Other arguments and errors are
    those of `Executor` and `Executor.compute_tables`.
    """
    executor = Executor(workers, scheduler, prepare, here)
    missing = []
    for job in jobs:
        if is_done(job, folder, lambda text: on_notice(f"{text}; this job is computed again")):
            on_done(job)
        else:
            missing.append(job)
    if not missing:
        return
    folder.mkdir(parents=True, exist_ok=True)
    with executor:
        for number, table in executor.compute_tables(missing):
            write_result(table, missing[number], folder)
            on_done(missing[number])


class Executor:
    """Workers that run jobs, inside `with Executor(4) as executor`; they start with the first jobs.

    If the block ends early, by Ctrl-C or an error, local processes are killed and jobs on a cluster are cancelled.

    Args:
        workers: number of local processes, without a scheduler.
        scheduler: address of a Dask scheduler, such as tcp://10.0.0.1:8786, whose workers run the jobs.
        prepare: called by the worker before every job.
        here: whether a single local worker is this process.
        on_message: called with every message that a local job sends by `send_message`.
        should_stop: polled; once it returns True, so does `is_stop_requested` in local jobs.
    """

    def __init__(
        self,
        workers: int,
        scheduler: str | None = None,
        prepare: Prepare = None,
        here: bool = False,
        on_message: Callable[[Any], object] = lambda message: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.workers = check_count("workers", workers)
        self.scheduler, self.prepare, self.here = scheduler, prepare, here
        self.on_message, self.should_stop = on_message, should_stop
        self._pool: futures.Executor | None = None
        self._messages: Any = None
        self._stop_event: Any = None
        self._exit_stack = ExitStack()

    def __enter__(self) -> Executor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool = self._messages = self._stop_event = None
        self._exit_stack.pop_all().__exit__(kind, error, traceback)

    def compute_tables(self, jobs: Sequence[Job]) -> Iterator[tuple[int, pd.DataFrame]]:
        """Yield the index and result of every job as it finishes.

        The error of a job is raised at once or, on a cluster, when the other jobs are done. InputError is raised if
        local processes died three times.
        """
        failures = []
        for number, outcome in self.run(jobs):
            if not isinstance(outcome, BaseException):
                yield number, outcome
            elif self.scheduler is None:
                raise outcome
            else:
                failures.append(outcome)
        if failures:
            raise failures[0]

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, pd.DataFrame | BaseException]]:
        """Yield the index of every job as it finishes, with its result or the error that it raised.

        If a local process dies, for example for lack of memory, new processes run the remaining jobs; after the third
        time InputError is raised.
        """
        if self.is_here:
            yield from self._run_here(jobs)
            return
        missing = dict(enumerate(jobs))
        for _ in range(MAX_POOLS):
            try:
                for number, outcome in self._run_on_workers(missing):
                    del missing[number]
                    yield number, outcome
                return
            # If one process dies the whole pool breaks; outcomes so far are kept.
            except BrokenProcessPool as error:
                self.__exit__(type(error), error, error.__traceback__)
        names = ", ".join(job.key for job in missing.values())
        raise InputError(
            f"worker processes died {MAX_POOLS} times, perhaps for lack of memory: use fewer workers; not done: {names}"
        )

    @property
    def is_here(self) -> bool:
        """Whether jobs run in this process."""
        return self.here and self.workers == 1 and self.scheduler is None

    def _run_here(self, jobs: Sequence[Job]) -> Iterator[tuple[int, pd.DataFrame | BaseException]]:
        """Run the jobs in this process, one after another; KeyboardInterrupt is raised."""
        global _channel
        for number, job in enumerate(jobs):
            before, _channel = _channel, (self.on_message, self.should_stop)
            outcome: pd.DataFrame | BaseException
            try:
                outcome = _prepare_and_compute(job, self.prepare)
            except Exception as error:
                outcome = error
            finally:
                _channel = before
            yield number, outcome

    def _run_on_workers(self, jobs: Mapping[int, Job]) -> Iterator[tuple[int, pd.DataFrame | BaseException]]:
        """Submit the jobs and yield their outcomes; the first call starts the workers.

        Raise BrokenProcessPool if a local process died, and InputError if the connection to the scheduler is lost.
        """
        if self._pool is None:
            self._pool = self._exit_stack.enter_context(
                self._open_processes() if self.scheduler is None else _connect(self.scheduler)
            )
        # The library does not clean up after an interrupted start, so delay Ctrl-C until all processes have started.
        with delay_sigint(), ignore_sigint_in_children():
            pending = {self._submit(job): number for number, job in jobs.items()}
        finished: queue.SimpleQueue[Future[pd.DataFrame]] = queue.SimpleQueue()
        for future in pending:
            future.add_done_callback(finished.put)
        while pending:
            done = None
            with suppress(queue.Empty):
                done = finished.get(timeout=POLL_INTERVAL)
            if self.scheduler is None:
                self._exchange_messages()
            if done is not None:
                number = pending.pop(done)
                yield number, self._get_outcome(done, jobs[number])

    def _submit(self, job: Job) -> Future[pd.DataFrame]:
        """Submit a job to the local processes or the cluster."""
        assert self._pool is not None
        if self.scheduler is None:
            return self._pool.submit(_prepare_and_compute, job, self.prepare)
        return self._pool.submit(_run_on_cluster, job, self.prepare, fingerprint_program())

    def _exchange_messages(self) -> None:
        """Pass the messages of local jobs to `on_message`, and a request to stop to the jobs."""
        while not self._messages.empty():
            self.on_message(self._messages.get())
        if self.should_stop():
            self._stop_event.set()

    def _get_outcome(self, future: Future[pd.DataFrame], job: Job) -> pd.DataFrame | BaseException:
        """Return the result or the error of a finished job; raise the error if it concerns all jobs."""
        if future.cancelled():
            raise InputError(f"lost the connection to the Dask scheduler at {self.scheduler}; finished jobs are kept")
        error = future.exception()
        if isinstance(error, BrokenProcessPool):
            raise error
        if type(error).__name__ == "KilledWorker":
            return InputError(f"{job.key}: given up, because several workers died during it")
        return error or future.result()

    @contextmanager
    def _open_processes(self) -> Iterator[ProcessPoolExecutor]:
        """Open a process pool that leaves no process or semaphore behind, however the block ends."""
        # Child processes that already exist belong to other code.
        others = multiprocessing.active_children()
        context = get_process_context()
        # A process that dies may leave these locked, so every pool has its own.
        self._messages, self._stop_event = context.SimpleQueue(), context.Event()
        pool = ProcessPoolExecutor(
            self.workers, context, _initialize_worker, (self._messages.put, self._stop_event.is_set)
        )
        try:
            yield pool
        except BaseException:
            for process in multiprocessing.active_children():
                if process not in others:
                    process.kill()
            raise
        finally:
            with delay_sigint():
                pool.shutdown(wait=True, cancel_futures=True)
                # The semaphores are removed with the last reference to the pool, and its parts reference it in cycles.
                # A program that ends by os._exit would not remove them otherwise.
                del pool, context
                gc.collect()


_channel: tuple[Callable[[Any], object], Callable[[], bool]] = (lambda message: None), (lambda: False)
"""Connection of a running job to its executor: functions that send a message and return whether it should stop."""


def send_message(message: Any) -> None:
    """Send a picklable message from a running job to `on_message` of its executor; on a cluster it is dropped."""
    _channel[0](message)


def is_stop_requested() -> bool:
    """Return, inside a job, whether it should end early; always False on a cluster."""
    return _channel[1]()


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
    modules = [name for name in sys.modules if name == "torch" or name.split(".")[0] == package]
    context.set_forkserver_preload([exit_when_closed.__module__, *modules])
    # Start the tracker first: its start would unblock Ctrl-C, which `ignore_sigint_in_children` blocks.
    resource_tracker.ensure_running()
    # The server must import from the path of this process, not from the current directory.
    variables = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"}
    variables[PIPE_VARIABLE] = open_parent_pipe()
    before = {name: os.environ.get(name) for name in variables}
    os.environ |= variables
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


def _initialize_worker(send: Callable[[Any], object], should_stop: Callable[[], bool]) -> None:
    """Set up a worker process: ignore Ctrl-C, which the parent handles, and exit with the parent."""
    global _channel
    warnings.simplefilter("ignore", TimeStepWarning)  # the command prints it
    _channel = send, should_stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None
    exit_when_closed(parent.sentinel)


def _prepare_and_compute(job: Job, prepare: Prepare) -> pd.DataFrame:
    """Call `prepare`, if any, and return the result of a job; runs on the worker."""
    if prepare is not None:
        prepare()
    return compute_result(job)


@contextmanager
def _connect(scheduler: str) -> Iterator[futures.Executor]:
    """Connect to a Dask scheduler that has workers; jobs that are pending at the end of the block are cancelled."""
    try:
        dask = importlib.import_module("distributed")
    except ImportError:
        raise InputError("--scheduler needs Dask: pip install 'equiflock[cluster]'") from None
    try:
        client = dask.Client(scheduler, timeout=CONNECT_TIMEOUT)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(f"no Dask scheduler answers at {scheduler}: {error}") from None
    with closing(client):
        # Without a worker the jobs would wait indefinitely, without a message.
        try:
            client.wait_for_workers(1, timeout=CONNECT_TIMEOUT)
        except TimeoutError:
            raise InputError(f"the Dask scheduler at {scheduler} has no workers") from None
        executor = client.get_executor(pure=False)
        try:
            yield executor
        finally:
            with suppress(Exception):  # the scheduler may have ended
                executor.shutdown(wait=False)


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


def _run_on_cluster(job: Job, prepare: Prepare, expected: Mapping[str, str]) -> pd.DataFrame:
    """Run a job on a worker, one at a time per process. Raise InputError if its program differs from the command's."""
    if fingerprint_program() != expected:
        other = ", ".join(f"{name} {value}, not {expected.get(name)}" for name, value in fingerprint_program().items())
        raise InputError(f"the worker on {socket.gethostname()} runs another program than the command: {other}")
    with _job_lock:
        try:
            set_plugin_checksums({})  # forget the plugin of an earlier command
            return _prepare_and_compute(job, prepare)
        except InputError as error:
            raise InputError(f"on the worker at {socket.gethostname()}: {error}") from None
