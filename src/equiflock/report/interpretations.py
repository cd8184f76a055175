"""Tables of the search over interpretations: which of the paper's statements hold under which interpretation."""

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

CSV_FILE, MARKDOWN_FILE = "interpretations.csv", "interpretations.md"
STATEMENT_PREFIXES = {
    "connectivity": "A",
    "training": "T",
    "flocking": "F",
    "leaders": "L",
    "obstacles": "O",
    "generalization": "G",
}
"""First letter of the statement ids of each experiment."""


def build_interpretations_table(search: Search) -> pd.DataFrame:
    """Return a row for each tried interpretation and statement, with the verdict and the number of checks that hold."""
    rows = [
        (str(judged.interpretation), each.id, each.verdict, each.held_count, len(each.checks))
        for judged in _iter_judged(search)
        for each in judged.statements
    ]
    return pd.DataFrame(rows, columns=["interpretation", "statement", "verdict", "held_count", "checks"])


def _iter_judged(search: Search) -> Iterator[JudgedInterpretation]:
    """Yield the judged interpretations: first of the experiments that fly, then of behaviour cloning."""
    yield from search.flight_results.values()
    yield from search.cloning_results.values()


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
    """Return the verdicts under the default and under another interpretation in Markdown, a row per statement.

    Cells are empty for statements that the other ledger does not have. The last row counts the statements that hold.
    """
    others = {statement.id: statement for statement in other_statements}
    body = []
    for statement in default_statements:
        other_verdict = _format_verdict(others[statement.id]) if statement.id in others else ""
        body.append([statement.id, statement.text, _format_verdict(statement), other_verdict])
    totals = [
        f"{sum(s.verdict == 'holds' for s in ledger)} of {len(ledger)}"
        for ledger in (default_statements, other_statements)
    ]
    body.append(["", "statements that hold", *totals])
    return format_markdown_table(["", "the paper's statement", "usual", f"`{interpretation}`"], body, align_left=True)


def _format_verdict(statement: Statement) -> str:
    """Return the verdict, with the number of checks that hold unless the statement holds."""
    if statement.verdict == "holds":
        return "**holds**"
    return f"{statement.verdict}, {statement.held_count} of {len(statement.checks)}"


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
    """Return a Markdown table with a row per statement and a column per interpretation, and totals in the last rows.

    Cells are "holds" or how many checks hold, and empty if not measured.
    """
    body = []
    for statement in dict.fromkeys(rows.statement):
        cells = [
            _format_cell(rows[(rows.statement == statement) & (rows.interpretation == each)])
            for each in interpretations
        ]
        body.append([statement, *cells])
    totals = [_format_totals(rows[rows.interpretation == each]) for each in interpretations]
    body.append(["statements", *(statements for statements, _ in totals)])
    body.append(["checks", *(checks for _, checks in totals)])
    return format_markdown_table(["", *(f"`{each}`" if "=" in each else each for each in interpretations)], body)


def _format_cell(rows: pd.DataFrame) -> str:
    """Return the cell of one statement under one interpretation; `rows` has one row, or none if not measured."""
    if rows.empty:  # not measured (yet)
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
    """Compare the ledger at `default_path` with ledger.json in `folder`; write the table to ledgers.md there.

    Return its path.
    """
    path = folder / "ledgers.md"
    text = format_ledger_comparison(read_ledger(default_path), read_ledger(folder / "ledger.json"), interpretation)
    with atomic_write(path) as scratch:
        scratch.write_text(f"{text}\n", encoding="utf-8")
    return path
