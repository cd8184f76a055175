"""The records of a flock: what its agents say, in the order of their cells, which the kernels of `hearing` read.

They are (place, motion, past): positions in columns (D, N + a few), velocities (N, D), and the first K - 1 hops of what
each agent knew a step before, a row of which is padded by zeros to whole cache lines. If messages arrive late, they are
those of the step at which they were sent, and N more rows of place and motion hold the state of the receivers now, in
the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.runtime.jit import Array, Index, kernel
from equiflock.senses.cell_list import MAX_MAGNITUDE
from equiflock.senses.neighbour_lists import COPY_CHUNK
from equiflock.senses.paper_sums import COLUMNS_PER_PASS
from equiflock.senses.radio_kernels import hash_senders, quantize_older_hops

FLOATS_PER_CACHE_LINE = 16
"""Numbers of float32 in a cache line."""


@kernel
def make_records(N: Index, D: Index, older_size: Index, delayed: bool) -> tuple[Array, Array, Array]:
    """Memory for the records of N agents, each of which knew `older_size` = (K - 1) * C * D numbers that it passes on."""
    rows = 2 * N if delayed else N
    # Whole groups are added up, and candidates copied several at a time: what is too much must be there, and be finite.
    width = -(-older_size // COLUMNS_PER_PASS) * COLUMNS_PER_PASS
    older_hops = np.zeros((N, -(-width // FLOATS_PER_CACHE_LINE) * FLOATS_PER_CACHE_LINE), np.float32)
    return np.zeros((D, rows + COPY_CHUNK), np.float64), np.empty((rows, D), np.float64), older_hops


@kernel
def gather_records(
    positions: Array,
    velocities: Array,
    previous: Array,
    older_size: Index,
    order: Array,
    records: Any,
    first: Index,
    last: Index,
) -> bool:
    """Copy agents first .. last into cell order; False if a vector is not finite or absurdly large."""
    record_positions, record_velocities, older_hops = records
    # Hops 1 .. K - 1 of a step ago become hops 2 .. K now; and nothing may overflow float32 later.
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
def gather_receivers(receivers: Any, b: Index, order: Array, records: Any, first: Index, last: Index) -> bool:
    """Copy the state now of agents first .. last into their second records; False if it is off the scale."""
    positions, velocities = receivers
    record_positions, record_velocities, _ = records
    N, fine = np.uintp(order.size), True
    for s in range(np.uintp(first), np.uintp(last)):
        i = order[s]
        for d in range(positions.shape[2]):
            record_positions[d, N + s], record_velocities[N + s, d] = positions[b, i, d], velocities[b, i, d]
            fine &= (abs(positions[b, i, d]) <= MAX_MAGNITUDE) & (abs(velocities[b, i, d]) <= MAX_MAGNITUDE)
    return fine


@kernel
def make_sender_hashes(N: Index) -> tuple[Array, Array]:
    """Memory for what `apply_radio` says of N senders: what is hashed of them, and whether they sent nothing."""
    return np.empty(N, np.uint64), np.empty(N, np.bool_)


@kernel
def apply_radio(
    b: Index,
    order: Array,
    agent_ids: Array,
    records: Any,
    older_size: Index,
    flock_radio: Any,
    sender_hashes: Any,
    first: Index,
    last: Index,
) -> bool:
    """Make of the records first .. last what the radio makes of them; False if somebody is off the scale."""
    _, _, (_, delayed, _, _, splitter), _, receivers = flock_radio
    hash_senders(b, order, agent_ids, flock_radio, sender_hashes, first, last)
    if splitter > 0.0:
        quantize_older_hops(records[2], older_size, splitter, first, last)
    return gather_receivers(receivers, b, order, records, first, last) if delayed else True
