"""Search over interpretations of the paper for the choices under which most of its statements hold.

The search uses one training seed that no report uses, validation flocks and separate data; `reproduce` then measures
the selected interpretation once, with other seeds on the test flocks. The stages:

    one by one     every single change of the default interpretation
    greedy         single changes that raised the score are added one after another, and kept while the score rises
    factorial      all combinations of the two training choices that gained most statements individually
    polish         every choice that requires no other training, again under the best combination
    cloning        the generalization experiment under the best and the default interpretation; it has one choice, the
                   number of epochs, and takes too long for the other stages

The score of an interpretation is the number of statements that hold; ties are broken by the mean share of checks that
hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from equiflock.controllers.trained import PAPER_SEEDS
from equiflock.experiments.paper.interpretation import (
    CHOICES,
    CLONING_EXPERIMENT,
    FLIGHT_EXPERIMENTS,
    Interpretation,
    list_values,
)
from equiflock.experiments.paper.ledger import Statement
from equiflock.experiments.paper.profiles import (
    EXPERIMENTS,
    STATEMENT_BUILDERS,
    Profile,
    are_jobs_done,
    build_jobs,
    judge_statements,
    read_experiment_table,
)
from equiflock.experiments.runner.jobs import Job
from equiflock.experiments.runner.run_jobs import run_jobs
from equiflock.runtime.checksums import compute_checksum
from equiflock.runtime.files import remove_path
from equiflock.runtime.provenance import lock_run_dir, read_package_versions

KIND = "search over interpretations"
OUTPUT_PATTERNS = ("jobs", "trainings", "fast-forward", "joint-*", "*.csv", "*.json", "*.md", "*.html")
"""Patterns of the files that a search writes beside its config."""
FACTORIAL_SIZE = 2
"""Number of choices that the factorial combines."""

SEARCH_PROFILE = Profile(
    "search", seeds=(PAPER_SEEDS.stop,), flocks=20, cloning_seeds=(PAPER_SEEDS.stop,), split="validation"
)
"""One seed that no report uses, and fewer flocks, none of which is a test flock."""


@dataclass(frozen=True)
class JudgedInterpretation:
    """Statements under one interpretation."""

    interpretation: Interpretation
    statements: tuple[Statement, ...]

    @property
    def held_count(self) -> int:
        """Number of statements that hold."""
        return sum(statement.verdict == "holds" for statement in self.statements)

    @property
    def checks(self) -> tuple[int, int]:
        """Number of checks that hold, and of all checks."""
        return sum(each.held_count for each in self.statements), sum(len(each.checks) for each in self.statements)

    @property
    def score(self) -> tuple[int, float]:
        """Score for comparison: statements that hold, then the mean share of checks that hold."""
        shares = [each.held_count / len(each.checks) for each in self.statements]
        return self.held_count, sum(shares) / len(shares)

    def find_gains_over(self, other: JudgedInterpretation) -> set[str]:
        """Return the ids of statements that hold here and not under another interpretation."""
        ours, theirs = ({s.id for s in each.statements if s.verdict == "holds"} for each in (self, other))
        return ours - theirs


@dataclass
class Search:
    """Search in a run directory; finished jobs are not run again.

    Args:
        folder: run directory, with jobs, trainings and data.
        workers: number of processes.
        profile: seeds, flocks and data.
        scheduler: address of a Dask scheduler whose workers run the jobs instead of local processes.
        on_stage: called with the name of a stage and the number of its next jobs; with 0 when interpretations have
            been judged.
        on_done: called with every job that is finished, including those of earlier runs.
        on_data: called with every generated time index of the cloning data.
        on_notice: called with a line of text about every damaged file.
    """

    folder: Path
    workers: int
    profile: Profile = SEARCH_PROFILE
    scheduler: str | None = None
    on_stage: Callable[[str, int], object] = lambda stage, jobs: None
    on_done: Callable[[Job], object] = lambda job: None
    on_data: Callable[[int], object] = lambda step: None
    on_notice: Callable[[str], object] = lambda text: None
    flight_results: dict[Interpretation, JudgedInterpretation] = field(default_factory=dict)
    """Results so far of all experiments with flights, by interpretation."""
    cloning_results: dict[Interpretation, JudgedInterpretation] = field(default_factory=dict)
    """Results so far of the generalization experiment, by interpretation."""
    best: Interpretation = field(default_factory=Interpretation)

    def run(self, force: bool = False) -> Interpretation:
        """Run all stages, with the run directory locked, and return the interpretation with the highest score.

        `force` first clears the directory; otherwise it must be empty or hold the same search.
        """
        with lock_run_dir(self.folder, KIND, self.settings, OUTPUT_PATTERNS, force):
            self._try_one_by_one()
            self._combine_greedily()
            self._combine_factorially()
            self._retry_single_choices()
            self._choose_cloning_epochs()
        return self.best

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that the results depend on."""
        tried = {name: repr(choice.alternative_values) for name, choice in CHOICES.items()}
        jobs = {name: compute_checksum(repr(build_jobs(name, self.profile)).encode()) for name in EXPERIMENTS}
        return {"tried": tried, "profile": repr(self.profile), "jobs": jobs, "versions": read_package_versions("torch")}

    @property
    def single_changes(self) -> list[Interpretation]:
        """The default interpretation and every single change of it."""
        return [Interpretation(), *Interpretation().iterate_alternatives()]

    def _try_one_by_one(self) -> None:
        """Judge the default and every single change of it by flights; `best` stays the default."""
        self._judge_by_flights(
            "one by one", [interpretation.restrict_to(*FLIGHT_EXPERIMENTS) for interpretation in self.single_changes]
        )

    def _combine_greedily(self) -> None:
        """Add single changes that beat the default to `best`, best first; keep each only if it raises the score."""
        # Single changes that raise the score, the best first; ties in the order of their names.
        first = self.flight_results[Interpretation()].score
        single_changes = dict.fromkeys(
            interpretation.restrict_to(*FLIGHT_EXPERIMENTS) for interpretation in self.single_changes
        )
        gains = sorted(
            (self.flight_results[each] for each in single_changes), key=lambda each: each.score, reverse=True
        )
        for single in gains:
            if single.score > first:
                self._try_interpretations("greedy", [replace(self.best, **single.interpretation.changes)])

    def _combine_factorially(self) -> None:
        """Try all combinations of values of the two training choices that gained most statements individually."""
        # Only choices that affect training: all others are tried again later, under the best of these.
        default = self.flight_results[Interpretation()]
        gains: dict[str, set[str]] = {}
        for interpretation in self.single_changes:
            for name in interpretation.restrict_to("training").changes:
                gains[name] = gains.get(name, set()) | self.flight_results[interpretation].find_gains_over(default)
        factors = sorted(gains, key=lambda name: len(gains[name]), reverse=True)[:FACTORIAL_SIZE]
        values = {name: list_values(name) for name in factors}
        self._try_interpretations(
            "factorial",
            [replace(self.best, **dict(zip(values, combined, strict=True))) for combined in product(*values.values())],
        )

    def _retry_single_choices(self) -> None:
        """Change `best` choice by choice to its best value, for choices that affect neither training nor cloning."""
        for name, choice in CHOICES.items():
            if not {"training", CLONING_EXPERIMENT} & set(choice.affected_experiments):
                self._try_interpretations(
                    "polish", [replace(self.best, **{name: value}) for value in list_values(name)]
                )

    def _choose_cloning_epochs(self) -> None:
        """Set `best.cloning_epochs` to the number with the highest score; also judge the default, for comparison."""
        # Under the best interpretation, to choose the number of epochs; then under the default, for comparison.
        self._judge_by_cloning(self.best)
        results = [
            self.cloning_results[each.restrict_to(CLONING_EXPERIMENT)] for each in self._vary_cloning_epochs(self.best)
        ]
        chosen = max(results, key=lambda each: each.score).interpretation
        self.best = replace(self.best, cloning_epochs=chosen.cloning_epochs)
        self._judge_by_cloning(Interpretation())

    def _try_interpretations(self, stage: str, interpretations: Sequence[Interpretation]) -> None:
        """Judge interpretations, and continue with the best of them if it beats the best so far."""
        self._judge_by_flights(stage, interpretations)
        for interpretation in interpretations:
            if self.flight_results[interpretation].score > self.flight_results[self.best].score:
                self.best = interpretation

    def _judge_by_flights(self, stage: str, interpretations: Iterable[Interpretation]) -> None:
        """Run the experiments with flights and add the statements to `flight_results`.

        Interpretations that are already there are skipped.
        """
        new = [
            interpretation
            for interpretation in dict.fromkeys(interpretations)
            if interpretation not in self.flight_results
        ]
        profiles = {interpretation: replace(self.profile, interpretation=interpretation) for interpretation in new}
        # All trainings first: otherwise flights that need the same training would wait for each other.
        self._run(stage, [job for each in profiles.values() for job in self._build_jobs("training", each)])
        # Then one interpretation at a time, so that tables are available early; finished jobs are not run again.
        for interpretation, profile in profiles.items():
            self._run(stage, [job for name in FLIGHT_EXPERIMENTS for job in self._build_jobs(name, profile)])
            tables = {name: read_experiment_table(name, profile, self.folder) for name in FLIGHT_EXPERIMENTS}
            self.flight_results[interpretation] = JudgedInterpretation(
                interpretation, tuple(judge_statements(profile, self.folder, tables))
            )
            self.on_stage(stage, 0)

    def _judge_by_cloning(self, interpretation: Interpretation) -> None:
        """Run the generalization experiment with every number of epochs, and add the statements to `cloning_results`.

        The data is generated first, unless a scheduler's workers do so or all jobs are done, and removed afterwards.
        """
        interpretations = [each.restrict_to(CLONING_EXPERIMENT) for each in self._vary_cloning_epochs(interpretation)]
        profiles = {each: replace(self.profile, interpretation=each) for each in interpretations}
        # All numbers of epochs share the data, which is large and removed afterwards.
        data = profiles[interpretations[0]].build_datasets(self.folder)
        if self.scheduler is None and not all(
            are_jobs_done(CLONING_EXPERIMENT, each, self.folder) for each in profiles.values()
        ):
            for home, recipe in data.items():
                recipe.make(home, self.workers, self.on_data, self.on_notice)
        for each, profile in profiles.items():
            self._run("cloning", self._build_jobs(CLONING_EXPERIMENT, profile))
            statements = STATEMENT_BUILDERS[CLONING_EXPERIMENT](
                read_experiment_table(CLONING_EXPERIMENT, profile, self.folder)
            )
            self.cloning_results[each] = JudgedInterpretation(each, tuple(statements))
            self.on_stage("cloning", 0)
        for home in data:
            remove_path(home)

    def _vary_cloning_epochs(self, interpretation: Interpretation) -> list[Interpretation]:
        """Return the interpretation with each number of cloning epochs that the search tries, the default first."""
        return [replace(interpretation, cloning_epochs=epochs) for epochs in list_values("cloning_epochs")]

    def _build_jobs(self, experiment: str, profile: Profile) -> Sequence[Job]:
        return build_jobs(experiment, profile, self.folder)

    def _run(self, stage: str, jobs: Sequence[Job]) -> None:
        """Run the jobs whose results are missing, each once even if it is listed twice; blocks until all are done."""
        jobs = list(dict.fromkeys(jobs))  # interpretations may share jobs
        self.on_stage(stage, len(jobs))
        run_jobs(
            jobs,
            self.folder / "jobs",
            self.workers,
            self.on_done,
            scheduler=self.scheduler,
            on_notice=self.on_notice,
        )
