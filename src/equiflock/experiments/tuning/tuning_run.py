"""A tuning that is kept in a folder and can be continued after any interruption.

    config.json           the settings, the weights that it began from, and versions
    scores/               the measures of all candidates of every generation, and of every validation
    generations.csv       generation, the costs of its best and its median candidate, sigma
    validation.csv        generation, task, measures on held-out flocks, cost; generation 0 is the beginning
    events.out.tfevents*  the same for TensorBoard
    weights.safetensors   the network that is best on held-out flocks, with its numbers of the orbit technique

A search is continued by repeating it with the scores that are there, which takes a moment, so a continued run ends with
the same bits as one that was never interrupted. Scores have a checksum; damaged ones are computed again.
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

from equiflock.controllers.loading import build_network, find_weights_file, load_file
from equiflock.controllers.networks.weights import FORMAT, Weights, read_tensors, write_weights
from equiflock.experiments.runner.jobs import compute_result
from equiflock.experiments.runner.persistent_workers import PersistentWorkers
from equiflock.experiments.tuning.candidate_job import CandidateJob, pack_weights
from equiflock.experiments.tuning.genome import Genome, Vector, list_trainable_names
from equiflock.experiments.tuning.journal import GENERATIONS, VALIDATION, GenerationReport, Journal
from equiflock.experiments.tuning.near_obstacle_weights import add_near_obstacle_weights
from equiflock.experiments.tuning.objective import Measurements, compute_cost
from equiflock.experiments.tuning.recipe import Tuning
from equiflock.experiments.tuning.scores import read_scores, write_scores
from equiflock.experiments.tuning.strategy import Strategy, compute_default_population
from equiflock.runtime.checks import InputError
from equiflock.runtime.checksums import DamagedError, compute_file_checksum
from equiflock.runtime.provenance import collect_versions, lock_run_dir

KIND = "tuning"
"""The kind of folder that its config names."""
SCORES, WEIGHTS = "scores", "weights.safetensors"
OUTPUT_PATTERNS = (SCORES, GENERATIONS, VALIDATION, WEIGHTS, "events.*")
"""The names of the files that a tuning writes beside its config, as patterns."""
VALIDATION_SPLIT = "tuning validation"
"""The split of the flocks that decide what is kept."""
VALIDATION_SEED = 0
"""Their seed: they are the same for every tuning."""
CHECK_STEPS = 3


class BestCandidate(NamedTuple):
    """The best so far on held-out flocks."""

    generation: int
    cost: float
    vector: Vector
    measurements: Measurements
    initial_measurements: Measurements
    """What the weights that the search began with were measured by on the same flocks."""


class TuningRun:
    """A tuning in a folder: `tune` runs it, or continues it after an interruption.

    Args:
        folder: made if it is not there; it must hold this tuning or nothing.
        recipe: the settings.
        weights: the file of the weights to begin from.
        name: how the user calls these weights.
    """

    def __init__(self, folder: Path, recipe: Tuning, weights: Path, name: str | None = None) -> None:
        self.folder, self.recipe = folder, recipe
        self.weights = folder / WEIGHTS
        self.tasks = recipe.parsed_tasks
        network: Any = load_file(weights)
        self.initial_weights = {"name": name or str(weights), "checksum": compute_file_checksum(weights)}
        if recipe.near_from:
            self.initial_weights["near"] = compute_file_checksum(_near_from(recipe))
        if recipe.near:
            network = add_near_obstacle_weights(
                network, load_file(_near_from(recipe)) if recipe.near_from else None, recipe.last_layer_scale
            )
        names = list_trainable_names(network)
        if recipe.near or not recipe.has_obstacles:
            # Either these weights alone are searched, or no agent uses them in these flights.
            names = {name for name in names if name.startswith("near.") == recipe.near}
        self._network = str(getattr(network, "name", type(network).__name__))
        self._options = json.dumps(dict(getattr(network, "options", {})))
        self.genome = Genome(network, recipe.tunes_orbit, recipe.search, recipe.features, names)
        self.genome.orbit = recipe.make_initial_orbit(self.genome.orbit)
        self.population = recipe.population or compute_default_population(self.genome.size)
        # What the weights were trained with stays with them: their own unit of length is in it.
        self._training_metadata = {
            key: value for key, value in read_tensors(weights, FORMAT)[1].items() if key == "recipe"
        }

    @property
    def config(self) -> dict[str, Any]:
        """Everything on which the bits of each generation depend; the number of generations may grow."""
        settings = {name: value for name, value in self.recipe.settings.items() if name != "generations"}
        versions = collect_versions("cma")
        return {"settings": settings, "from": self.initial_weights, "versions": versions}

    def check(self) -> None:
        """Raise a clear error, before anything is kept, if the network cannot fly a task, or no measure is in any."""
        jobs = self.jobs(self.genome.initial_vector, "tried", "tried", 0, 1)
        few = [replace(job.task, duration=CHECK_STEPS * job.task.time_step) for job in jobs]
        tables = [compute_result(replace(job, task=task)) for job, task in zip(jobs, few, strict=True)]
        measurements = [_parse_measurements(table) for table in tables]
        self._cost(measurements, measurements, measurements)

    def tune(
        self,
        workers: PersistentWorkers,
        on_generation: Callable[[GenerationReport], object] = lambda report: None,
        on_notice: Callable[[str], object] = lambda text: None,
        on_flight: Callable[[int, int], object] = lambda done, of: None,
        should_stop: Callable[[], bool] = lambda: False,
        force: bool = False,
    ) -> BestCandidate:
        """Tune to the end; returns what was kept, and the weights are in the folder.

        Args:
            workers: fly the candidates.
            on_generation: called with the report of every generation.
            on_notice: called with a line of text that a user should read, such as about damaged scores.
            on_flight: called with the number of flights that are done of those of a generation, or of a validation.
            should_stop: called before flights of a generation, or of a validation, begin; True ends the tuning.
            force: remove the tuning that is in the folder, and begin anew.

        Raises:
            KeyboardInterrupt: if `should_stop` returned True.
        """
        with lock_run_dir(self.folder, KIND, self.config, OUTPUT_PATTERNS, force):
            self._check_generations()
            flying = _CandidateEvaluator(self, workers, on_notice, on_flight, should_stop)
            with Journal(self.folder, [task.scenario for task in self.tasks]) as journal:
                best = self._search(flying, journal, on_generation)
                journal.write()
            self._write(best)
            return best

    def _check_generations(self) -> None:
        """A clear error if more generations are done: what they found would be replaced by less."""
        done = [int(path.stem.rpartition("-")[2]) for path in (self.folder / SCORES).glob("generation-*.csv")]
        if max(done, default=0) > self.recipe.generations:
            raise InputError(f"{max(done)} generations are done already in {self.folder}: ask for at least as many")

    def _search(
        self, flying: _CandidateEvaluator, journal: Journal, on_generation: Callable[[GenerationReport], object]
    ) -> BestCandidate:
        recipe, genome = self.recipe, self.genome
        settings = self.population, recipe.sigma, recipe.seed, recipe.is_diagonal(genome.size)
        strategy = Strategy(genome.size, *settings)
        # The beginning on held-out flocks, which whatever is kept must beat.
        (initial_measurements,) = flying.validation(0, genome.initial_vector)
        best = BestCandidate(
            0,
            self._cost(initial_measurements, initial_measurements, initial_measurements),
            genome.initial_vector,
            initial_measurements,
            initial_measurements,
        )
        journal.add_validation(0, initial_measurements, best.cost)
        for generation in range(1, recipe.generations + 1):
            # The beginning flies the same flocks, so that its measures are what candidates' are beside.
            candidates = strategy.ask()
            usual, *measurements = flying.generation(generation, [genome.initial_vector, *candidates])
            costs = [self._cost(each, usual, initial_measurements) for each in measurements]
            strategy.tell(costs)
            told: dict[str, Any] = {}
            if recipe.is_validation_due(generation):
                (own,) = flying.validation(generation, strategy.mean)
                told = {"validation": self._cost(own, initial_measurements, initial_measurements)}
                if told["validation"] < best.cost:
                    best = BestCandidate(generation, told["validation"], strategy.mean, own, initial_measurements)
                    told["is_best"] = True
                    if not flying.is_replayed:
                        self._write(best)
            numbers = min(costs), float(np.median(costs)), strategy.sigma
            report = GenerationReport(generation, *numbers, **told, is_replayed=flying.is_replayed)
            journal.add_generation(report, own if told else None)
            on_generation(report)
        return best

    def _cost(self, measurements: Measurements, usual: Measurements, held_out: Measurements) -> float:
        return compute_cost(measurements, usual, held_out, self.tasks, self.recipe.measure_weights)

    def jobs(self, vector: Vector, name: str, split: str, seed: int, flocks: int | None) -> list[CandidateJob]:
        """The jobs of a candidate, one for each task; `flocks` in place of as many as the tasks have themselves."""
        candidate = self.genome.decode(vector)
        made = self._network, self._options, pack_weights(candidate), candidate.orbit
        return [
            CandidateJob(
                *made,
                task,
                flocks or task.flocks or self.recipe.flocks,
                seed,
                split,
                self.recipe.measurement_interval,
                name,
            )
            for task in self.tasks
        ]

    def _write(self, best: BestCandidate) -> None:
        """Write the weights that are kept, with all that tells where they come from."""
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
    """Measures candidates, or reads what was measured before an interruption."""

    def __init__(
        self,
        run: TuningRun,
        workers: PersistentWorkers,
        on_notice: Callable[[str], object],
        on_flight: Callable[[int, int], object],
        should_stop: Callable[[], bool],
    ) -> None:
        self.run, self.workers = run, workers
        self.on_notice, self.on_flight, self.should_stop = on_notice, on_flight, should_stop
        self.is_replayed = True
        """Whether all scores so far were there already."""

    def generation(self, number: int, vectors: Sequence[Vector]) -> list[Measurements]:
        """The measures of candidates on the flocks of a generation."""
        split, seed = f"tuning {number}", self.run.recipe.seed
        jobs = [self.run.jobs(each, f"{number}-{c}", split, seed, None) for c, each in enumerate(vectors)]
        return self._read_or_compute(f"generation-{number:06d}.csv", jobs)

    def validation(self, number: int, vector: Vector) -> list[Measurements]:
        """The measures of one candidate on held-out flocks."""
        flocks = self.run.recipe.validation_flocks
        jobs = [self.run.jobs(vector, f"validation-{number}", VALIDATION_SPLIT, VALIDATION_SEED, flocks)]
        return self._read_or_compute(f"validation-{number:06d}.csv", jobs)

    def _read_or_compute(self, name: str, jobs: list[list[CandidateJob]]) -> list[Measurements]:
        """Read the scores of a file, or fly these jobs and write them."""
        path, checksums = self.run.folder / SCORES / name, [[job.job_checksum for job in own] for own in jobs]
        try:
            found = read_scores(path, checksums)
            if found is not None:
                return found
        except DamagedError as error:
            self.on_notice(f"{error}; it is computed again")
        if self.should_stop():
            raise KeyboardInterrupt
        self.is_replayed = False
        flights, done = list(chain.from_iterable(jobs)), 0

        def advance() -> None:
            nonlocal done
            done += 1
            self.on_flight(done, len(flights))

        compute_tables = self.workers.compute_tables(flights, advance)
        values = [_parse_measurements(table) for table in compute_tables]
        tasks = len(self.run.tasks)
        measurements: list[Measurements] = [values[first : first + tasks] for first in range(0, len(values), tasks)]
        write_scores(path, checksums, [task.scenario for task in self.run.tasks], measurements)
        return measurements


def _near_from(recipe: Tuning) -> Path:
    """The file from which weights near obstacles begin."""
    return find_weights_file(recipe.near_from) or Path(recipe.near_from)


def _parse_measurements(table: pd.DataFrame) -> dict[str, float]:
    """The measures in the result of a job."""
    return {str(name): float(value) for name, value in table.iloc[0].items()}
