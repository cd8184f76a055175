"""Two ledgers side by side, and the choices with the paper's words."""

from __future__ import annotations

from equiflock.experiments.paper.ledger import Check, Statement
from equiflock.experiments.paper.reading import CHOICES, Reading
from equiflock.report.readings import choices_table, ledgers_table


def statement(name: str, *held: bool) -> Statement:
    return Statement(name, f"words of {name}", "", tuple(Check("", "", each, (each,)) for each in held))


def test_verdicts_stand_side_by_side_with_how_many_hold() -> None:
    usual = [statement("A1", True), statement("T1", True, False)]
    table = ledgers_table(usual, [statement("A1", True), statement("T1", True, True)], Reading(clamp=150))
    assert "`clamp=150`" in table
    assert "| A1 | words of A1 | **holds** | **holds** |" in table
    assert "| T1 | words of T1 | partly, 1 of 2 | **holds** |" in table
    assert "statements that hold | 1 of 2 | 2 of 2 |" in table


def test_every_choice_is_listed_with_its_values_and_sentence() -> None:
    lines = choices_table().splitlines()[2:]
    assert len(lines) == len(CHOICES)
    assert lines[1].startswith("| `clamp` | `100` | `25`, `50`, `75`, `125`, `150`, `200` |")
    assert all(choice.sentence in line for choice, line in zip(CHOICES.values(), lines, strict=True))
