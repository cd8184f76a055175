"""An outcome is a code with a name and a message, and a scenario may name outcomes of its own."""

from __future__ import annotations

from typing import Any

import pytest

from equiflock.outcomes import Outcome
from equiflock.runtime.checks import InputError


@pytest.fixture(autouse=True)
def own_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test adds is forgotten."""
    monkeypatch.setattr(Outcome, "_known", dict(Outcome._known))


def test_an_outcome_says_its_message() -> None:
    assert str(Outcome.DISCONNECTED) == "the communication graph lost its connectivity"
    assert int(Outcome.FLYING) == 0
    assert repr(Outcome(5)) == "Outcome.PASSED"
    assert Outcome(5) is Outcome.PASSED


def test_an_added_outcome_is_found_by_its_code_and_added_once() -> None:
    arrived = Outcome.add("ARRIVED", "the flock reached its goal")
    assert arrived.is_own
    assert Outcome(int(arrived)) is arrived is Outcome.add("ARRIVED", "the flock reached its goal")
    assert arrived in Outcome.all()
    assert not Outcome.PASSED.is_own


def test_an_unknown_code_is_no_outcome() -> None:
    with pytest.raises(ValueError, match="there is no outcome with the code 99"):
        Outcome(99)


@pytest.mark.parametrize(
    ("name", "message", "text"),
    [
        ("arrived", "it came", "must be a word in capital letters, such as ARRIVED; got 'arrived'"),
        ("ARRIVED", "", "an outcome's message must be a text; got ''"),
        ("PASSED", "it came", "the outcome PASSED exists already, with the message 'the flock passed the obstacle'"),
        (7, "it came", "must be a word in capital letters"),
    ],
)
def test_outcomes_that_make_no_sense_are_refused(name: Any, message: str, text: str) -> None:
    with pytest.raises(InputError, match=text):
        Outcome.add(name, message)


def test_codes_fit_into_a_byte() -> None:
    for number in range(112):
        Outcome.add(f"OWN_{number}", "one more")
    with pytest.raises(InputError, match="there may be 112 outcomes of your own at most"):
        Outcome.add("ONE_TOO_MANY", "one more")
