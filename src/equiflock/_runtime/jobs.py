"""Jobs, the independent units of an experiment, and their result files."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pandas as pd

from equiflock._runtime.checksums import SHORT_DIGITS, DamagedError, compute_checksum, read_text, write_text
from equiflock._runtime.threads import use_one_thread


@runtime_checkable
class Job(Protocol):
    """Unit of an experiment: a frozen dataclass of everything that its result depends on."""

    @property
    def key(self) -> str:
        """Name among all jobs, valid in a file name."""
        ...

    @property
    def labels(self) -> dict[str, Any]:
        """Columns that identify the job's rows in the experiment's table."""
        ...

    def run(self) -> pd.DataFrame:
        """Compute the result, a tidy table."""
        ...


def is_done(job: Job, folder: Path, on_damage: Callable[[str], object] = lambda text: None) -> bool:
    """Return whether the job's result exists and is intact; report a damaged or another job's one to `on_damage`."""
    try:
        read_text(get_result_path(job, folder), _format_settings(job))
    except FileNotFoundError:
        return False
    except DamagedError as error:
        on_damage(str(error))
        return False
    return True


def read_results(jobs: Sequence[Job], folder: Path) -> pd.DataFrame:
    """Return the results of all jobs, which must be done, in one table, with each job's labels as columns."""
    return pd.concat([read_table(job, folder).assign(**job.labels) for job in jobs], ignore_index=True)


def read_table(job: Job, folder: Path) -> pd.DataFrame:
    """Read the result of a job; raise DamagedError if it is damaged or the result of another job."""
    # `read_text` drops the checksum line; comment="#" would also truncate texts that contain that character.
    return pd.read_csv(io.StringIO(read_text(get_result_path(job, folder), _format_settings(job))))


def get_result_path(job: Job, folder: Path) -> Path:
    """Return the file of a job's result; its name contains a hash of all settings of the job."""
    return folder / f"{job.key}-{compute_checksum(repr(job).encode())[:SHORT_DIGITS]}.csv"


def _format_settings(job: Job) -> str:
    """Return name and settings of a job, which the checksum of its result covers."""
    return f"{job.key} {job!r}"


def compute_result(job: Job) -> pd.DataFrame:
    """Run the job in this process, on one thread: results must not depend on the number of cores."""
    with use_one_thread():
        return job.run()


def write_result(table: pd.DataFrame, job: Job, folder: Path) -> None:
    """Write a result atomically as CSV, with a checksum of the job and the table in its last line."""
    write_text(table.to_csv(index=False, lineterminator="\n"), get_result_path(job, folder), _format_settings(job))
