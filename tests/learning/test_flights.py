"""The flights that are kept are those whose tuples are in the replay."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from equiflock.learning.flights import Flights, Flown, snapshot


@given(st.integers(1, 12), st.lists(st.integers(0, 9), max_size=30))
def test_a_flight_is_kept_as_long_as_a_tuple_of_it_is_in_the_ring(capacity: int, lengths: list[int]) -> None:
    flights, ring, added = Flights(capacity), [-1] * capacity, 0
    for epoch, tuples in enumerate(lengths):
        flights.add(Flown(epoch, added, tuples, 0, {}))
        for _ in range(tuples):
            ring[added % capacity] = epoch
            added += 1
        assert [flown.epoch for flown in flights] == sorted(set(ring) - {-1})
        # So the first of them began no later than the oldest tuple, and flying them again fills the whole ring.
        assert all(flown.before <= max(0, added - capacity) for flown in list(flights)[:1])


def test_a_snapshot_does_not_change_with_its_network() -> None:
    network = torch.nn.BatchNorm1d(3)
    before = snapshot(network)
    network(torch.rand(5, 3))
    assert (before["running_mean"] == 0).all()
    assert before.keys() == network.state_dict().keys()
    assert not torch.equal(network.state_dict()["running_mean"], before["running_mean"])
