"""The replay holds the newest tuples in order, in the layout of its learner, and the history their rollouts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from equiflock._runtime.checks import InputError
from equiflock.controllers.loading import make_network
from equiflock.learning.learner import TorchLearner, copy_state_dict, make_learner
from equiflock.learning.replay import ReplayBuffer, Rollout, RolloutHistory


def empty(capacity: int) -> ReplayBuffer:
    return ReplayBuffer(capacity, agents=2, dimensions=2, learner=TorchLearner(make_network("etdagnn", hops=1), 1e-3))


def fill(replay: ReplayBuffer, numbers: range) -> None:
    values = np.array(numbers, np.float32).reshape(-1, 1, 1, 1, 1)
    replay.add(values * np.ones((2, 1, 3, 2), np.float32), -values[..., 0, 0] * np.ones((2, 2), np.float32))


def test_a_full_replay_overwrites_the_oldest_tuples() -> None:
    replay = empty(4)
    fill(replay, range(3))
    assert len(replay) == 3
    fill(replay, range(3, 6))
    assert len(replay) == 4
    assert replay.total_added == 6
    observations, targets = replay.tuples
    assert observations[:, 0, 0, 0, 0].tolist() == [4.0, 5.0, 2.0, 3.0]
    assert targets[:, 1, 1].tolist() == [-4.0, -5.0, -2.0, -3.0]


def test_many_at_once_are_as_one_after_the_other() -> None:
    at_once, singly = empty(4), empty(4)
    fill(at_once, range(11))
    for n in range(11):
        fill(singly, range(n, n + 1))
    assert at_once.total_added == singly.total_added
    for one, other in zip(at_once.tuples, singly.tuples, strict=True):
        assert np.array_equal(one, other)


def test_adding_allocates_nothing() -> None:
    replay = empty(4)
    before = [array.ctypes.data for array in replay.tuples]
    fill(replay, range(20))
    assert [array.ctypes.data for array in replay.tuples] == before


def test_a_compiled_learner_keeps_rows_of_agents() -> None:
    replay = ReplayBuffer(3, agents=5, dimensions=2, learner=make_learner(make_network("tdagnn"), 1e-3))
    observations = np.random.default_rng(0).standard_normal((2, 5, 3, 3, 2)).astype(np.float32)
    targets = np.random.default_rng(1).standard_normal((2, 5, 2)).astype(np.float32)
    replay.add(observations, targets)
    assert np.array_equal(replay.tuples[0][:2], observations.reshape(2, 5, 18).transpose(0, 2, 1))
    assert np.array_equal(replay.tuples[1][:2], targets.transpose(0, 2, 1))


def test_a_replay_keeps_at_least_one() -> None:
    with pytest.raises(InputError, match="capacity must be a whole number of at least 1"):
        empty(0)


@given(st.integers(1, 12), st.lists(st.integers(0, 9), max_size=30))
def test_a_flight_is_kept_as_long_as_a_tuple_of_it_is_in_the_ring(capacity: int, lengths: list[int]) -> None:
    rollouts, ring, added = RolloutHistory(capacity), [-1] * capacity, 0
    for epoch, tuples in enumerate(lengths):
        rollouts.add(Rollout(epoch, added, tuples, 0, {}))
        for _ in range(tuples):
            ring[added % capacity] = epoch
            added += 1
        assert [rollout.epoch for rollout in rollouts] == sorted(set(ring) - {-1})
        # So the first of them began no later than the oldest tuple, and flying them again fills the whole ring.
        assert all(rollout.tuples_before <= max(0, added - capacity) for rollout in list(rollouts)[:1])


def test_a_snapshot_does_not_change_with_its_network() -> None:
    network = torch.nn.BatchNorm1d(3)
    before = copy_state_dict(network)
    network(torch.rand(5, 3))
    assert (before["running_mean"] == 0).all()
    assert before.keys() == network.state_dict().keys()
    assert not torch.equal(network.state_dict()["running_mean"], before["running_mean"])
