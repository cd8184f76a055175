"""Progress of a tuning: two tables, and the same numbers for TensorBoard."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from equiflock.experiments.tuning.measures import TOLERANCES
from equiflock.experiments.tuning.objective import Measurements
from equiflock.runtime.files import atomic_write

GENERATIONS, VALIDATION = "generations.csv", "validation.csv"


@dataclass(frozen=True)
class GenerationReport:
    """Result of a generation."""

    generation: int
    best: float
    """Lowest cost of a candidate, relative to the initial weights on the same flocks."""
    median: float
    sigma: float
    """Step size of the search."""
    validation: float | None = None
    """Cost of the distribution's mean on held-out flocks, if it was validated."""
    is_best: bool = False
    """Whether that is the lowest so far."""
    is_replayed: bool = False
    """Whether the scores come from before an interruption."""


class Journal:
    """Tables and events of a tuning, inside `with Journal(folder, tasks) as journal`.

    Both tables are rewritten after every new generation, and never read. The events already contain generations from
    before an interruption.
    """

    def __init__(self, folder: Path, tasks: Sequence[str]) -> None:
        self.folder, self.tasks = folder, tasks
        self._rows: dict[str, list[Sequence[Any]]] = {
            GENERATIONS: [("generation", "best", "median", "sigma")],
            VALIDATION: [("generation", "task", *TOLERANCES, "cost")],
        }
        self._events: Any = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._events is not None:
            self._events.close()

    def add_validation(self, generation: int, measurements: Measurements, cost: float) -> None:
        """Add a validation, one row per task, to the table in memory; `write` writes it."""
        for task, values in zip(self.tasks, measurements, strict=True):
            self._rows[VALIDATION].append((generation, task, *(values.get(name, "") for name in TOLERANCES), cost))

    def add_generation(self, report: GenerationReport, measurements: Measurements | None) -> None:
        """Add a generation, and the measurements of its validation, if it had one, to tables and events.

        A new generation also writes both tables; a replayed one is only added to the tables in memory.
        """
        self._rows[GENERATIONS].append((report.generation, report.best, report.median, report.sigma))
        if report.validation is not None and measurements is not None:
            self.add_validation(report.generation, measurements, report.validation)
        if report.is_replayed:
            return
        self.write()
        log = self._make_logger(report.generation)
        for name in ("best", "median", "sigma"):
            log(name, getattr(report, name))
        if report.validation is not None and measurements is not None:
            log("validation/cost", report.validation)
            for task, values in zip(self.tasks, measurements, strict=True):
                for name, value in values.items():
                    log(f"{name}/{task}", value)

    def write(self) -> None:
        """Write both tables atomically."""
        for name, rows in self._rows.items():
            with atomic_write(self.folder / name) as scratch:
                scratch.write_text("".join(",".join(map(str, row)) + "\n" for row in rows), encoding="utf-8")

    def _make_logger(self, generation: int) -> Callable[[str, float], None]:
        """Return a function that writes a number of a generation as an event; a no-op without TensorBoard."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError:
            return lambda name, value: None
        # Open the file with the first new generation; purge events of it that an interrupted process wrote.
        if self._events is None:
            self._events = SummaryWriter(str(self.folder), purge_step=generation)

        def log(name: str, value: float) -> None:
            # TensorBoard accepts no colons in names.
            self._events.add_scalar(re.sub(r"[^-/\w.]", "_", name), value, generation)

        return log
