"""A few attempts of every attack find no fault; `python -m tests.hostile` makes all of them."""

from __future__ import annotations

import pytest

from tests.attacks import forgeries, kills, messages
from tests.hostile import ATTACKS, run_attack

FEW = {"damages": 8, "inputs": 3, "messages": 60, "forgeries": 4, "kills": 1}
"""Number of attempts of each attack; together they take seconds."""


@pytest.mark.slow
@pytest.mark.usefixtures("no_curves")
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_few_attempts_find_no_fault(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The machine may be busy with other tests.
    monkeypatch.setattr(kills, "ORPHAN_TIMEOUT", 30.0)
    monkeypatch.setattr(messages, "PATIENCE", 60.0)
    _, attempts, faults = run_attack(attack, FEW[attack] / ATTACKS[attack], seed=0)
    assert attempts > 0
    assert not faults


def test_a_forged_report_that_fails_an_agent_is_a_fault_though_the_trajectory_is_the_same() -> None:
    undisturbed = forgeries.Outcome(0, "0123456789abcdef", 0, 0, "")
    attacked = undisturbed._replace(rejected=5)
    assert forgeries.find_fault(attacked, undisturbed) == ""
    assert forgeries.find_fault(attacked._replace(code=1), undisturbed) == "obeyed"
    assert forgeries.find_fault(attacked._replace(trajectory="0"), undisturbed) == "obeyed"
    assert forgeries.find_fault(attacked._replace(lost=1), undisturbed) == "silent"
    assert forgeries.find_fault(undisturbed, undisturbed) == "silent"
