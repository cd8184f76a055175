"""A flight ends when its flock is disconnected."""

from __future__ import annotations

import numpy as np
import pytest

from equiflock._runtime.checks import InputError
from equiflock.flock import Flock
from equiflock.outcomes import Outcome
from equiflock.scenarios.endings import UntilDisconnected


def test_a_flock_that_is_not_connected_has_ended_unless_it_had_before() -> None:
    together, apart = [[0.0, 0.0], [0.5, 0.0]], [[0.0, 0.0], [5.0, 0.0]]
    flock = Flock(np.array([together, apart, apart]), np.zeros((3, 2, 2)))
    outcomes = UntilDisconnected(comm_radius=1.0)(0.0, flock, np.array([True, True, False]))
    assert outcomes.tolist() == [Outcome.FLYING, Outcome.DISCONNECTED, Outcome.FLYING]


def test_a_radius_must_be_a_positive_number() -> None:
    with pytest.raises(InputError, match="comm_radius must be a finite number above 0"):
        UntilDisconnected(comm_radius=-1.0)
