"""The search over readings of the paper: which choices, one by one and together, let most of its statements hold.

Choices are made with one training seed that takes part in no report, on validation flocks and on data of their own;
what was chosen is then measured once, by `reproduce`, with other seeds on the test flocks. The stages:

    one by one     every choice by itself, all else as the text says
    greedy         choices that gained by themselves are added one after the other, and kept while the score rises
    factorial      all combinations of the two choices about training that gained most statements by themselves
    polish         every choice that needs no other training, once more under the best combination
    cloning        the experiment on generalization under the best and under the usual reading: it has one choice of its
                   own, the number of epochs, and takes too long to take part in the others

The score of a reading is the number of statements that hold; between equals it is the mean share of checks that hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from equiflock.controllers.trained import SEEDS
from equiflock.experiments.paper.ledger import Statement
from equiflock.experiments.paper.profiles import EXPERIMENTS, STATEMENTS, Profile, jobs_done, jobs_of, judged, table_of
from equiflock.experiments.paper.reading import CHOICES, CLONING, FLOWN, Reading, values_of
from equiflock.experiments.runner.jobs import Job
from equiflock.experiments.runner.running import run_jobs
from equiflock.runtime.checksums import checksum
from equiflock.runtime.files import remove
from equiflock.runtime.provenance import claimed, versions

KIND = "search over readings"
OURS = ("jobs", "trainings", "fast-forward", "joint-*", "*.csv", "*.json", "*.md", "*.html")
"""Patterns of the files that a search writes beside its config."""
FACTORS = 2
"""How many choices the factorial combines."""

SEARCH = Profile("search", seeds=(SEEDS.stop,), flocks=20, cloning_seeds=(SEEDS.stop,), split="validation")
"""One seed that no report has, and fewer flocks, none of which is a test flock."""


@dataclass(frozen=True)
class Judged:
    """The statements under one reading."""

    reading: Reading
    statements: tuple[Statement, ...]

    @property
    def held(self) -> int:
        """How many statements hold."""
        return sum(statement.verdict == "holds" for statement in self.statements)

    @property
    def checks(self) -> tuple[int, int]:
        """How many checks hold, and how many there are."""
        return sum(each.held for each in self.statements), sum(len(each.checks) for each in self.statements)

    @property
    def score(self) -> tuple[int, float]:
        """What readings are compared by: statements that hold, then the mean share of checks."""
        shares = [each.held / len(each.checks) for each in self.statements]
        return self.held, sum(shares) / len(shares)

    def gained(self, other: Judged) -> set[str]:
        """The statements that hold here and not under another reading."""
        ours, theirs = ({s.id for s in each.statements if s.verdict == "holds"} for each in (self, other))
        return ours - theirs


@dataclass
class Search:
    """A search in a folder: what is there is not run again.

    Args:
        folder: of jobs, trainings and data.
        workers: the number of processes.
        profile: seeds, flocks and data.
        scheduler: the address of a Dask scheduler whose workers run the jobs, in place of processes here.
        on_stage: called with the name of a stage and how many jobs come next; with 0 when some readings are judged.
        on_done: called with every job that is done, or was before.
        on_data: called with every time index of behaviour cloning's data that is made.
        on_notice: called with a line of text about whatever is damaged.
    """

    folder: Path
    workers: int
    profile: Profile = SEARCH
    scheduler: str | None = None
    on_stage: Callable[[str, int], object] = lambda stage, jobs: None
    on_done: Callable[[Job], object] = lambda job: None
    on_data: Callable[[int], object] = lambda step: None
    on_notice: Callable[[str], object] = lambda text: None
    by_flights: dict[Reading, Judged] = field(default_factory=dict)
    """What is judged so far of all experiments that fly, by reading."""
    by_cloning: dict[Reading, Judged] = field(default_factory=dict)
    """What is judged so far of the experiment on generalization, by reading."""
    best: Reading = field(default_factory=Reading)

    def run(self, force: bool = False) -> Reading:
        """All stages; returns the reading with the highest score. `force` removes what is in the folder first."""
        with claimed(self.folder, KIND, self.settings, OURS, force):
            self._one_by_one()
            self._greedy()
            self._factorial()
            self._polish()
            self._clone()
        return self.best

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that the results depend on."""
        tried = {name: repr(choice.others) for name, choice in CHOICES.items()}
        jobs = {name: checksum(repr(jobs_of(name, self.profile)).encode()) for name in EXPERIMENTS}
        return {"tried": tried, "profile": repr(self.profile), "jobs": jobs, "versions": versions("torch")}

    @property
    def singles(self) -> list[Reading]:
        """The usual reading, and every choice by itself."""
        return [Reading(), *Reading().alternatives()]

    def _one_by_one(self) -> None:
        self._fly("one by one", [reading.of(*FLOWN) for reading in self.singles])

    def _greedy(self) -> None:
        # The choices that gain by themselves, the best first; equals in the order of their names.
        first = self.by_flights[Reading()].score
        singles = dict.fromkeys(reading.of(*FLOWN) for reading in self.singles)
        gains = sorted((self.by_flights[each] for each in singles), key=lambda each: each.score, reverse=True)
        for single in gains:
            if single.score > first:
                self._try("greedy", [replace(self.best, **single.reading.changes)])

    def _factorial(self) -> None:
        # The choices about training, as all others are tried once more under the best of these.
        usual = self.by_flights[Reading()]
        gains: dict[str, set[str]] = {}
        for reading in self.singles:
            for name in reading.of("training").changes:
                gains[name] = gains.get(name, set()) | self.by_flights[reading].gained(usual)
        factors = sorted(gains, key=lambda name: len(gains[name]), reverse=True)[:FACTORS]
        values = {name: values_of(name) for name in factors}
        self._try(
            "factorial",
            [replace(self.best, **dict(zip(values, picked, strict=True))) for picked in product(*values.values())],
        )

    def _polish(self) -> None:
        for name, choice in CHOICES.items():
            if "training" not in choice.changes and CLONING not in choice.changes:
                self._try("polish", [replace(self.best, **{name: value}) for value in values_of(name)])

    def _clone(self) -> None:
        # Under the best reading, to choose the number of epochs; then under the usual one, for comparison.
        self._clone_under(self.best)
        found = [self.by_cloning[each.of(CLONING)] for each in self._numbers_of_epochs(self.best)]
        chosen = max(found, key=lambda each: each.score).reading
        self.best = replace(self.best, cloning_epochs=chosen.cloning_epochs)
        self._clone_under(Reading())

    def _try(self, stage: str, readings: Sequence[Reading]) -> None:
        """Judge some readings, and go on from the best of them if it is better than the best so far."""
        self._fly(stage, readings)
        for reading in readings:
            if self.by_flights[reading].score > self.by_flights[self.best].score:
                self.best = reading

    def _fly(self, stage: str, readings: Iterable[Reading]) -> None:
        """Judge readings by the experiments that fly."""
        new = [reading for reading in dict.fromkeys(readings) if reading not in self.by_flights]
        profiles = {reading: replace(self.profile, reading=reading) for reading in new}
        # All trainings first: flights that need one would wait for each other.
        self._run(stage, [job for each in profiles.values() for job in self._jobs("training", each)])
        # Then reading by reading, so that there are tables early; what is there is not run again.
        for reading, profile in profiles.items():
            self._run(stage, [job for name in FLOWN for job in self._jobs(name, profile)])
            tables = {name: table_of(name, profile, self.folder) for name in FLOWN}
            self.by_flights[reading] = Judged(reading, tuple(judged(profile, self.folder, tables)))
            self.on_stage(stage, 0)

    def _clone_under(self, reading: Reading) -> None:
        """Judge a reading by the experiment on generalization, with every number of epochs."""
        readings = [each.of(CLONING) for each in self._numbers_of_epochs(reading)]
        profiles = {each: replace(self.profile, reading=each) for each in readings}
        # They share the data, which is large, and of no use afterwards.
        data = profiles[readings[0]].data(self.folder)
        if self.scheduler is None and not all(jobs_done(CLONING, each, self.folder) for each in profiles.values()):
            for home, recipe in data.items():
                recipe.make(home, self.workers, self.on_data, self.on_notice)
        for each, profile in profiles.items():
            self._run("cloning", self._jobs(CLONING, profile))
            statements = STATEMENTS[CLONING](table_of(CLONING, profile, self.folder))
            self.by_cloning[each] = Judged(each, tuple(statements))
            self.on_stage("cloning", 0)
        for home in data:
            remove(home)

    def _numbers_of_epochs(self, reading: Reading) -> list[Reading]:
        return [replace(reading, cloning_epochs=epochs) for epochs in values_of("cloning_epochs")]

    def _jobs(self, experiment: str, profile: Profile) -> Sequence[Job]:
        return jobs_of(experiment, profile, self.folder)

    def _run(self, stage: str, jobs: Sequence[Job]) -> None:
        jobs = list(dict.fromkeys(jobs))  # readings may share some
        self.on_stage(stage, len(jobs))
        run_jobs(
            jobs,
            self.folder / "jobs",
            self.workers,
            self.on_done,
            scheduler=self.scheduler,
            on_notice=self.on_notice,
        )
