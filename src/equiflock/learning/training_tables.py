"""The tables of a training, metrics.csv and validation.csv.

The rows are in memory and in every checkpoint, which has a checksum. The files are rewritten from the checkpoint when a
training resumes, never parsed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from equiflock.learning.recipe import DAgger
from equiflock.runtime.checksums import compute_checksum
from equiflock.runtime.files import atomic_write

if TYPE_CHECKING:  # torch takes seconds to import
    from equiflock.learning.dagger import EpochReport
    from equiflock.learning.validation import Validation

METRICS, VALIDATION = "metrics.csv", "validation.csv"
COLUMNS = {
    METRICS: ("epoch", "loss", "expert_share"),
    VALIDATION: ("epoch", "controller", "flock", "ivv", "iman"),
}


class Tables:
    """The two tables of a training.

    Call `add_expert_validation` or `restore` first, then `add` rows inside `with tables.open_files()`.
    """

    def __init__(self, folder: Path, recipe: DAgger) -> None:
        self.folder = folder
        self.recipe = recipe
        self._lines: dict[str, list[str]] = {name: [_format_row(columns)] for name, columns in COLUMNS.items()}
        self._files: dict[str, TextIO] = {}

    @property
    def contents(self) -> dict[str, str]:
        """Text of each table by name."""
        return {name: "".join(lines) for name, lines in self._lines.items()}

    @property
    def checksums(self) -> dict[str, str]:
        """Checksum of each table by name."""
        return {name: compute_checksum(text.encode()) for name, text in self.contents.items()}

    def add_expert_validation(self, expert: Validation) -> None:
        """Add one row per flock of the expert's validation, as epoch 0; call it before all other additions."""
        self._add_validation_rows(0, self.recipe.expert, expert)

    @property
    def expert(self) -> Validation:
        """The expert's validation, parsed from the table without loss of precision."""
        return _parse_validations(self._lines[VALIDATION][1:])[0]

    def restore(self, contents: Mapping[str, str]) -> list[Path]:
        """Replace the rows in memory by those of a checkpoint; return the files on disk that do not start with them.

        Validations at epochs where none is due are dropped: the final one of a training that was then extended.
        """
        changed = []
        for name, content in contents.items():
            # An extended training drops the validation after its previous last epoch, unless one is due there.
            self._lines[name] = [
                line
                for number, line in enumerate(content.splitlines(keepends=True))
                if number == 0 or name != VALIDATION or self.recipe.is_validation_due(_parse_epoch(line))
            ]
            path = self.folder / name
            file_content = path.read_bytes() if path.is_file() else b""
            # The file may have more rows, of epochs after the checkpoint, which will be repeated.
            if not file_content.startswith((content.encode(), self.contents[name].encode())):
                changed.append(path)
        return changed

    def write(self) -> None:
        """Write both files atomically from the rows in memory."""
        for name, text in self.contents.items():
            with atomic_write(self.folder / name) as scratch:
                scratch.write_bytes(text.encode())

    @contextmanager
    def open_files(self) -> Iterator[None]:
        """Write both files atomically; inside the block, every added row is also appended to its file and flushed."""
        self.write()
        with (
            (self.folder / METRICS).open("a", encoding="utf-8", newline="") as metrics,
            (self.folder / VALIDATION).open("a", encoding="utf-8", newline="") as validation,
        ):
            self._files = {METRICS: metrics, VALIDATION: validation}
            try:
                yield
            finally:
                self._files = {}

    def add(self, report: EpochReport) -> None:
        """Add the row of an epoch, and the rows of its validation, if any; on disk only inside `open_files`."""
        self._append(METRICS, [(report.epoch, report.loss, report.expert_share)])
        if report.validation is not None:
            self.add_validation(report.epoch, report.validation)

    def add_validation(self, epoch: int, validation: Validation) -> None:
        """Add one row per flock of a validation of the network."""
        self._add_validation_rows(epoch, self.recipe.controller, validation)

    def has_validation(self, epoch: int) -> bool:
        """Return whether the last validation in the table belongs to this epoch."""
        return _parse_epoch(self._lines[VALIDATION][-1]) == epoch

    def _add_validation_rows(self, epoch: int, controller: str, validation: Validation) -> None:
        """Add one row per flock of a validation."""
        pairs = zip(validation.ivv.tolist(), validation.iman.tolist(), strict=True)
        rows = [(epoch, controller, flock, ivv, iman) for flock, (ivv, iman) in enumerate(pairs)]
        self._append(VALIDATION, rows)

    def _append(self, name: str, rows: list[tuple[Any, ...]]) -> None:
        """Add rows to a table in memory and, while the files are open, on disk."""
        lines = [_format_row(row) for row in rows]
        self._lines[name] += lines
        if name in self._files:
            self._files[name].writelines(lines)
            self._files[name].flush()


def read_reports(folder: Path) -> tuple[tuple[EpochReport, ...], Validation]:
    """Read metrics.csv and validation.csv of a finished training: a report per epoch, and the expert's validation.

    Numbers have the bits that were written; checksums are not compared.
    """
    from equiflock.learning.dagger import EpochReport

    rows = {name: (folder / name).read_text("utf-8").splitlines()[1:] for name in COLUMNS}
    validations = _parse_validations(rows[VALIDATION])
    reports = (
        EpochReport(int(epoch), float(loss), float(share), validations.get(int(epoch)))
        for epoch, loss, share in (line.split(",") for line in rows[METRICS])
    )
    return tuple(reports), validations[0]


def _parse_validations(lines: list[str]) -> dict[int, Validation]:
    """Return the validations in rows of validation.csv, without its header, by epoch; epoch 0 is the expert's."""
    from equiflock.learning.validation import Validation

    # Numbers are written in their shortest exact form, so parsing restores the same bits.
    flocks: dict[int, list[list[float]]] = {}
    for epoch, _, _, *numbers in (line.split(",") for line in lines):
        flocks.setdefault(int(epoch), []).append(list(map(float, numbers)))
    return {epoch: Validation(*np.array(numbers).T.copy()) for epoch, numbers in flocks.items()}


def _format_row(row: tuple[Any, ...]) -> str:
    return ",".join(map(str, row)) + "\n"


def _parse_epoch(line: str) -> int:
    """Return the first column of a row; -1 for the header."""
    # The header, whose first column is not a number, has epoch -1.
    first = line.split(",")[0]
    return int(first) if first.isdecimal() else -1
