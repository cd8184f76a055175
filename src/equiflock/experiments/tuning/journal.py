"""What a tuning tells on its way: two tables, and the same for TensorBoard."""

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
    """What came of a generation."""

    generation: int
    best: float
    """The least cost of a candidate, beside the weights that the search began with on the same flocks."""
    median: float
    sigma: float
    """The size of the search's steps."""
    validation: float | None = None
    """The cost of the mean of the distribution on held-out flocks, if it was validated."""
    is_best: bool = False
    """Whether that is the least so far."""
    is_replayed: bool = False
    """Whether its scores were there already, from before an interruption."""


class Journal:
    """The tables and events of a tuning, inside `with Journal(folder, tasks) as journal`.

    Tables are written anew after every generation that was flown, and never read. Generations that were flown before
    an interruption are in the events already.
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
        """Note a validation."""
        for task, values in zip(self.tasks, measurements, strict=True):
            self._rows[VALIDATION].append((generation, task, *(values.get(name, "") for name in TOLERANCES), cost))

    def add_generation(self, report: GenerationReport, measurements: Measurements | None) -> None:
        """Note a generation, and what its validation, if it had one, measured in each task."""
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
        """Write both tables."""
        for name, rows in self._rows.items():
            with atomic_write(self.folder / name) as scratch:
                scratch.write_text("".join(",".join(map(str, row)) + "\n" for row in rows), encoding="utf-8")

    def _make_logger(self, generation: int) -> Callable[[str, float], None]:
        """Return the function that writes a number of a generation as an event; without TensorBoard it does nothing."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError:
            return lambda name, value: None
        # Opened with the first generation that is flown; what an interrupted process wrote of it is dropped.
        if self._events is None:
            self._events = SummaryWriter(str(self.folder), purge_step=generation)

        def log(name: str, value: float) -> None:
            # TensorBoard takes no colons in names.
            self._events.add_scalar(re.sub(r"[^-/\w.]", "_", name), value, generation)

        return log
