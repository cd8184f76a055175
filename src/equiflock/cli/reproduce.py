"""`equiflock reproduce`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from equiflock.cli.terminal import out
from equiflock.files import check_writable


@dataclass(frozen=True)
class Reproduce:
    """Judge the paper's statements about training, by the validation tables of the weights in the package.

    Writes ledger.json (every statement with its rule, its checks and their numbers), tables.md and training.png.
    """

    out: Path = Path("runs/paper")
    """The folder to write to; an earlier ledger in it is replaced."""
    checks: bool = False
    """Print every check of every statement."""

    def run(self) -> None:
        """Print the verdicts and say where the ledger is."""
        from equiflock.experiments.ledger import write_ledger
        from equiflock.experiments.training import trained_tables, training_statements
        from equiflock.report.training import draw_training, write_tables

        check_writable(self.out / "ledger.json")
        table = trained_tables()
        statements = training_statements(table)
        grid = Table(show_lines=self.checks)
        for column in ("", "the paper's statement", "verdict", "measured"):
            grid.add_column(column)
        for statement in statements:
            lines = [f"{'+' if check.holds else '-'} {check.words}: {check.measured}" for check in statement.checks]
            measured = "\n".join([statement.count, *(lines if self.checks else [])])
            grid.add_row(statement.id, statement.words, statement.verdict, measured)
        out.print(grid)
        for path in (
            write_ledger(statements, self.out / "ledger.json"),
            write_tables(table, statements, self.out / "tables.md"),
            draw_training(table, self.out / "training.png"),
        ):
            out.print(f"  {path}", highlight=False)
