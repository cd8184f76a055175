"""Tables of interpretations: two ledgers side by side, and the choices."""

from __future__ import annotations

from equiflock.paper.interpretation import CHOICES, Interpretation
from equiflock.paper.interpretation_search import format_choices_table, format_ledger_comparison
from equiflock.paper.ledger import Check, Statement


def statement(name: str, *held_count: bool) -> Statement:
    return Statement(name, f"words of {name}", "", tuple(Check("", "", each, (each,)) for each in held_count))


def test_the_ledger_comparison_has_verdicts_and_totals() -> None:
    usual = [statement("A1", True), statement("T1", True, False)]
    table = format_ledger_comparison(
        usual, [statement("A1", True), statement("T1", True, True)], Interpretation(clamp=150)
    )
    assert "`clamp=150`" in table
    assert "| A1 | words of A1 | **holds** | **holds** |" in table
    assert "| T1 | words of T1 | partly, 1 of 2 | **holds** |" in table
    assert "statements that hold | 1 of 2 | 2 of 2 |" in table


def test_every_choice_is_listed_with_its_values_and_sentence() -> None:
    lines = format_choices_table().splitlines()[2:]
    assert len(lines) == len(CHOICES)
    assert lines[1].startswith("| `clamp` | `100` | `25`, `50`, `75`, `125`, `150`, `200` |")
    assert all(choice.quotation in line for choice, line in zip(CHOICES.values(), lines, strict=True))
