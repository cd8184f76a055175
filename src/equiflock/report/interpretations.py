"""The search over readings as tables: which statements hold under which choice, and which readings were tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from equiflock.experiments.paper.interpretation import (
    CHOICES,
    CLONING_EXPERIMENT,
    Interpretation,
    format_value,
    list_values,
)
from equiflock.experiments.paper.interpretation_search import JudgedInterpretation, Search
from equiflock.experiments.paper.ledger import Statement, read_ledger
from equiflock.report.html_report import format_markdown_table
from equiflock.runtime.files import atomic_write

CSV_FILE, MARKDOWN_FILE = "readings.csv", "readings.md"
STATEMENT_PREFIXES = {
    "connectivity": "A",
    "training": "T",
    "flocking": "F",
    "leaders": "L",
    "obstacles": "O",
    "generalization": "G",
}
"""How the statements of each experiment begin."""


def build_interpretations_table(search: Search) -> pd.DataFrame:
    """A row for every reading that was tried and every statement: reading, statement, verdict, held, checks."""
    rows = [
        (str(judged.interpretation), each.id, each.verdict, each.held_count, len(each.checks))
        for judged in _iter_judged(search)
        for each in judged.statements
    ]
    return pd.DataFrame(rows, columns=["interpretation", "statement", "verdict", "held_count", "checks"])


def _iter_judged(search: Search) -> Iterator[JudgedInterpretation]:
    """What is known of every reading, of flights and of cloning each for itself."""
    yield from search.flight_results.values()
    yield from search.cloning_results.values()


def write_interpretations(search: Search, folder: Path) -> list[Path]:
    """Write what the search knows by now as a CSV and as tables in Markdown."""
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
    """The choices of a reading: their names, the usual values and those that are tried, and the paper's sentences."""
    body = []
    for name, choice in CHOICES.items():
        usual, *others = (f"`{format_value(value)}`" for value in list_values(name))
        body.append([f"`{name}`", usual, ", ".join(others), choice.quotation])
    return format_markdown_table(["choice", "usual", "others tried", "the paper's sentence"], body, words=True)


def format_ledger_comparison(
    default_statements: Sequence[Statement], other: Sequence[Statement], interpretation: Interpretation
) -> str:
    """Verdicts and checks that hold, statement by statement, under the usual and under another reading."""
    theirs = {each.id: each for each in other}
    body = []
    for each in default_statements:
        ours, beside = _format_verdict(each), _format_verdict(theirs[each.id]) if each.id in theirs else ""
        body.append([each.id, each.words, ours, beside])
    held_count = [
        f"{sum(s.verdict == 'holds' for s in ledger)} of {len(ledger)}" for ledger in (default_statements, other)
    ]
    body.append(["", "statements that hold", *held_count])
    return format_markdown_table(["", "the paper's statement", "usual", f"`{interpretation}`"], body, words=True)


def _format_verdict(statement: Statement) -> str:
    if statement.verdict == "holds":
        return "**holds**"
    return f"{statement.verdict}, {statement.held_count} of {len(statement.checks)}"


def format_single_choice_tables(table: pd.DataFrame) -> str:
    """For the choices that change the same experiments, a table of statements x readings, each choice by itself."""
    groups: dict[tuple[str, ...], list[Interpretation]] = {}
    for name, choice in CHOICES.items():
        for value in choice.alternative_values:
            groups.setdefault(choice.changes, []).append(Interpretation(**{name: value}))
    found = []
    for experiments, interpretations in groups.items():
        # Cloning is searched for its own choice only.
        letters = {
            STATEMENT_PREFIXES[name] for name in experiments if len(experiments) == 1 or name != CLONING_EXPERIMENT
        }
        rows = table[table.statement.str[0].isin(letters)]
        found.append(_format_statement_table(rows, [str(each) for each in (Interpretation(), *interpretations)]))
    return "\n\n".join(found)


def _format_statement_table(rows: pd.DataFrame, interpretations: list[str]) -> str:
    """A row for every statement, a column for every reading: "holds", or how many of its checks do; then sums."""
    body = []
    for statement in dict.fromkeys(rows.statement):
        cells = [
            _format_cell(rows[(rows.statement == statement) & (rows.interpretation == each)])
            for each in interpretations
        ]
        body.append([statement, *cells])
    sums = [_format_totals(rows[rows.interpretation == each]) for each in interpretations]
    body.append(["statements", *(held_count for held_count, _ in sums)])
    body.append(["checks", *(checks for _, checks in sums)])
    return format_markdown_table(["", *(f"`{each}`" if "=" in each else each for each in interpretations)], body)


def _format_cell(rows: pd.DataFrame) -> str:
    if rows.empty:  # it was not measured, or not yet
        return ""
    only = rows.iloc[0]
    return "**holds**" if only.verdict == "holds" else f"{only.held_count} of {only.checks}"


def _format_totals(rows: pd.DataFrame) -> tuple[str, str]:
    """How many statements and how many checks hold, with how many there are."""
    statements = f"{(rows.verdict == 'holds').sum()} of {len(rows)}"
    return statements, f"{rows.held_count.sum()} of {rows.checks.sum()}"


def format_combinations_table(table: pd.DataFrame) -> str:
    """The readings of more than one choice that were tried in flights, the best first."""
    body = []
    for interpretation, rows in table[~table.statement.str.startswith("G")].groupby("interpretation", sort=False):
        share = (rows.held_count / rows.checks).mean()
        statements, checks = _format_totals(rows)
        if str(interpretation).count("=") > 1:
            body.append(((rows.verdict == "holds").sum(), share, [f"`{interpretation}`", statements, checks]))
    body.sort(key=lambda entry: entry[:2], reverse=True)
    return format_markdown_table(["together", "statements that hold", "checks"], [cells for _, _, cells in body])


def write_ledger_comparison(default_path: Path, folder: Path, interpretation: Interpretation) -> Path:
    """Write the ledger of the usual reading, from its file, beside that in a folder of another, as Markdown."""
    path = folder / "ledgers.md"
    text = format_ledger_comparison(read_ledger(default_path), read_ledger(folder / "ledger.json"), interpretation)
    with atomic_write(path) as scratch:
        scratch.write_text(f"{text}\n", encoding="utf-8")
    return path
