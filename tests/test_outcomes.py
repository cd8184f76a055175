"""Outcomes are codes with names and messages, and anybody may add one."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from equiflock._runtime.checks import InputError
from equiflock.outcomes import Outcome


def test_an_outcome_is_its_code_and_tells_its_message() -> None:
    assert Outcome(2) is Outcome.DISCONNECTED
    assert (Outcome.DISCONNECTED.name, int(Outcome.DISCONNECTED)) == ("DISCONNECTED", 2)
    assert str(Outcome.PASSED) == Outcome.PASSED.message == "the flock passed the obstacle"
    assert [outcome.name for outcome in Outcome.all()[:3]] == ["FLYING", "TIME_UP", "DISCONNECTED"]
    assert pickle.loads(pickle.dumps(Outcome.PASSED)) is Outcome.PASSED
    with pytest.raises(ValueError, match="there is no outcome with the code 99"):
        Outcome(99)


def test_an_outcome_of_one_s_own_is_added_once() -> None:
    landed = Outcome.add("LANDED", "everybody is on the ground")
    assert landed.is_user_defined
    assert not Outcome.PASSED.is_user_defined
    assert Outcome.add("LANDED", "everybody is on the ground") is landed
    assert Outcome(int(landed)) is landed
    with pytest.raises(InputError, match="LANDED already exists, with the message 'everybody is on the ground'"):
        Outcome.add("LANDED", "somebody fell")
    with pytest.raises(InputError, match="PASSED already exists"):
        Outcome.add("PASSED", "something else")


@pytest.mark.parametrize(
    ("name", "message"), [("landed", "x"), ("", "x"), (3, "x"), ("A B", "x"), ("OK", ""), ("OK", 3)]
)
def test_what_is_no_name_or_message_is_refused(name: Any, message: Any) -> None:
    with pytest.raises(InputError, match=r"the (name|message) of an outcome must be"):
        Outcome.add(name, message)
