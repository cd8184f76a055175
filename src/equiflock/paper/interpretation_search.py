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

import pandas as pd

from equiflock._runtime.executors import run_jobs
from equiflock._runtime.files import atomic_write, remove_path
from equiflock._runtime.jobs import Job
from equiflock._runtime.provenance import lock_run_dir, read_package_versions
from equiflock.controllers.trained import PAPER_SEEDS
from equiflock.paper.interpretation import (
    CHOICES,
    CLONING_EXPERIMENT,
    FLIGHT_EXPERIMENTS,
    Interpretation,
    format_value,
    list_values,
)
from equiflock.paper.ledger import NOISE_MARK, Statement, read_ledger
from equiflock.paper.profile import Profile
from equiflock.paper.reproduction import (
    EXPERIMENTS,
    STATEMENT_BUILDERS,
    are_jobs_done,
    build_jobs,
    compute_jobs_checksum,
    judge_statements,
    read_experiment_table,
)
from equiflock.plotting.html_report import format_markdown_table

KIND = "search over interpretations"
OUTPUT_PATTERNS = ("jobs", "trainings", "fast-forward", "joint-*", "*.csv", "*.json", "*.md", "*.html")
"""Patterns of the files that a search writes beside its config."""
FACTORIAL_SIZE = 2
"""Number of choices that the factorial combines."""
CSV_FILE, MARKDOWN_FILE = "interpretations.csv", "interpretations.md"
STATEMENT_PREFIXES = dict(zip(EXPERIMENTS, "TAFLOG", strict=True))
"""First letter of the statement ids of each experiment."""

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
    """Search in a run directory; finished jobs are not run again. Arguments as of `reproduce`."""

    folder: Path
    workers: int
    profile: Profile = SEARCH_PROFILE
    scheduler: str | None = None
    on_stage: Callable[[str, int], object] = lambda stage, jobs: None
    """Called with the name of a stage and the number of its next jobs; with 0 when interpretations were judged."""
    on_done: Callable[[Job], object] = lambda job: None
    on_data: Callable[[int], object] = lambda step: None
    on_notice: Callable[[str], object] = lambda text: None
    flight_results: dict[Interpretation, JudgedInterpretation] = field(default_factory=dict)
    """Results so far of all experiments with flights, by interpretation."""
    cloning_results: dict[Interpretation, JudgedInterpretation] = field(default_factory=dict)
    """Results so far of the generalization experiment, by interpretation."""
    best: Interpretation = field(default_factory=Interpretation)

    def run(self, force: bool = False) -> Interpretation:
        """Run all stages and return the interpretation with the highest score; `force` first clears the directory."""
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
        jobs = {name: compute_jobs_checksum(name, self.profile) for name in EXPERIMENTS}
        return {"tried": tried, "profile": repr(self.profile), "jobs": jobs, "versions": read_package_versions("torch")}

    @property
    def single_changes(self) -> list[Interpretation]:
        """The default interpretation and every single change of it that affects flights, each once."""
        interpretations = Interpretation(), *Interpretation().iterate_alternatives()
        return list(dict.fromkeys(each.restrict_to(*FLIGHT_EXPERIMENTS) for each in interpretations))

    def _try_one_by_one(self) -> None:
        """Judge the default and every single change of it by flights; `best` stays the default."""
        self._judge_by_flights("one by one", self.single_changes)

    def _combine_greedily(self) -> None:
        """Add single changes that beat the default to `best`, best first; keep each only if it raises the score."""
        first = self.flight_results[Interpretation()].score
        # Sorting is stable: ties are in the order of the choices.
        results = sorted(
            (self.flight_results[each] for each in self.single_changes), key=lambda each: each.score, reverse=True
        )
        for single in results:
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
        """Run the experiments with flights and add the statements to `flight_results`, unless they are there."""
        new = [each for each in dict.fromkeys(interpretations) if each not in self.flight_results]
        profiles = {each: replace(self.profile, interpretation=each) for each in new}
        # All trainings first: otherwise flights that need the same training would wait for each other.
        self._run(stage, [job for each in profiles.values() for job in build_jobs("training", each, self.folder)])
        # Then one interpretation at a time, so that tables are available early; finished jobs are not run again.
        for interpretation, profile in profiles.items():
            self._run(stage, [job for name in FLIGHT_EXPERIMENTS for job in build_jobs(name, profile, self.folder)])
            tables = {name: read_experiment_table(name, profile, self.folder) for name in FLIGHT_EXPERIMENTS}
            statements = judge_statements(profile, self.folder, tables, resamples=0)
            self.flight_results[interpretation] = JudgedInterpretation(interpretation, tuple(statements))
            self.on_stage(stage, 0)

    def _judge_by_cloning(self, interpretation: Interpretation) -> None:
        """Run the generalization experiment with every number of epochs; add the statements to `cloning_results`."""
        interpretations = [each.restrict_to(CLONING_EXPERIMENT) for each in self._vary_cloning_epochs(interpretation)]
        profiles = {each: replace(self.profile, interpretation=each) for each in interpretations}
        # All numbers of epochs share the data, which is large and removed afterwards; Dask's workers make their own.
        data = profiles[interpretations[0]].build_datasets(self.folder)
        is_done = all(are_jobs_done(CLONING_EXPERIMENT, each, self.folder) for each in profiles.values())
        if self.scheduler is None and not is_done:
            for home, recipe in data.items():
                recipe.make(home, self.workers, self.on_data, self.on_notice)
        for each, profile in profiles.items():
            self._run("cloning", build_jobs(CLONING_EXPERIMENT, profile, self.folder))
            table = read_experiment_table(CLONING_EXPERIMENT, profile, self.folder)
            statements = STATEMENT_BUILDERS[CLONING_EXPERIMENT](table, 0)
            self.cloning_results[each] = JudgedInterpretation(each, tuple(statements))
            self.on_stage("cloning", 0)
        for home in data:
            remove_path(home)

    def _vary_cloning_epochs(self, interpretation: Interpretation) -> list[Interpretation]:
        """Return the interpretation with each number of cloning epochs that the search tries, the default first."""
        return [replace(interpretation, cloning_epochs=epochs) for epochs in list_values("cloning_epochs")]

    def _run(self, stage: str, jobs: Sequence[Job]) -> None:
        """Run the jobs whose results are missing, each once even if interpretations share it."""
        jobs = list(dict.fromkeys(jobs))
        self.on_stage(stage, len(jobs))
        folder = self.folder / "jobs"
        run_jobs(jobs, folder, self.workers, self.on_done, scheduler=self.scheduler, on_notice=self.on_notice)


def build_interpretations_table(search: Search) -> pd.DataFrame:
    """Return a row for each tried interpretation and statement, with the verdict and the number of checks that hold."""
    rows = [
        (str(judged.interpretation), each.id, each.verdict, each.held_count, len(each.checks))
        for judged in (*search.flight_results.values(), *search.cloning_results.values())
        for each in judged.statements
    ]
    return pd.DataFrame(rows, columns=["interpretation", "statement", "verdict", "held_count", "checks"])


def write_interpretations(search: Search, folder: Path) -> list[Path]:
    """Write the results of the search so far to CSV_FILE and MARKDOWN_FILE in `folder`; return both paths."""
    table = build_interpretations_table(search)
    with atomic_write(folder / CSV_FILE) as scratch:
        table.to_csv(scratch, index=False)
    with atomic_write(folder / MARKDOWN_FILE) as scratch:
        scratch.write_text(
            f"{format_choices_table()}\n\n{format_single_choice_tables(table)}\n\n{format_combinations_table(table)}\n",
            encoding="utf-8",
        )
    return [folder / CSV_FILE, folder / MARKDOWN_FILE]


def format_choices_table() -> str:
    """Return a Markdown table of all choices: default value, other values tried, and the paper's sentence."""
    body = []
    for name, choice in CHOICES.items():
        default, *others = (f"`{format_value(value)}`" for value in list_values(name))
        body.append([f"`{name}`", default, ", ".join(others), choice.quotation])
    return format_markdown_table(["choice", "usual", "others tried", "the paper's sentence"], body, align_left=True)


def format_ledger_comparison(
    default_statements: Sequence[Statement], other_statements: Sequence[Statement], interpretation: Interpretation
) -> str:
    """Return a Markdown table of the verdicts under the default and under another interpretation, with totals."""
    others = {statement.id: statement for statement in other_statements}
    body = []
    for statement in default_statements:
        compared = statement, others.get(statement.id)
        # Marked if both could be.
        marks = all(each is not None and each.has_intervals for each in compared)
        body.append([statement.id, statement.text, *(_format_verdict(each, marks) for each in compared)])
    totals = [
        f"{sum(s.verdict == 'holds' for s in ledger)} of {len(ledger)}"
        for ledger in (default_statements, other_statements)
    ]
    body.append(["", "statements that hold", *totals])
    return format_markdown_table(["", "the paper's statement", "usual", f"`{interpretation}`"], body, align_left=True)


def _format_verdict(statement: Statement | None, marks_noise: bool) -> str:
    """Return the verdict, with the number of checks that hold unless the statement holds; empty for None."""
    if statement is None:
        return ""
    mark = NOISE_MARK if marks_noise and statement.is_within_noise else ""
    if statement.verdict == "holds":
        return f"**holds**{mark}"
    return f"{statement.verdict}, {statement.held_count} of {len(statement.checks)}{mark}"


def format_single_choice_tables(table: pd.DataFrame) -> str:
    """Return Markdown tables of the interpretations with one changed choice: a row per statement, a column for each.

    Choices that affect the same experiments share a table, whose first column is the default interpretation.
    """
    groups: dict[tuple[str, ...], list[Interpretation]] = {}
    for name, choice in CHOICES.items():
        for value in choice.alternative_values:
            groups.setdefault(choice.affected_experiments, []).append(Interpretation(**{name: value}))
    tables = []
    for experiments, interpretations in groups.items():
        # Cloning is searched only for the choice that affects nothing else.
        letters = {
            STATEMENT_PREFIXES[name] for name in experiments if len(experiments) == 1 or name != CLONING_EXPERIMENT
        }
        rows = table[table.statement.str[0].isin(letters)]
        tables.append(_format_statement_table(rows, [str(each) for each in (Interpretation(), *interpretations)]))
    return "\n\n".join(tables)


def _format_statement_table(rows: pd.DataFrame, interpretations: list[str]) -> str:
    """Return a Markdown table with a row per statement and a column per interpretation, and totals in the last rows."""
    body = []
    for statement in dict.fromkeys(rows.statement):
        verdicts = rows[rows.statement == statement]
        body.append([statement, *(_format_cell(verdicts[verdicts.interpretation == each]) for each in interpretations)])
    totals = [_format_totals(rows[rows.interpretation == each]) for each in interpretations]
    body.append(["statements", *(statements for statements, _ in totals)])
    body.append(["checks", *(checks for _, checks in totals)])
    return format_markdown_table(["", *(f"`{each}`" if "=" in each else each for each in interpretations)], body)


def _format_cell(rows: pd.DataFrame) -> str:
    """Return the cell of one statement under one interpretation; `rows` has one row, or none if not measured yet."""
    if rows.empty:
        return ""
    row = rows.iloc[0]
    return "**holds**" if row.verdict == "holds" else f"{row.held_count} of {row.checks}"


def _format_totals(rows: pd.DataFrame) -> tuple[str, str]:
    """Return the numbers of statements and of checks that hold, each with its total."""
    statements = f"{(rows.verdict == 'holds').sum()} of {len(rows)}"
    return statements, f"{rows.held_count.sum()} of {rows.checks.sum()}"


def format_combinations_table(table: pd.DataFrame) -> str:
    """Return a Markdown table of the interpretations with several changed choices that were tried in flights.

    They are sorted by the number of statements that hold, then by the share of checks, best first.
    """
    body = []
    for interpretation, rows in table[~table.statement.str.startswith("G")].groupby("interpretation", sort=False):
        share = (rows.held_count / rows.checks).mean()
        statements, checks = _format_totals(rows)
        if str(interpretation).count("=") > 1:
            body.append(((rows.verdict == "holds").sum(), share, [f"`{interpretation}`", statements, checks]))
    body.sort(key=lambda entry: entry[:2], reverse=True)
    return format_markdown_table(["together", "statements that hold", "checks"], [cells for _, _, cells in body])


def write_ledger_comparison(default_path: Path, folder: Path, interpretation: Interpretation) -> Path:
    """Compare the ledger at `default_path` with ledger.json in `folder`; return the path of the table, ledgers.md."""
    path = folder / "ledgers.md"
    text = format_ledger_comparison(read_ledger(default_path), read_ledger(folder / "ledger.json"), interpretation)
    with atomic_write(path) as scratch:
        scratch.write_text(f"{text}\n", encoding="utf-8")
    return path
