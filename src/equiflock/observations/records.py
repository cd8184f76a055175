"""The records of a flock: the messages of its agents in cell order, which the kernels of `aggregation_kernels` read."""

from __future__ import annotations

import numpy as np

from equiflock._runtime.jit import Array, Index, kernel
from equiflock.graph.cell_list import MAX_MAGNITUDE
from equiflock.observations.neighbour_lists import COPY_CHUNK, Records
from equiflock.observations.paper_sums import COLUMNS_PER_PASS
from equiflock.observations.radio_kernels import (
    RadioArgs,
    ReceiverState,
    SenderHashes,
    hash_senders,
    quantize_older_hops,
)

FLOATS_PER_CACHE_LINE = 16
"""float32 numbers per cache line."""


@kernel
def make_records(N: Index, D: Index, older_size: Index, is_delayed: bool) -> Records:
    """Allocate the records of N agents, each of which relays `older_size` = (K - 1) * C * D numbers."""
    rows = 2 * N if is_delayed else N
    # Kernels sum whole passes of columns and copy whole chunks of candidates: the padding must exist and be finite.
    width = -(-older_size // COLUMNS_PER_PASS) * COLUMNS_PER_PASS
    older_hops = np.zeros((N, -(-width // FLOATS_PER_CACHE_LINE) * FLOATS_PER_CACHE_LINE), np.float32)
    return Records(np.zeros((D, rows + COPY_CHUNK), np.float64), np.empty((rows, D), np.float64), older_hops)


@kernel
def gather_records(
    positions: Array,
    velocities: Array,
    previous: Array,
    older_size: Index,
    order: Array,
    records: Records,
    first: Index,
    last: Index,
) -> bool:
    """Copy the agents order[first : last] into records first .. last - 1.

    Return False if a position or velocity is NaN or exceeds MAX_MAGNITUDE.
    """
    record_positions, record_velocities, older_hops = records
    # Hops 1 .. K - 1 of the step before become hops 2 .. K now. The range keeps float32 sums from overflowing.
    fine = True
    for s in range(np.uintp(first), np.uintp(last)):
        i = order[s]
        for d in range(positions.shape[1]):
            record_positions[d, s], record_velocities[s, d] = positions[i, d], velocities[i, d]
            fine &= (abs(positions[i, d]) <= MAX_MAGNITUDE) & (abs(velocities[i, d]) <= MAX_MAGNITUDE)
        for c in range(older_size):
            older_hops[s, c] = previous[i, c]
    return fine


@kernel
def gather_receivers(
    receivers: ReceiverState, b: Index, order: Array, records: Records, first: Index, last: Index
) -> bool:
    """Copy the state now of the agents order[first : last] of flock b into rows N + first .. N + last - 1.

    Return False if a position or velocity is NaN or exceeds MAX_MAGNITUDE.
    """
    positions, velocities = receivers
    record_positions, record_velocities = records.positions, records.velocities
    N, fine = np.uintp(order.size), True
    for s in range(np.uintp(first), np.uintp(last)):
        i = order[s]
        for d in range(positions.shape[2]):
            record_positions[d, N + s], record_velocities[N + s, d] = positions[b, i, d], velocities[b, i, d]
            fine &= (abs(positions[b, i, d]) <= MAX_MAGNITUDE) & (abs(velocities[b, i, d]) <= MAX_MAGNITUDE)
    return fine


@kernel
def make_sender_hashes(N: Index) -> SenderHashes:
    """Allocate the hashes of N senders, which `apply_radio` fills in."""
    return SenderHashes(np.empty(N, np.uint64), np.empty(N, np.bool_))


@kernel
def apply_radio(
    b: Index,
    order: Array,
    agent_ids: Array,
    records: Records,
    older_size: Index,
    radio_args: RadioArgs,
    sender_hashes: SenderHashes,
    first: Index,
    last: Index,
) -> bool:
    """Hash the senders of records first .. last - 1, quantize their older hops, and add the receivers' state if late.

    Returns:
        False if a receiver is out of range.
    """
    measuring = radio_args.measuring
    hash_senders(b, order, agent_ids, radio_args, sender_hashes, first, last)
    if measuring.splitter > 0.0:
        quantize_older_hops(records.older_hops, older_size, measuring.splitter, first, last)
    return gather_receivers(radio_args.receivers, b, order, records, first, last) if measuring.is_delayed else True
