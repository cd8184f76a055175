"""The search over readings of the paper: which choices, one by one and together, let most of its statements hold.

Choices are made with one training seed that takes part in no report, on validation flocks and on data of their own;
what was chosen is then measured once, by `reproduce`, with other seeds on the test flocks. The stages:

    one by one     every choice by itself, all else as the text says
    greedy         choices that gained by themselves are added one after the other, and kept while the score rises
    factorial      all combinations of the two choices about training that let most other statements hold
    polish         every choice that needs no other training, once more under the best combination
    cloning        the experiment on generalization, which has data and one choice of its own

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
from equiflock.experiments.paper.reading import CHOICES, CLONING, FLOWN, Reading
from equiflock.experiments.runner.jobs import Job
from equiflock.experiments.runner.running import run_jobs
from equiflock.runtime.checksums import checksum
from equiflock.runtime.files import remove
from equiflock.runtime.provenance import claimed, versions

KIND = "search over readings"
OURS = ("jobs", "trainings", "fast-forward", "joint", "*.csv", "*.json", "*.md", "*.html")
"""Patterns of the files that a search writes beside its config."""
STAGES = ("one by one", "greedy", "factorial", "polish", "cloning")
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
        found = [check.holds for statement in self.statements for check in statement.checks]
        return sum(found), len(found)

    @property
    def score(self) -> tuple[int, float]:
        """What readings are compared by: statements that hold, then the mean share of checks."""
        shares = [sum(check.holds for check in each.checks) / len(each.checks) for each in self.statements]
        return self.held, sum(shares) / len(shares)

    def gained(self, other: Judged) -> int:
        """How many statements hold here that do not under another reading."""
        theirs = {each.id for each in other.statements if each.verdict == "holds"}
        return sum(each.verdict == "holds" and each.id not in theirs for each in self.statements)


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
    flown: dict[Reading, Judged] = field(default_factory=dict)
    """What is judged so far of all experiments that fly, by reading."""
    cloned: dict[Reading, Judged] = field(default_factory=dict)
    """What is judged so far of the experiment on generalization, by reading."""
    best: Reading = field(default_factory=Reading)

    def run(self) -> Reading:
        """All stages; returns the reading with the highest score."""
        with claimed(self.folder, KIND, self.settings, OURS):
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
        return {"tried": tried, "profile": repr(self.profile), "jobs": jobs, "versions": versions()}

    @property
    def singles(self) -> list[Reading]:
        """What the text says, and every choice by itself."""
        return [Reading(), *Reading().alternatives()]

    def _one_by_one(self) -> None:
        self._fly("one by one", [reading.of(*FLOWN) for reading in self.singles])

    def _greedy(self) -> None:
        # The choices that lose nothing by themselves, the best first.
        first = self.flown[Reading()].score
        singles = {reading.of(*FLOWN) for reading in self.singles} - {Reading()}
        gains = sorted((self.flown[each] for each in singles), key=lambda each: each.score, reverse=True)
        for single in gains:
            if single.score > first:
                self._try("greedy", [replace(self.best, **single.reading.changes)])

    def _factorial(self) -> None:
        # The choices about training, as all others are tried once more under the best of these.
        usual = self.flown[Reading()]
        gains: dict[str, int] = {}
        for reading in self.singles:
            for name in reading.of("training").changes:
                gains[name] = gains.get(name, 0) + self.flown[reading].gained(usual)
        factors = sorted(gains, key=lambda name: gains[name], reverse=True)[:FACTORS]
        values = {name: (getattr(Reading, name), *CHOICES[name].others) for name in factors}
        self._try(
            "factorial",
            [replace(self.best, **dict(zip(values, picked, strict=True))) for picked in product(*values.values())],
        )

    def _polish(self) -> None:
        for name, choice in CHOICES.items():
            if "training" not in choice.changes and CLONING not in choice.changes:
                others = (getattr(Reading, name), *choice.others)
                self._try("polish", [replace(self.best, **{name: value}) for value in others])

    def _clone(self) -> None:
        # What the text says and the other numbers of epochs decide on these; then all other choices, for the table.
        singles = dict.fromkeys(reading.of(CLONING) for reading in self.singles)
        own = [reading for reading in singles if not reading.of(*FLOWN).changes]
        self._clone_under(own)
        epochs = max(own, key=lambda reading: self.cloned[reading].score).cloning_epochs
        self.best = replace(self.best, cloning_epochs=epochs)
        self._clone_under(reading for reading in singles if reading not in own)

    def _try(self, stage: str, readings: Sequence[Reading]) -> None:
        """Judge some readings, and go on from the best of them if it is better than the best so far."""
        self._fly(stage, readings)
        for reading in readings:
            if self.flown[reading].score > self.flown[self.best].score:
                self.best = reading

    def _fly(self, stage: str, readings: Iterable[Reading]) -> None:
        """Judge readings by the experiments that fly."""
        new = [reading for reading in dict.fromkeys(readings) if reading not in self.flown]
        profiles = {reading: replace(self.profile, reading=reading) for reading in new}
        # The trainings first: flights that need one would wait for each other. A job of several readings is run once.
        for experiments in (FLOWN[:1], FLOWN[1:]):
            jobs = [job for each in profiles.values() for name in experiments for job in self._jobs(name, each)]
            self._run(stage, list(dict.fromkeys(jobs)))
        for reading, profile in profiles.items():
            tables = {name: table_of(name, profile, self.folder) for name in FLOWN}
            self.flown[reading] = Judged(reading, tuple(judged(profile, self.folder, tables)))
        self.on_stage(stage, 0)

    def _clone_under(self, readings: Iterable[Reading]) -> None:
        """Judge readings by the experiment on generalization, one after the other."""
        for reading in readings:
            profile = replace(self.profile, reading=reading)
            # The data of a reading is large, and of no use afterwards.
            data = profile.data(self.folder)
            if self.scheduler is None and not jobs_done(CLONING, profile, self.folder):
                for home, recipe in data.items():
                    recipe.make(home, self.workers, self.on_data, self.on_notice)
            self._run("cloning", self._jobs(CLONING, profile))
            for home in data:
                remove(home)
            statements = STATEMENTS[CLONING](table_of(CLONING, profile, self.folder))
            self.cloned[reading] = Judged(reading, tuple(statements))
            self.on_stage("cloning", 0)

    def _jobs(self, experiment: str, profile: Profile) -> Sequence[Job]:
        return jobs_of(experiment, profile, self.folder)

    def _run(self, stage: str, jobs: Sequence[Job]) -> None:
        self.on_stage(stage, len(jobs))
        run_jobs(
            jobs,
            self.folder / "jobs",
            self.workers,
            self.on_done,
            scheduler=self.scheduler,
            on_notice=self.on_notice,
        )
