"""The measures of candidates as files: a row for each candidate and task, with a checksum for all of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from equiflock.experiments.tuning.measures import NOTHING
from equiflock.experiments.tuning.objective import Measured
from equiflock.runtime.checksums import DamagedError, read_text, write_text

COLUMNS = ("candidate", "task", "mark")
"""Who was measured, in which task, and the checksum of the job, which tells what its numbers depend on."""


def write_scores(path: Path, marks: Sequence[Sequence[str]], names: Sequence[str], found: Sequence[Measured]) -> None:
    """Write the measures of all candidates in all tasks.

    Args:
        path: the file.
        marks: of each candidate, in each task.
        names: of the tasks.
        found: what was measured, for each candidate.
    """
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow((*COLUMNS, *NOTHING))
    for candidate, (own, measured) in enumerate(zip(marks, found, strict=True)):
        for name, mark, values in zip(names, own, measured, strict=True):
            # Numbers in their shortest exact form, and nothing for what a task does not have.
            lines.writerow((candidate, name, mark, *(values.get(each, "") for each in NOTHING)))
    write_text(text.getvalue(), path)


def read_scores(path: Path, marks: Sequence[Sequence[str]]) -> list[Measured] | None:
    """The measures that `write_scores` wrote, to the bit; None if there is no such file.

    Raises:
        DamagedError: if it is damaged, or of other candidates.
    """
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path))))
    except FileNotFoundError:
        return None
    if [row.get("mark") for row in rows] != [mark for own in marks for mark in own]:
        raise DamagedError(f"{path} is of other candidates")
    measured = [{name: float(row[name]) for name in NOTHING if row.get(name)} for row in rows]
    tasks = len(marks[0])
    return [measured[first : first + tasks] for first in range(0, len(measured), tasks)]
