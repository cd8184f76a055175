"""Tuning in a run directory, which can be continued after any interruption.

    config.json           settings, initial weights and versions
    scores/               measures of all candidates of every generation and of every validation
    generations.csv       generation, costs of its best and its median candidate, sigma
    validation.csv        generation, task, measures on held-out flocks, cost; generation 0 is the initial network
    events.out.tfevents*  the same for TensorBoard
    weights.safetensors   the best network on held-out flocks, with its orbit technique parameters

A search is continued by replaying it with the stored scores, which takes a moment, so a continued run ends bit for bit
like an uninterrupted one. Scores have a checksum; damaged ones are computed again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import DamagedError, compute_file_checksum
from equiflock._runtime.executors import Executor
from equiflock._runtime.jobs import compute_result
from equiflock._runtime.provenance import collect_versions, lock_run_dir
from equiflock.controllers.loading import build_network, find_weights_file, load_file
from equiflock.controllers.networks.architecture import GAIN_PERIOD, LARGEST_GAIN_OPTION
from equiflock.controllers.networks.weights import FORMAT, Weights, read_tensors, write_weights
from equiflock.learning.run_directory import VALIDATION, WEIGHTS
from equiflock.tuning.candidates import (
    GENERATIONS,
    CandidateJob,
    GenerationReport,
    Journal,
    pack_weights,
    read_scores,
    write_scores,
)
from equiflock.tuning.objective import Measurements, compute_cost
from equiflock.tuning.search_space import (
    Genome,
    Strategy,
    Vector,
    add_near_obstacle_weights,
    compute_default_population,
    list_trainable_names,
)
from equiflock.tuning.tuning_recipe import Tuning

KIND = "tuning"
"""Kind of run directory, stored in its config."""
SCORES = "scores"
OUTPUT_PATTERNS = (SCORES, GENERATIONS, VALIDATION, WEIGHTS, "events.*")
"""Patterns of the files that a tuning writes beside its config."""
VALIDATION_SPLIT = "tuning validation"
"""Split of the flocks that decide which candidate is kept."""
VALIDATION_SEED = 0
"""Seed of these flocks, the same for every tuning."""
CHECK_STEPS = 3


class BestCandidate(NamedTuple):
    """Best candidate so far on held-out flocks."""

    generation: int
    cost: float
    vector: Vector
    measurements: Measurements
    initial_measurements: Measurements
    """Measurements of the initial weights on the same flocks."""


class TuningRun:
    """Tuning in a run directory: `tune` runs it, or continues it after an interruption.

    The directory must contain this tuning or nothing. `weights` is the file of the initial weights, `name` the user's
    name of it.
    """

    def __init__(self, folder: Path, recipe: Tuning, weights: Path, name: str | None = None) -> None:
        self.folder, self.recipe = folder, recipe
        self.weights = folder / WEIGHTS
        self.tasks = recipe.parsed_tasks
        network: Any = load_file(weights)
        self.initial_weights = {"name": name or str(weights), "checksum": compute_file_checksum(weights)}
        if recipe.near_from:
            self.initial_weights["near"] = compute_file_checksum(_find_near_from(recipe))
        if recipe.near:
            source = load_file(_find_near_from(recipe)) if recipe.near_from else None
            network = add_near_obstacle_weights(network, source, recipe.last_layer_scale, recipe.parsed_channel_scales)
        names = list_trainable_names(network)
        if recipe.near or not recipe.has_obstacles:
            # With `near` only the weights near obstacles are searched; without obstacles no agent uses them.
            names = {name for name in names if name.startswith("near.") == recipe.near}
        self._network = str(getattr(network, "name", type(network).__name__))
        options = dict(getattr(network, "options", {}))
        for option in (GAIN_PERIOD, LARGEST_GAIN_OPTION):
            if (value := getattr(recipe, option)) is not None:
                if getattr(network, "gain_schedule", None) is None:
                    raise InputError(f"{option} requires a network with a gain schedule; {self._network} has none")
                options[option] = value
        self._options = json.dumps(options)
        self.genome = Genome(network, recipe.tunes_orbit, recipe.search, recipe.features, names)
        self.genome.orbit = recipe.make_initial_orbit(self.genome.orbit)
        self.population = recipe.population or compute_default_population(self.genome.size)
        # The recipe of the training stays with the weights: it defines their unit of length.
        self._training_metadata = {
            key: value for key, value in read_tensors(weights, FORMAT)[1].items() if key == "recipe"
        }

    @property
    def config(self) -> dict[str, Any]:
        """Everything that the results of each generation depend on; the number of generations may grow."""
        settings = {name: value for name, value in self.recipe.settings.items() if name != "generations"}
        versions = collect_versions("cma")
        return {"settings": settings, "from": self.initial_weights, "versions": versions}

    def check(self) -> None:
        """Raise InputError, before anything is written, if the network cannot fly a task or no task has a measure.

        Every task is flown for three steps, in this process.
        """
        jobs = self.build_jobs(self.genome.initial_vector, "tried", "tried", 0, 1)
        short_tasks = [replace(job.task, duration=CHECK_STEPS * job.task.time_step) for job in jobs]
        tables = [compute_result(replace(job, task=task)) for job, task in zip(jobs, short_tasks, strict=True)]
        measurements = [_parse_measurements(table) for table in tables]
        self._compute_cost(measurements, measurements, measurements)

    def tune(
        self,
        executor: Executor,
        on_generation: Callable[[GenerationReport], object] = lambda report: None,
        on_notice: Callable[[str], object] = lambda text: None,
        on_flight: Callable[[int, int], object] = lambda done, total: None,
        should_stop: Callable[[], bool] = lambda: False,
        force: bool = False,
    ) -> BestCandidate:
        """Run the tuning to its end, write the best weights to the run directory, and return the best candidate.

        Args:
            executor: runs the jobs.
            on_generation: called with the report of every generation.
            on_notice: called with a line of text for the user, such as about damaged scores.
            on_flight: called with the numbers of finished and of all jobs of a generation or validation.
            should_stop: called before the jobs of a generation or validation; True raises KeyboardInterrupt.
            force: delete an existing tuning in the run directory and start again.
        """
        with lock_run_dir(self.folder, KIND, self.config, OUTPUT_PATTERNS, force):
            self._check_generations()
            evaluator = _CandidateEvaluator(self, executor, on_notice, on_flight, should_stop)
            with Journal(self.folder, [task.name for task in self.tasks]) as journal:
                best = self._search(evaluator, journal, on_generation)
                journal.write()
            self._write(best)
            return best

    def _check_generations(self) -> None:
        """Raise InputError if more generations are done than requested: their weights would be overwritten."""
        numbers = [path.stem.rpartition("-")[2] for path in (self.folder / SCORES).glob("generation-*.csv")]
        done = [int(number) for number in numbers if number.isdecimal()]
        if max(done, default=0) > self.recipe.generations:
            raise InputError(
                f"generations must be at least {max(done)}, as {self.folder} has that many already; "
                f"got {self.recipe.generations}"
            )

    def _search(
        self, evaluator: _CandidateEvaluator, journal: Journal, on_generation: Callable[[GenerationReport], object]
    ) -> BestCandidate:
        """Run CMA-ES for all generations, and return the candidate with the lowest cost on held-out flocks.

        This is a mean of the distribution, or the initial network if none costs less. Each new best is written at once.
        """
        recipe, genome = self.recipe, self.genome
        is_diagonal = recipe.is_diagonal(genome.size)
        strategy = Strategy(genome.size, self.population, recipe.sigma, recipe.seed, is_diagonal)
        # The initial weights on held-out flocks: candidates are kept only if they cost less.
        (initial_measurements,) = evaluator.evaluate_validation(0, genome.initial_vector)
        cost = self._compute_cost(initial_measurements, initial_measurements, initial_measurements)
        best = BestCandidate(0, cost, genome.initial_vector, initial_measurements, initial_measurements)
        journal.add_validation(0, initial_measurements, best.cost)
        for generation in range(1, recipe.generations + 1):
            # The initial weights fly the same flocks, since costs are relative to them.
            candidates = strategy.ask()
            reference, *measurements = evaluator.evaluate_generation(generation, [genome.initial_vector, *candidates])
            costs = [self._compute_cost(each, reference, initial_measurements) for each in measurements]
            strategy.tell(costs)
            validation: dict[str, Any] = {}
            if recipe.is_validation_due(generation):
                (own,) = evaluator.evaluate_validation(generation, strategy.mean)
                cost = self._compute_cost(own, initial_measurements, initial_measurements)
                validation = {"validation": cost}
                if cost < best.cost:
                    best = BestCandidate(generation, cost, strategy.mean, own, initial_measurements)
                    validation["is_best"] = True
                    if not evaluator.is_replayed:
                        self._write(best)
            numbers = min(costs), float(np.median(costs)), strategy.sigma
            report = GenerationReport(generation, *numbers, **validation, is_replayed=evaluator.is_replayed)
            journal.add_generation(report, own if validation else None)
            on_generation(report)
        return best

    def _compute_cost(self, measurements: Measurements, initial: Measurements, held_out: Measurements) -> float:
        return compute_cost(measurements, initial, held_out, self.tasks, self.recipe.measure_weights)

    def build_jobs(self, vector: Vector, name: str, split: str, seed: int, flocks: int | None) -> list[CandidateJob]:
        """Return the jobs of a candidate, one per task; `flocks`, unless None, overrides the number in each task."""
        candidate, recipe = self.genome.decode(vector), self.recipe
        network = self._network, self._options, pack_weights(candidate), candidate.orbit
        settings = seed, split, recipe.measurement_interval, name
        return [CandidateJob(*network, task, flocks or task.flocks or recipe.flocks, *settings) for task in self.tasks]

    def _write(self, best: BestCandidate) -> None:
        """Write the best weights atomically, with metadata on their origin."""
        candidate = self.genome.decode(best.vector)
        network = build_network(Weights(candidate.weights, self._network, json.loads(self._options), candidate.orbit))
        extra = {
            **self._training_metadata,
            "command": self.recipe.format_command(self.initial_weights["name"]),
            "tuning": self.recipe.settings,
            "from": self.initial_weights,
            "kept": {"generation": best.generation, "cost": best.cost},
            "versions": self.config["versions"],
        }
        write_weights(network, self.weights, extra)


class _CandidateEvaluator:
    """Measures candidates, or reads their scores from before an interruption."""

    def __init__(
        self,
        run: TuningRun,
        executor: Executor,
        on_notice: Callable[[str], object],
        on_flight: Callable[[int, int], object],
        should_stop: Callable[[], bool],
    ) -> None:
        self.run, self.executor = run, executor
        self.on_notice, self.on_flight, self.should_stop = on_notice, on_flight, should_stop
        self.is_replayed = True
        """Whether all scores so far come from files."""

    def evaluate_generation(self, number: int, vectors: Sequence[Vector]) -> list[Measurements]:
        """Return the measures of each candidate on the flocks of a generation, one mapping per task."""
        split, seed = f"tuning {number}", self.run.recipe.seed
        jobs = [self.run.build_jobs(each, f"{number}-{c}", split, seed, None) for c, each in enumerate(vectors)]
        return self._read_or_compute(f"generation-{number:06d}.csv", jobs)

    def evaluate_validation(self, number: int, vector: Vector) -> list[Measurements]:
        """Return the measures of one candidate on held-out flocks, as a list with one element."""
        flocks = self.run.recipe.validation_flocks
        jobs = [self.run.build_jobs(vector, f"validation-{number}", VALIDATION_SPLIT, VALIDATION_SEED, flocks)]
        return self._read_or_compute(f"validation-{number:06d}.csv", jobs)

    def _read_or_compute(self, name: str, jobs: list[list[CandidateJob]]) -> list[Measurements]:
        """Read the scores from a file, or run these jobs on the workers and write the file.

        A damaged file, or one of other candidates, is computed again, with a notice. Raise KeyboardInterrupt if jobs
        would run but `should_stop` returns True.
        """
        path, checksums = self.run.folder / SCORES / name, [[job.job_checksum for job in own] for own in jobs]
        try:
            scores = read_scores(path, checksums)
            if scores is not None:
                return scores
        except DamagedError as error:
            self.on_notice(f"{error}; it is computed again")
        if self.should_stop():
            raise KeyboardInterrupt
        self.is_replayed = False
        flights = list(chain.from_iterable(jobs))
        tables: dict[int, pd.DataFrame] = {}
        for index, table in self.executor.compute_tables(flights):
            tables[index] = table
            self.on_flight(len(tables), len(flights))
        values = [_parse_measurements(tables[index]) for index in range(len(flights))]
        tasks = len(self.run.tasks)
        measurements: list[Measurements] = [values[first : first + tasks] for first in range(0, len(values), tasks)]
        write_scores(path, checksums, [task.name for task in self.run.tasks], measurements)
        return measurements


def _find_near_from(recipe: Tuning) -> Path:
    """Return the file of the initial weights near obstacles: that of bundled weights, or `near_from` as a path."""
    return find_weights_file(recipe.near_from) or Path(recipe.near_from)


def _parse_measurements(table: pd.DataFrame) -> dict[str, float]:
    """Return the measures in the result of a job."""
    return {str(name): float(value) for name, value in table.iloc[0].items()}
