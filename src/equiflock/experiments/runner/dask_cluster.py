"""Execution of jobs on the workers of a Dask scheduler."""

from __future__ import annotations

import hashlib
import importlib
import json
import socket
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType

import pandas as pd

from equiflock.experiments.runner.jobs import Job, compute_result, get_result_path, write_result
from equiflock.runtime.checks import InputError
from equiflock.runtime.provenance import read_package_versions, set_plugin_checksums

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
    package = Path(__file__).parents[2]
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
