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

from equiflock.controllers.loading import build_network, load_file, weights_file
from equiflock.controllers.networks.weights import FORMAT, Weights, read_tensors, write_weights
from equiflock.experiments.runner.jobs import compute
from equiflock.experiments.runner.steady import SteadyWorkers
from equiflock.experiments.tuning.genome import Genome, Vector, trainable_names
from equiflock.experiments.tuning.jobs import CandidateJob, packed
from equiflock.experiments.tuning.journal import GENERATIONS, VALIDATION, GenerationReport, Journal
from equiflock.experiments.tuning.near import add_near
from equiflock.experiments.tuning.objective import Measured, cost
from equiflock.experiments.tuning.recipe import Tuning
from equiflock.experiments.tuning.scores import read_scores, write_scores
from equiflock.experiments.tuning.strategy import Strategy, usual_population
from equiflock.runtime.checks import InputError
from equiflock.runtime.checksums import DamagedError, file_checksum
from equiflock.runtime.provenance import circumstances, claimed

KIND = "tuning"
"""The kind of folder that its config names."""
SCORES, WEIGHTS = "scores", "weights.safetensors"
OURS = (SCORES, GENERATIONS, VALIDATION, WEIGHTS, "events.*")
"""The names of the files that a tuning writes beside its config, as patterns."""
HELD_OUT = "tuning validation"
"""The split of the flocks that decide what is kept."""
HELD_OUT_SEED = 0
"""Their seed: they are the same for every tuning."""
TRIED_STEPS = 3


class Kept(NamedTuple):
    """The best so far on held-out flocks."""

    generation: int
    cost: float
    vector: Vector
    measured: Measured
    begun: Measured
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
        self.tasks = recipe.scenes
        network: Any = load_file(weights)
        self.origin = {"name": name or str(weights), "checksum": file_checksum(weights)}
        if recipe.near_from:
            self.origin["near"] = file_checksum(_near_from(recipe))
        if recipe.near:
            network = add_near(network, load_file(_near_from(recipe)) if recipe.near_from else None, recipe.soften)
        names = trainable_names(network)
        if recipe.near or not recipe.meets_obstacles:
            # Either these weights alone are searched, or no agent uses them in these flights.
            names = {name for name in names if name.startswith("near.") == recipe.near}
        self._network = str(getattr(network, "name", type(network).__name__))
        self._options = json.dumps(dict(getattr(network, "options", {})))
        self.genome = Genome(network, recipe.tunes_orbit, recipe.search, recipe.features, names)
        self.genome.orbit = recipe.begun_orbit(self.genome.orbit)
        self.population = recipe.population or usual_population(self.genome.size)
        # What the weights were trained with stays with them: their own unit of length is in it.
        self._trained = {key: value for key, value in read_tensors(weights, FORMAT)[1].items() if key == "recipe"}

    @property
    def config(self) -> dict[str, Any]:
        """Everything on which the bits of each generation depend; the number of generations may grow."""
        settings = {name: value for name, value in self.recipe.settings.items() if name != "generations"}
        versions = circumstances("cma")
        return {"settings": settings, "from": self.origin, "versions": versions}

    def check(self) -> None:
        """Raise a clear error, before anything is kept, if the network cannot fly a task, or no measure is in any."""
        jobs = self.jobs(self.genome.zero, "tried", "tried", 0, 1)
        few = [replace(job.task, duration=TRIED_STEPS * job.task.time_step) for job in jobs]
        tables = [compute(replace(job, task=task)) for job, task in zip(jobs, few, strict=True)]
        measured = [_numbers(table) for table in tables]
        self._cost(measured, measured, measured)

    def tune(
        self,
        workers: SteadyWorkers,
        on_generation: Callable[[GenerationReport], object] = lambda report: None,
        on_notice: Callable[[str], object] = lambda text: None,
        on_flight: Callable[[int, int], object] = lambda done, of: None,
        should_stop: Callable[[], bool] = lambda: False,
        force: bool = False,
    ) -> Kept:
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
        with claimed(self.folder, KIND, self.config, OURS, force):
            self._check_generations()
            flying = _Flying(self, workers, on_notice, on_flight, should_stop)
            with Journal(self.folder, [task.scenario for task in self.tasks]) as journal:
                kept = self._search(flying, journal, on_generation)
                journal.write()
            self._write(kept)
            return kept

    def _check_generations(self) -> None:
        """A clear error if more generations are done: what they found would be replaced by less."""
        done = [int(path.stem.rpartition("-")[2]) for path in (self.folder / SCORES).glob("generation-*.csv")]
        if max(done, default=0) > self.recipe.generations:
            raise InputError(f"{max(done)} generations are done already in {self.folder}: ask for at least as many")

    def _search(self, flying: _Flying, journal: Journal, on_generation: Callable[[GenerationReport], object]) -> Kept:
        recipe, genome = self.recipe, self.genome
        settings = self.population, recipe.sigma, recipe.seed, recipe.is_diagonal(genome.size)
        strategy = Strategy(genome.size, *settings)
        # The beginning on held-out flocks, which whatever is kept must beat.
        (begun,) = flying.validation(0, genome.zero)
        kept = Kept(0, self._cost(begun, begun, begun), genome.zero, begun, begun)
        journal.judged(0, begun, kept.cost)
        for generation in range(1, recipe.generations + 1):
            # The beginning flies the same flocks, so that its measures are what candidates' are beside.
            candidates = strategy.ask()
            usual, *measured = flying.generation(generation, [genome.zero, *candidates])
            costs = [self._cost(each, usual, begun) for each in measured]
            strategy.tell(costs)
            told: dict[str, Any] = {}
            if recipe.validates(generation):
                (own,) = flying.validation(generation, strategy.mean)
                told = {"validation": self._cost(own, begun, begun)}
                if told["validation"] < kept.cost:
                    kept = Kept(generation, told["validation"], strategy.mean, own, begun)
                    told["kept"] = True
                    if not flying.repeated:
                        self._write(kept)
            numbers = min(costs), float(np.median(costs)), strategy.sigma
            report = GenerationReport(generation, *numbers, **told, repeated=flying.repeated)
            journal.add(report, own if told else None)
            on_generation(report)
        return kept

    def _cost(self, measured: Measured, usual: Measured, held_out: Measured) -> float:
        return cost(measured, usual, held_out, self.tasks, self.recipe.weights)

    def jobs(self, vector: Vector, name: str, split: str, seed: int, flocks: int | None) -> list[CandidateJob]:
        """The jobs of a candidate, one for each task; `flocks` in place of as many as the tasks have themselves."""
        candidate = self.genome.decode(vector)
        made = self._network, self._options, packed(candidate), candidate.orbit
        return [
            CandidateJob(*made, task, flocks or task.flocks or self.recipe.flocks, seed, split, self.recipe.look, name)
            for task in self.tasks
        ]

    def _write(self, kept: Kept) -> None:
        """Write the weights that are kept, with all that tells where they come from."""
        candidate = self.genome.decode(kept.vector)
        network = build_network(Weights(candidate.weights, self._network, json.loads(self._options), candidate.orbit))
        extra = {
            **self._trained,
            "command": self.recipe.command(self.origin["name"]),
            "tuning": self.recipe.settings,
            "from": self.origin,
            "kept": {"generation": kept.generation, "cost": kept.cost},
            "versions": self.config["versions"],
        }
        write_weights(network, self.weights, extra)


class _Flying:
    """Measures candidates, or reads what was measured before an interruption."""

    def __init__(
        self,
        run: TuningRun,
        workers: SteadyWorkers,
        on_notice: Callable[[str], object],
        on_flight: Callable[[int, int], object],
        should_stop: Callable[[], bool],
    ) -> None:
        self.run, self.workers = run, workers
        self.on_notice, self.on_flight, self.should_stop = on_notice, on_flight, should_stop
        self.repeated = True
        """Whether all scores so far were there already."""

    def generation(self, number: int, vectors: Sequence[Vector]) -> list[Measured]:
        """The measures of candidates on the flocks of a generation."""
        split, seed = f"tuning {number}", self.run.recipe.seed
        jobs = [self.run.jobs(each, f"{number}-{c}", split, seed, None) for c, each in enumerate(vectors)]
        return self._scores(f"generation-{number:06d}.csv", jobs)

    def validation(self, number: int, vector: Vector) -> list[Measured]:
        """The measures of one candidate on held-out flocks."""
        flocks = self.run.recipe.validation_flocks
        jobs = [self.run.jobs(vector, f"validation-{number}", HELD_OUT, HELD_OUT_SEED, flocks)]
        return self._scores(f"validation-{number:06d}.csv", jobs)

    def _scores(self, name: str, jobs: list[list[CandidateJob]]) -> list[Measured]:
        """Read the scores of a file, or fly these jobs and write them."""
        path, marks = self.run.folder / SCORES / name, [[job.mark for job in own] for own in jobs]
        try:
            found = read_scores(path, marks)
            if found is not None:
                return found
        except DamagedError as error:
            self.on_notice(f"{error}; it is computed again")
        if self.should_stop():
            raise KeyboardInterrupt
        self.repeated = False
        flights, done = list(chain.from_iterable(jobs)), 0

        def advance() -> None:
            nonlocal done
            done += 1
            self.on_flight(done, len(flights))

        tables = self.workers.tables(flights, advance)
        values = [_numbers(table) for table in tables]
        tasks = len(self.run.tasks)
        measured: list[Measured] = [values[first : first + tasks] for first in range(0, len(values), tasks)]
        write_scores(path, marks, [task.scenario for task in self.run.tasks], measured)
        return measured


def _near_from(recipe: Tuning) -> Path:
    """The file from which weights near obstacles begin."""
    return weights_file(recipe.near_from) or Path(recipe.near_from)


def _numbers(table: pd.DataFrame) -> dict[str, float]:
    """The measures in the result of a job."""
    return {str(name): float(value) for name, value in table.iloc[0].items()}
