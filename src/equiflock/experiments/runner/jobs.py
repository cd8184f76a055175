"""A job, one piece of an experiment that knows nothing of the others, and its result, a table in a file."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pandas as pd

from equiflock.runtime.checksums import DamagedError, read_text, write_text
from equiflock.runtime.threads import one_thread


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
    with one_thread():
        return job.run()


def keep(table: pd.DataFrame, job: Job, folder: Path) -> None:
    """Write a result, with a checksum as its last line."""
    write_text(table.to_csv(index=False, lineterminator="\n"), path_of(job, folder))
