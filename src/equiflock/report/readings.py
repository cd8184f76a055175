"""The search over readings as tables: which statements hold under which choice, and which readings were tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from equiflock.experiments.paper.ledger import Statement, read_ledger
from equiflock.experiments.paper.reading import CHOICES, CLONING, Reading, told, values_of
from equiflock.experiments.paper.search import Judged, Search
from equiflock.report.page import markdown_table
from equiflock.runtime.files import atomic_write

TABLE, TABLES = "readings.csv", "readings.md"
LETTERS = {
    "connectivity": "A",
    "training": "T",
    "flocking": "F",
    "leaders": "L",
    "obstacles": "O",
    "generalization": "G",
}
"""How the statements of each experiment begin."""


def readings_frame(search: Search) -> pd.DataFrame:
    """A row for every reading that was tried and every statement: reading, statement, verdict, held, checks."""
    rows = [
        (str(judged.reading), each.id, each.verdict, each.held, len(each.checks))
        for judged in _judged(search)
        for each in judged.statements
    ]
    return pd.DataFrame(rows, columns=["reading", "statement", "verdict", "held", "checks"])


def _judged(search: Search) -> Iterator[Judged]:
    """What is known of every reading, of flights and of cloning each for itself."""
    yield from search.by_flights.values()
    yield from search.by_cloning.values()


def write_readings(search: Search, folder: Path) -> list[Path]:
    """Write what the search knows by now as a CSV and as tables in Markdown."""
    table = readings_frame(search)
    with atomic_write(folder / TABLE) as scratch:
        table.to_csv(scratch, index=False)
    with atomic_write(folder / TABLES) as scratch:
        scratch.write_text(
            f"{choices_table()}\n\n{one_by_one_tables(table)}\n\n{combined_table(table)}\n", encoding="utf-8"
        )
    return [folder / TABLE, folder / TABLES]


def choices_table() -> str:
    """The choices of a reading: their names, the usual values and those that are tried, and the paper's sentences."""
    body = []
    for name, choice in CHOICES.items():
        usual, *others = (f"`{told(value)}`" for value in values_of(name))
        body.append([f"`{name}`", usual, ", ".join(others), choice.sentence])
    return markdown_table(["choice", "usual", "others tried", "the paper's sentence"], body, words=True)


def ledgers_table(usual: Sequence[Statement], other: Sequence[Statement], reading: Reading) -> str:
    """Verdicts and checks that hold, statement by statement, under the usual and under another reading."""
    theirs = {each.id: each for each in other}
    body = []
    for each in usual:
        ours, beside = _verdict(each), _verdict(theirs[each.id]) if each.id in theirs else ""
        body.append([each.id, each.words, ours, beside])
    held = [f"{sum(s.verdict == 'holds' for s in ledger)} of {len(ledger)}" for ledger in (usual, other)]
    body.append(["", "statements that hold", *held])
    return markdown_table(["", "the paper's statement", "usual", f"`{reading}`"], body, words=True)


def _verdict(statement: Statement) -> str:
    if statement.verdict == "holds":
        return "**holds**"
    return f"{statement.verdict}, {statement.held} of {len(statement.checks)}"


def one_by_one_tables(table: pd.DataFrame) -> str:
    """For the choices that change the same experiments, a table of statements x readings, each choice by itself."""
    groups: dict[tuple[str, ...], list[Reading]] = {}
    for name, choice in CHOICES.items():
        for value in choice.others:
            groups.setdefault(choice.changes, []).append(Reading(**{name: value}))
    found = []
    for experiments, readings in groups.items():
        # Cloning is searched for its own choice only.
        letters = {LETTERS[name] for name in experiments if len(experiments) == 1 or name != CLONING}
        rows = table[table.statement.str[0].isin(letters)]
        found.append(_statements_by_reading(rows, [str(each) for each in (Reading(), *readings)]))
    return "\n\n".join(found)


def _statements_by_reading(rows: pd.DataFrame, readings: list[str]) -> str:
    """A row for every statement, a column for every reading: "holds", or how many of its checks do; then sums."""
    body = []
    for statement in dict.fromkeys(rows.statement):
        cells = [_cell(rows[(rows.statement == statement) & (rows.reading == each)]) for each in readings]
        body.append([statement, *cells])
    sums = [_sums(rows[rows.reading == each]) for each in readings]
    body.append(["statements", *(held for held, _ in sums)])
    body.append(["checks", *(checks for _, checks in sums)])
    return markdown_table(["", *(f"`{each}`" if "=" in each else each for each in readings)], body)


def _cell(found: pd.DataFrame) -> str:
    if found.empty:  # it was not measured, or not yet
        return ""
    only = found.iloc[0]
    return "**holds**" if only.verdict == "holds" else f"{only.held} of {only.checks}"


def _sums(found: pd.DataFrame) -> tuple[str, str]:
    """How many statements and how many checks hold, with how many there are."""
    statements = f"{(found.verdict == 'holds').sum()} of {len(found)}"
    return statements, f"{found.held.sum()} of {found.checks.sum()}"


def combined_table(table: pd.DataFrame) -> str:
    """The readings of more than one choice that were tried in flights, the best first."""
    body = []
    for reading, rows in table[~table.statement.str.startswith("G")].groupby("reading", sort=False):
        share = (rows.held / rows.checks).mean()
        statements, checks = _sums(rows)
        if str(reading).count("=") > 1:
            body.append(((rows.verdict == "holds").sum(), share, [f"`{reading}`", statements, checks]))
    body.sort(key=lambda entry: entry[:2], reverse=True)
    return markdown_table(["together", "statements that hold", "checks"], [cells for _, _, cells in body])


def write_ledgers(usual: Path, folder: Path, reading: Reading) -> Path:
    """Write the ledger of the usual reading, from its file, beside that in a folder of another, as Markdown."""
    path = folder / "ledgers.md"
    text = ledgers_table(read_ledger(usual), read_ledger(folder / "ledger.json"), reading)
    with atomic_write(path) as scratch:
        scratch.write_text(f"{text}\n", encoding="utf-8")
    return path
