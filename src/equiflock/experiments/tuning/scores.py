"""The measures of candidates as files: a row for each candidate and task, with a checksum for all of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from equiflock.experiments.tuning.measures import TOLERANCES
from equiflock.experiments.tuning.objective import Measurements
from equiflock.runtime.checksums import DamagedError, read_text, write_text

COLUMNS = ("candidate", "task", "checksum")
"""Who was measured, in which task, and the checksum of the job, which tells what its numbers depend on."""


def write_scores(
    path: Path, checksums: Sequence[Sequence[str]], names: Sequence[str], found: Sequence[Measurements]
) -> None:
    """Write the measures of all candidates in all tasks.

    Args:
        path: the file.
        checksums: of each candidate, in each task.
        names: of the tasks.
        found: what was measured, for each candidate.
    """
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow((*COLUMNS, *TOLERANCES))
    for candidate, (own, measurements) in enumerate(zip(checksums, found, strict=True)):
        for name, checksum, values in zip(names, own, measurements, strict=True):
            # Numbers in their shortest exact form, and nothing for what a task does not have.
            lines.writerow((candidate, name, checksum, *(values.get(each, "") for each in TOLERANCES)))
    write_text(text.getvalue(), path)


def read_scores(path: Path, checksums: Sequence[Sequence[str]]) -> list[Measurements] | None:
    """The measures that `write_scores` wrote, to the bit; None if there is no such file.

    Raises:
        DamagedError: if it is damaged, or of other candidates.
    """
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path))))
    except FileNotFoundError:
        return None
    if [row.get("checksum") for row in rows] != [checksum for own in checksums for checksum in own]:
        raise DamagedError(f"{path} is of other candidates")
    measurements = [{name: float(row[name]) for name in TOLERANCES if row.get(name)} for row in rows]
    tasks = len(checksums[0])
    return [measurements[first : first + tasks] for first in range(0, len(measurements), tasks)]
