"""A few attempts of every attack find no fault; `python -m tests.hostile` makes all of them."""

from __future__ import annotations

import pytest

from tests.hostile import ATTACKS, run_attack

FEW = {"damages": 10, "inputs": 3, "messages": 60, "forgeries": 1, "kills": 1}
"""Number of attempts of each attack; together they take seconds."""


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_few_attempts_find_no_fault(attack: str) -> None:
    _, attempts, faults = run_attack(attack, FEW[attack] / ATTACKS[attack], seed=0)
    assert attempts > 0
    assert not faults
