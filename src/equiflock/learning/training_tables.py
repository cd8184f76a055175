"""The tables of a training, metrics.csv and validation.csv.

Rows are kept in memory and in every checkpoint, which has a checksum. The files themselves are never read back: they
are written again from the checkpoint when a training continues.
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
    """The two tables of a training: `add_expert_validation` or `restore` them, then `add` rows inside `with tables.open_files()`."""

    def __init__(self, folder: Path, recipe: DAgger) -> None:
        self.folder = folder
        self.recipe = recipe
        self._lines: dict[str, list[str]] = {name: [_format_row(columns)] for name, columns in COLUMNS.items()}
        self._files: dict[str, TextIO] = {}

    @property
    def contents(self) -> dict[str, str]:
        """The content of each table, by its name."""
        return {name: "".join(lines) for name, lines in self._lines.items()}

    @property
    def checksums(self) -> dict[str, str]:
        """The checksum of each table's content, by its name."""
        return {name: compute_checksum(text.encode()) for name, text in self.contents.items()}

    def add_expert_validation(self, expert: Validation) -> None:
        """Write the rows of the expert's validation, which come first, as epoch 0."""
        self._add_validation_rows(0, self.recipe.expert, expert)

    @property
    def expert(self) -> Validation:
        """The expert's validation, as it is in the table, to the bit."""
        return _parse_validations(self._lines[VALIDATION][1:])[0]

    def restore(self, contents: Mapping[str, str]) -> list[Path]:
        """Continue after the rows of a checkpoint; returns the files that do not begin with them."""
        differ = []
        for name, before in contents.items():
            # A prolonged training drops the validation at its old end, unless one is due there anyway.
            self._lines[name] = [
                line
                for number, line in enumerate(before.splitlines(keepends=True))
                if number == 0 or name != VALIDATION or self.recipe.is_validation_due(_parse_epoch(line))
            ]
            path = self.folder / name
            found = path.read_bytes() if path.is_file() else b""
            # The file may have rows of later epochs, which will be trained again.
            if not found.startswith((before.encode(), self.contents[name].encode())):
                differ.append(path)
        return differ

    def write(self) -> None:
        """Write both files from the rows in memory."""
        for name, text in self.contents.items():
            with atomic_write(self.folder / name) as scratch:
                scratch.write_bytes(text.encode())

    @contextmanager
    def open_files(self) -> Iterator[None]:
        """Write both files, and inside the block every new row as soon as it is added."""
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
        """Add the rows of an epoch."""
        self._append(METRICS, [(report.epoch, report.loss, report.expert_share)])
        if report.validation is not None:
            self.add_validation(report.epoch, report.validation)

    def add_validation(self, epoch: int, validation: Validation) -> None:
        """Add the rows of the network's validation."""
        self._add_validation_rows(epoch, self.recipe.controller, validation)

    def has_validation(self, epoch: int) -> bool:
        """Whether the last validation in the table is that of this epoch."""
        return _parse_epoch(self._lines[VALIDATION][-1]) == epoch

    def _add_validation_rows(self, epoch: int, controller: str, validation: Validation) -> None:
        """Add one row for every flock of a validation."""
        pairs = zip(validation.ivv.tolist(), validation.iman.tolist(), strict=True)
        rows = [(epoch, controller, flock, ivv, iman) for flock, (ivv, iman) in enumerate(pairs)]
        self._append(VALIDATION, rows)

    def _append(self, name: str, rows: list[tuple[Any, ...]]) -> None:
        """Add rows to a table in memory and, while the files are open, on disk at once."""
        lines = [_format_row(row) for row in rows]
        self._lines[name] += lines
        if name in self._files:
            self._files[name].writelines(lines)
            self._files[name].flush()


def read_reports(folder: Path) -> tuple[tuple[EpochReport, ...], Validation]:
    """The reports of all epochs of a finished training, to the bit, and the expert's validation."""
    from equiflock.learning.dagger import EpochReport

    rows = {name: (folder / name).read_text("utf-8").splitlines()[1:] for name in COLUMNS}
    found = _parse_validations(rows[VALIDATION])
    reports = (
        EpochReport(int(epoch), float(loss), float(share), found.get(int(epoch)))
        for epoch, loss, share in (line.split(",") for line in rows[METRICS])
    )
    return tuple(reports), found[0]


def _parse_validations(lines: list[str]) -> dict[int, Validation]:
    """The validations in the rows of their table, to the bit, by their epochs; epoch 0 is the expert's."""
    from equiflock.learning.validation import Validation

    # Numbers were written in their shortest exact form, so reading them gives the same bits.
    flocks: dict[int, list[list[float]]] = {}
    for epoch, _, _, *numbers in (line.split(",") for line in lines):
        flocks.setdefault(int(epoch), []).append(list(map(float, numbers)))
    return {epoch: Validation(*np.array(numbers).T.copy()) for epoch, numbers in flocks.items()}


def _format_row(row: tuple[Any, ...]) -> str:
    return ",".join(map(str, row)) + "\n"


def _parse_epoch(line: str) -> int:
    # The header has no number in its first column.
    first = line.split(",")[0]
    return int(first) if first.isdecimal() else -1
