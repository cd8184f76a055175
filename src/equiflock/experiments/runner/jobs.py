"""Jobs, the independent units of an experiment, and their results, tables in files."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pandas as pd

from equiflock.runtime.checksums import DamagedError, read_text, write_text
from equiflock.runtime.threads import use_one_thread


@runtime_checkable
class Job(Protocol):
    """One unit of an experiment: a frozen dataclass of everything that its result depends on."""

    @property
    def key(self) -> str:
        """Its name among all jobs, fit for the name of a file."""
        ...

    @property
    def labels(self) -> dict[str, Any]:
        """The columns that mark its rows in the experiment's table."""
        ...

    def run(self) -> pd.DataFrame:
        """The result, a tidy table."""
        ...


def is_done(job: Job, folder: Path, on_damage: Callable[[str], object] = lambda text: None) -> bool:
    """Whether the job's result is in the folder and intact; a damaged one is reported, and counts as missing."""
    try:
        read_text(get_result_path(job, folder))
    except FileNotFoundError:
        return False
    except DamagedError as error:
        on_damage(str(error))
        return False
    return True


def read_results(jobs: Sequence[Job], folder: Path) -> pd.DataFrame:
    """The results of all jobs in one table, each row marked with its job's labels."""
    return pd.concat([read_table(get_result_path(job, folder)).assign(**job.labels) for job in jobs], ignore_index=True)


def read_table(path: Path) -> pd.DataFrame:
    """The result of a job; an error if it is damaged."""
    # `read_text` drops the line of the checksum; comment="#" would also cut texts in the table that have that sign.
    return pd.read_csv(io.StringIO(read_text(path)))


def get_result_path(job: Job, folder: Path) -> Path:
    """The file of a job's result; a hash of all its settings in the name keeps those of other settings apart."""
    return folder / f"{job.key}-{hashlib.sha256(repr(job).encode()).hexdigest()[:12]}.csv"


def compute_result(job: Job) -> pd.DataFrame:
    """Run the job on one thread: jobs run side by side, and results do not depend on the machine's cores."""
    with use_one_thread():
        return job.run()


def write_result(table: pd.DataFrame, job: Job, folder: Path) -> None:
    """Write a result, with a checksum as its last line."""
    write_text(table.to_csv(index=False, lineterminator="\n"), get_result_path(job, folder))
