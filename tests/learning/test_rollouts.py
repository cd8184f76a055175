"""The history holds the rollouts whose tuples are in the replay."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from equiflock.learning.rollouts import Rollout, RolloutHistory, copy_state_dict


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
