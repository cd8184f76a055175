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
from equiflock.senses.air import call_up, quantize_past
from equiflock.senses.cells import FASTEST
from equiflock.senses.listing import COPIED
from equiflock.senses.paper_sums import GROUP

LINE = 16
"""Numbers of float32 in a cache line."""


@kernel
def make_records(N: Index, D: Index, older: Index, delayed: bool) -> tuple[Array, Array, Array]:
    """Memory for the records of N agents, each of which knew `older` = (K - 1) * C * D numbers that it passes on."""
    rows = 2 * N if delayed else N
    # Whole groups are added up, and candidates copied several at a time: what is too much must be there, and be finite.
    width = -(-older // GROUP) * GROUP
    past = np.zeros((N, -(-width // LINE) * LINE), np.float32)
    return np.zeros((D, rows + COPIED), np.float64), np.empty((rows, D), np.float64), past


@kernel
def gather_records(
    positions: Array,
    velocities: Array,
    before: Array,
    older: Index,
    order: Array,
    records: Any,
    first: Index,
    last: Index,
) -> bool:
    """Copy agents first .. last into cell order; False if a vector is not finite or absurdly large."""
    place, motion, past = records
    # Hops 1 .. K - 1 of a step ago become hops 2 .. K now; and nothing may overflow float32 later.
    fine = True
    for s in range(np.uintp(first), np.uintp(last)):
        i = order[s]
        for d in range(positions.shape[1]):
            place[d, s], motion[s, d] = positions[i, d], velocities[i, d]
            fine &= (abs(positions[i, d]) <= FASTEST) & (abs(velocities[i, d]) <= FASTEST)
        for c in range(older):
            past[s, c] = before[i, c]
    return fine


@kernel
def gather_own(own: Any, b: Index, order: Array, records: Any, first: Index, last: Index) -> bool:
    """Copy the state now of agents first .. last into their second records; False if it is off the scale."""
    positions, velocities = own
    place, motion, _ = records
    N, fine = np.uintp(order.size), True
    for s in range(np.uintp(first), np.uintp(last)):
        i = order[s]
        for d in range(positions.shape[2]):
            place[d, N + s], motion[N + s, d] = positions[b, i, d], velocities[b, i, d]
            fine &= (abs(positions[b, i, d]) <= FASTEST) & (abs(velocities[b, i, d]) <= FASTEST)
    return fine


@kernel
def make_calls(N: Index) -> tuple[Array, Array]:
    """Memory for what `put_on_air` says of N senders: what is hashed of them, and whether they sent nothing."""
    return np.empty(N, np.uint64), np.empty(N, np.bool_)


@kernel
def put_on_air(
    b: Index, order: Array, ranks: Array, records: Any, older: Index, air: Any, calls: Any, first: Index, last: Index
) -> bool:
    """Make of the records first .. last what the radio makes of them; False if somebody is off the scale."""
    _, _, (_, delayed, _, _, splitter), _, own = air
    call_up(b, order, ranks, air, calls, first, last)
    if splitter > 0.0:
        quantize_past(records[2], older, splitter, first, last)
    return gather_own(own, b, order, records, first, last) if delayed else True
