"""Candidates of a tuning: the job that flies one in one task, and the files of their scores and of the progress."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pandas as pd
from safetensors.numpy import load, save

from equiflock._runtime.checksums import SHORT_DIGITS, compute_checksum, read_text, write_text
from equiflock.controllers.loading import build_network
from equiflock.controllers.networks.weights import Weights
from equiflock.flock import Flock
from equiflock.learning.run_directory import VALIDATION, RunTables
from equiflock.observations.orbit import Orbit
from equiflock.scenarios import Scenario
from equiflock.scenarios.registry import choose_orbit
from equiflock.tuning.objective import TOLERANCES, Measurements, Task, measure_flight
from equiflock.tuning.search_space import Candidate

SCORE_COLUMNS = ("candidate", "task", "checksum")
"""Candidate, task, and the checksum of the job, which covers everything that its measures depend on."""
GENERATIONS = "generations.csv"
START_CACHE_SIZE = 32
"""Number of sets of initial flocks that a process caches: all candidates of a generation fly the same ones."""


@dataclass(frozen=True)
class CandidateJob:
    """Measurement of one candidate in one task. It is self-contained, so that a worker needs no files."""

    network: str
    """Registered name of the network."""
    options: str
    """Options that build the network, as JSON."""
    weights: bytes
    """Weights of the network, as safetensors."""
    orbit: Orbit | None
    """Orbit technique parameters of the candidate; None for the scenario's."""
    task: Task
    flocks: int
    seed: int
    split: str
    """Name of the set of flocks."""
    measurement_interval: float
    """Seconds between measurements."""
    candidate: str = field(default="", compare=False)
    """Name of the candidate in job names."""

    @property
    def job_checksum(self) -> str:
        """Checksum of everything that the result depends on."""
        network, flocks = (self.network, self.options, self.orbit), (self.flocks, self.seed, self.split)
        settings = repr((*network, self.task, *flocks, self.measurement_interval))
        return compute_checksum(settings.encode(), self.weights)

    @property
    def key(self) -> str:
        """Name of the job."""
        return f"tuning-{self.candidate}-{self.job_checksum[:SHORT_DIGITS]}"

    @property
    def labels(self) -> dict[str, Any]:
        """Columns that identify the job's row."""
        return {"candidate": self.candidate, "task": self.task.name}

    def run(self) -> pd.DataFrame:
        """Fly the task; return one row, with a column for each measure of the task."""
        scenario, start = _draw_start(self.task, self.flocks, self.seed, self.split)
        network = build_network(Weights(load(self.weights), self.network, json.loads(self.options), self.orbit))
        measures = measure_flight(
            scenario, start, network, choose_orbit(scenario, self), self.task, self.measurement_interval
        )
        return pd.DataFrame([measures])


def pack_weights(candidate: Candidate) -> bytes:
    """Serialize the weights of a candidate as safetensors."""
    return save({name: np.ascontiguousarray(tensor) for name, tensor in candidate.weights.items()})


@lru_cache(maxsize=START_CACHE_SIZE)
def _draw_start(task: Task, flocks: int, seed: int, split: str) -> tuple[Scenario, Flock]:
    """Return the scenario of a task and its flocks at t = 0; the last 32 results are cached."""
    scenario = task.build_scenario(flocks, seed, split)
    return scenario, scenario.draw()


def write_scores(
    path: Path, checksums: Sequence[Sequence[str]], names: Sequence[str], results: Sequence[Measurements]
) -> None:
    """Write a row per candidate and task atomically, with a checksum of the file.

    `checksums` are those of the jobs by candidate and task, `names` those of the tasks, `results` the measures of each
    candidate.
    """
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow((*SCORE_COLUMNS, *TOLERANCES))
    for candidate, (own, measurements) in enumerate(zip(checksums, results, strict=True)):
        for name, checksum, values in zip(names, own, measurements, strict=True):
            # Numbers in their shortest exact form; empty for measures that a task does not have.
            lines.writerow((candidate, name, checksum, *(values.get(each, "") for each in TOLERANCES)))
    write_text(text.getvalue(), path, repr(checksums))


def read_scores(path: Path, checksums: Sequence[Sequence[str]]) -> list[Measurements] | None:
    """Return the measures that `write_scores` wrote, bit for bit, or None if there is no such file.

    Raise DamagedError if the file is damaged or belongs to other candidates.
    """
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path, repr(checksums)))))
    except FileNotFoundError:
        return None
    measurements = [{name: float(row[name]) for name in TOLERANCES if row.get(name)} for row in rows]
    tasks = len(checksums[0])
    return [measurements[first : first + tasks] for first in range(0, len(measurements), tasks)]


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


class Journal(RunTables):
    """Tables and events of a tuning, inside `with Journal(folder, tasks) as journal`.

    Both tables are rewritten after every new generation, and never read. The events already contain generations from
    before an interruption.
    """

    def __init__(self, folder: Path, tasks: Sequence[str]) -> None:
        columns = {
            GENERATIONS: ("generation", "best", "median", "sigma"),
            VALIDATION: ("generation", "task", *TOLERANCES, "cost"),
        }
        super().__init__(folder, columns)
        self.tasks = tasks
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
            row = generation, task, *(values.get(name, "") for name in TOLERANCES), cost
            self.add_rows(VALIDATION, [row])

    def add_generation(self, report: GenerationReport, measurements: Measurements | None) -> None:
        """Add a generation, and the measurements of its validation, if any; a new one also to the files and events."""
        self.add_rows(GENERATIONS, [(report.generation, report.best, report.median, report.sigma)])
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

    def _make_logger(self, generation: int) -> Callable[[str, float], None]:
        """Return a function that writes a number of a generation as an event; it does nothing without TensorBoard."""
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
