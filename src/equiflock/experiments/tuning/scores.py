"""Files with the measures of candidates: a row per candidate and task, and a checksum of the file."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from equiflock.experiments.tuning.measures import TOLERANCES
from equiflock.experiments.tuning.objective import Measurements
from equiflock.runtime.checksums import DamagedError, read_text, write_text

COLUMNS = ("candidate", "task", "checksum")
"""Candidate, task, and the checksum of the job, which covers everything that its measures depend on."""


def write_scores(
    path: Path, checksums: Sequence[Sequence[str]], names: Sequence[str], results: Sequence[Measurements]
) -> None:
    """Write the measures of all candidates in all tasks atomically, with a checksum.

    Args:
        path: the file.
        checksums: job checksums by candidate and task.
        names: names of the tasks.
        results: measurements of each candidate.
    """
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow((*COLUMNS, *TOLERANCES))
    for candidate, (own, measurements) in enumerate(zip(checksums, results, strict=True)):
        for name, checksum, values in zip(names, own, measurements, strict=True):
            # Numbers in their shortest exact form; empty for measures that a task does not have.
            lines.writerow((candidate, name, checksum, *(values.get(each, "") for each in TOLERANCES)))
    write_text(text.getvalue(), path)


def read_scores(path: Path, checksums: Sequence[Sequence[str]]) -> list[Measurements] | None:
    """Return the measures that `write_scores` wrote, bit for bit, or None if there is no such file.

    Raises:
        DamagedError: if the file is damaged or belongs to other candidates.
    """
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path))))
    except FileNotFoundError:
        return None
    if [row.get("checksum") for row in rows] != [checksum for own in checksums for checksum in own]:
        raise DamagedError(f"{path} belongs to other candidates")
    measurements = [{name: float(row[name]) for name in TOLERANCES if row.get(name)} for row in rows]
    tasks = len(checksums[0])
    return [measurements[first : first + tasks] for first in range(0, len(measurements), tasks)]
