"""The replay keeps the newest tuples, in order, in memory made once."""

from __future__ import annotations

import numpy as np
import pytest

from equiflock.features import paper_senses
from equiflock.learning.replay import Replay
from equiflock.runtime.checks import InputError


def fill(replay: Replay, numbers: range) -> None:
    for n in numbers:
        replay.add(np.full((2, 1, 3, 2), float(n)), np.full((2, 2), -float(n)))


def test_the_oldest_give_way_when_it_is_full() -> None:
    replay = Replay(4, agents=2, senses=paper_senses(hops=1), dimensions=2)
    fill(replay, range(3))
    assert len(replay) == 3
    fill(replay, range(3, 6))
    assert len(replay) == 4
    assert replay.added == 6
    assert replay.observations[:, 0, 0, 0, 0].tolist() == [4.0, 5.0, 2.0, 3.0]


def test_a_batch_holds_observations_with_their_own_targets_and_may_repeat() -> None:
    replay = Replay(4, agents=2, senses=paper_senses(hops=1), dimensions=2)
    fill(replay, range(4))
    observations, targets = replay.batch(np.array([3, 1, 3]))
    assert observations.shape == (3, 2, 1, 3, 2)
    assert observations[:, 1, 0, 2, 1].tolist() == [3.0, 1.0, 3.0]
    assert targets[:, 1, 1].tolist() == [-3.0, -1.0, -3.0]


def test_adding_allocates_nothing() -> None:
    replay = Replay(4, agents=2, senses=paper_senses(hops=1), dimensions=2)
    before = replay.observations.data_ptr(), replay.targets.data_ptr()
    fill(replay, range(20))
    assert (replay.observations.data_ptr(), replay.targets.data_ptr()) == before


def test_a_replay_keeps_at_least_one() -> None:
    with pytest.raises(InputError, match="capacity must be a whole number of at least 1"):
        Replay(0, agents=2, senses=paper_senses(hops=1), dimensions=2)
