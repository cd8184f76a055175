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
"""Held by a worker's thread during a job, which sets torch's threads and seed for the whole process."""


def on_dask(
    jobs: Sequence[Job], folder: Path, scheduler: str, prepare: Callable[[], object] | None
) -> Generator[Job, None, None]:
    """Run jobs on the workers of a scheduler, and write their results here; yields the jobs that are done.

    The jobs of a worker that dies are run by others. A job that fails does not stop the others; its error is raised at
    the end.
    """
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise InputError("--scheduler needs Dask: pip install 'equiflock[cluster]'") from None
    try:
        client = distributed.Client(scheduler, timeout=PATIENCE)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(f"no Dask scheduler answers at {scheduler}: {error}") from None
    # Without a worker the jobs would wait for ever, and in silence.
    failures: list[Exception] = []
    with client:
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise InputError(f"the Dask scheduler at {scheduler} has no workers") from None
        mine = origin()
        # Dask computes a name once: two commands share the result of the same job of the same program.
        # The repr of `prepare` has its address in memory, so jobs with a plugin are not shared.
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
                # Results are written here, by the command; the worker's copy is freed.
                keep(table, names[future.key], folder)
                future.release()
                yield names[future.key]
        finally:
            # After Ctrl-C or an error, jobs that wait are not run.
            with suppress(Exception):  # the scheduler may be gone
                client.cancel(futures)
    if failures:
        raise failures[0]


@cache
def origin() -> dict[str, str]:
    """Versions, and a checksum of the package's source and weights: where these agree, results do."""
    source = hashlib.sha256()
    package = Path(__file__).parents[2]
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.safetensors")]):
        source.update(path.read_bytes())
    return {**versions(), "source": source.hexdigest()[:12]}


def _run(job: Job, prepare: Callable[[], object] | None, asked: Mapping[str, str]) -> pd.DataFrame:
    """Run a job in a worker, if its program is the same as that of the command."""
    if origin() != asked:
        other = ", ".join(f"{name} {value}, not {asked.get(name)}" for name, value in origin().items())
        raise InputError(f"the worker on {socket.gethostname()} is not like the command: it has {other}")
    with _one_at_a_time:
        try:
            note_plugin({})  # forget the plugin of an earlier command
            if prepare is not None:
                prepare()
            return compute(job)
        except InputError as error:
            raise InputError(f"on the worker at {socket.gethostname()}: {error}") from None
