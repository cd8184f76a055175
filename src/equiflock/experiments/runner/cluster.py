"""Jobs on the workers of a Dask scheduler."""

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

import pandas as pd

from equiflock.experiments.runner.jobs import Job, compute, keep, path_of
from equiflock.runtime.checks import InputError
from equiflock.runtime.provenance import note_plugin, versions

PATIENCE = 15
"""Seconds to wait for a scheduler, and for its first worker."""

_one_at_a_time = threading.Lock()
"""In a worker of several threads: a job sets the number of torch's threads, and its seed, for the whole process."""


def on_dask(
    jobs: Sequence[Job], folder: Path, scheduler: str, prepare: Callable[[], object] | None
) -> Generator[Job, None, None]:
    """Run jobs on workers elsewhere, and write their results here; yields those that are done.

    A worker that dies has its jobs run by others. A job that fails does not stop the others; what it said is raised
    at the end.
    """
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise InputError("--scheduler needs Dask: pip install 'equiflock[cluster]'") from None
    try:
        client = distributed.Client(scheduler, timeout=PATIENCE)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(f"no Dask scheduler answers at {scheduler}: {error}") from None
    failures: list[Exception] = []
    with client:
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise InputError(f"the Dask scheduler at {scheduler} has no workers") from None
        mine = origin()
        # Whoever asks for the same job of the same program shares its result.
        # What is prepared first tells itself apart by its address, so nobody shares what a plugin has a say in.
        stamp = hashlib.sha256(f"{json.dumps(mine)} {prepare!r}".encode()).hexdigest()[:8]
        names = {f"{path_of(job, folder).stem}-{stamp}": job for job in jobs}
        futures = [client.submit(_run, job, prepare, mine, key=name, pure=False) for name, job in names.items()]
        try:
            for future in distributed.as_completed(futures):
                try:
                    table = future.result()
                except distributed.KilledWorker:
                    failures.append(InputError(f"{names[future.key].key}: given up, as worker after worker died of it"))
                    continue
                except CancelledError:
                    raise InputError(f"the Dask scheduler at {scheduler} is gone; what was done is kept") from None
                except Exception as error:
                    failures.append(error)
                    continue
                keep(table, names[future.key], folder)
                future.release()
                yield names[future.key]
        finally:
            with suppress(Exception):  # the scheduler may be gone
                client.cancel(futures)
    if failures:
        raise failures[0]


@cache
def origin() -> dict[str, str]:
    """What must be the same for the same results: versions, and the package's source and weights."""
    source = hashlib.sha256()
    package = Path(__file__).parents[2]
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.safetensors")]):
        source.update(path.read_bytes())
    return {**versions(), "source": source.hexdigest()[:12]}


def _run(job: Job, prepare: Callable[[], object] | None, asked: Mapping[str, str]) -> pd.DataFrame:
    """In a worker."""
    if origin() != asked:
        other = ", ".join(f"{name} {value}, not {asked.get(name)}" for name, value in origin().items())
        raise InputError(f"the worker on {socket.gethostname()} is not like the command: it has {other}")
    with _one_at_a_time:
        try:
            note_plugin({})  # of a command before
            if prepare is not None:
                prepare()
            return compute(job)
        except InputError as error:
            raise InputError(f"on the worker at {socket.gethostname()}: {error}") from None
