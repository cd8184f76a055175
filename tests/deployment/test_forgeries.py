"""A swarm under attack by forged frames flies as without them (`tests.attacks.forgeries`)."""

from __future__ import annotations

import random

import pytest

from tests.attacks.forgeries import Outcome, find_fault, fly, forge_control, replay_frames, send_garbage

pytest.importorskip("zenoh")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def undisturbed() -> Outcome:
    outcome = fly(None, random.Random(0))
    assert (outcome.code, outcome.lost, outcome.rejected) == (0, 0, 0)
    return outcome


@pytest.mark.parametrize("forge", [forge_control, replay_frames, send_garbage])
def test_forged_frames_change_nothing_and_are_counted(forge: object, undisturbed: Outcome) -> None:
    outcome = fly(forge, random.Random(0))  # type: ignore[arg-type]
    assert not find_fault(outcome, undisturbed), outcome
    assert outcome.code == 0 and outcome.rejected
