"""Whom the agents of a few neighbouring cells hear, as lists: the first half of making observations.

The cells of a block stand side by side in one row, and all agents around it are the candidates of everybody in it. They
are copied into columns once, so that testing 64 of them against R is one loop of arithmetic, whose result is one word
with a bit for each candidate. The bits of a word then become a list, in the order of candidates, which is the order
(cell, index) of the cell list. Neither the size of a block nor who else is in it shows in a list.

The lists of a batch of agents stand one after the other: agent a of the batch hears the records
senders[ends[a - 1] : ends[a]], and offsets[:, e] is r_ij of entry e, subtracted in float64 and kept as float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.flock import FOLLOWER
from equiflock.runtime.jit import Array, Index, inline_kernel, kernel
from equiflock.senses.cell_list import list_nearby_runs, wrap_index

WORD_BITS = 64
"""Candidates whose bits fit into one word."""
HALF_WORD_BITS = WORD_BITS // 2
BATCH_AGENTS = 128
"""At most so many agents are listed at once: their words and lists stay in the processor's nearest cache."""
BATCH_ENTRIES = 4_096
"""Entries for which the lists of a batch have room, besides those of a single agent."""
COPY_CHUNK = 8
"""Candidates are copied so many at a time, whatever is too much being overwritten or never read."""
MAX_BLOCK_CELLS = 16
"""Cells of a block at most."""
TARGET_CANDIDATES = 54, 128
"""About so many candidates around a block take the least time, in the plane and in space: fewer are copied for too few
agents, more are tested in vain. In the plane they seldom need a second word."""

# 1 << n for all n, as an array: looking a bit up is faster than shifting by a different number in each lane.
BIT_MASKS = np.array([1 << n for n in range(WORD_BITS)], np.uint64)
# The place of the only bit of a word: one product puts a number of its own into the six highest bits (de Bruijn).
_DE_BRUIJN = 0x03F79D71B4CB0A89
BIT_POSITIONS = np.zeros(WORD_BITS, np.uint8)
for _n in range(WORD_BITS):
    BIT_POSITIONS[(_DE_BRUIJN << _n & 2**64 - 1) >> 58] = _n
DE_BRUIJN, DE_BRUIJN_SHIFT = np.uint64(_DE_BRUIJN), np.uint64(58)
NO_BITS, ONE_BIT = np.uint64(0), np.uint64(1)
BIT_INDEX_MASK, WORD_SHIFT = np.uintp(WORD_BITS - 1), np.uintp(6)
"""n & INSIDE is the place within a word, n >> PER_WORD the number of the word."""


@kernel
def make_list_buffers(N: Index, D: Index) -> Any:
    """Memory of one thread for the lists of a batch, and for what they are made of.

    That is the runs of agents around a block, the columns and records of candidates, words, senders, offsets and ends.
    """
    # No block has more than N candidates; their last word is filled up, and copies may reach beyond the last.
    candidates = N + WORD_BITS + COPY_CHUNK
    columns, records = np.empty((D, candidates), np.float64), np.empty(candidates, np.uint32)
    words = np.empty(BATCH_AGENTS * (N // WORD_BITS + 1), np.uint64)
    lists = (
        np.empty(N + BATCH_ENTRIES, np.uint32),
        np.empty((2 * D, N + BATCH_ENTRIES), np.float32),
        np.empty(BATCH_AGENTS, np.uintp),
    )
    return np.empty((27, 2), np.uintp), columns, records, words, lists


@kernel
def compute_cells_per_block(starts: Array, shape: Any) -> Index:
    """How many cells make up a block that has about `TARGET_CANDIDATES`."""
    occupied, buckets = 0, shape[0] * shape[1] * shape[2]
    for c in range(buckets):
        occupied += starts[c] < starts[c + 1]
    # Three rows of cells in the plane and nine in space, each two cells longer than the block.
    rows, wanted = (9, TARGET_CANDIDATES[1]) if shape[2] > 1 else (3, TARGET_CANDIDATES[0])
    each = starts[buckets] / max(occupied, 1)
    return min(max(int(wanted / (rows * each)) - 2, 1), MAX_BLOCK_CELLS)


@kernel
def list_block_runs(c: Index, max_cells: Index, shape: Any, starts: Array, runs: Array) -> tuple[Index, Index]:
    """List in `runs` the runs of agents in and around the block of at most so many cells that begins with bucket c.

    Returns how many cells the block has, and how many runs there are; none if nobody is in the block.
    """
    nx, ny, nz = shape
    x, row = c % nx, c // nx
    # Where the row wraps around, a block has one cell.
    cells = min(max_cells, nx - 1 - x)
    if x == 0 or cells < 1:
        return 1, list_nearby_runs(c, shape, starts, runs)
    if starts[c] == starts[c + cells]:
        return cells, np.uintp(0)
    # Elsewhere the agents of a row, from the cell before the block to the one after it, are one run.
    y, z = row % ny, row // ny
    count = np.uintp(0)
    for dz in range(-1 if nz > 1 else 0, 2 if nz > 1 else 1):
        for dy in range(-1, 2):
            first = (wrap_index(z + dz, nz) * ny + wrap_index(y + dy, ny)) * nx + x - 1
            runs[count, 0] = starts[first]
            runs[count, 1] = starts[first + cells + 2]
            count += np.uintp(1)
    return cells, count


@inline_kernel
def _list_batch_nd(
    D: Index,
    c: Index,
    done: Index,
    last: Index,
    record_positions: Array,
    roles: Array,
    order: Array,
    starts: Array,
    shape: Any,
    max_cells: Index,
    radius_squared: float,
    memory: Any,
) -> tuple[Index, Index, Index]:
    # One function, since Numba counts references to arrays whenever they are handed on, which here is for every agent.
    runs, columns, records, words, (senders, offsets, ends) = memory
    agents, entry = np.uintp(0), np.uintp(0)
    while c < last:
        size, count = list_block_runs(c, min(max_cells, last - c), shape, starts, runs)
        own, stop, found = starts[c] + done, starts[c + size], np.uintp(0)
        for run in range(count):
            found += runs[run, 1] - runs[run, 0]
        # A block that has no room any more waits for the next batch; one that never has is cut.
        room = (np.uintp(senders.size) - entry) // max(found, np.uintp(1))
        listed = min(stop - own, np.uintp(ends.size) - agents, room)
        if listed < stop - own and agents > 0:
            break

        # The candidates in columns, copied several at a time: the length of a run is no branch to be guessed wrong.
        found, mine = np.uintp(0), np.uintp(0)
        for run in range(count):
            begin, end = runs[run, 0], runs[run, 1]
            mine = found + own - begin if (begin <= own) & (own < end) else mine
            for j in range(begin, end, np.uintp(COPY_CHUNK)):
                n = found + j - begin
                for k in range(np.uintp(COPY_CHUNK)):
                    columns[0, n + k], columns[1, n + k] = record_positions[0, j + k], record_positions[1, j + k]
                    if D == 3:
                        columns[2, n + k] = record_positions[2, j + k]
                    records[n + k] = j + k
            found += end - begin
        # The rest of the last word is nobody: infinitely far away.
        for n in range(found, (found + BIT_INDEX_MASK) & ~BIT_INDEX_MASK):
            columns[0, n] = np.inf

        # |r_ij|^2 <= R^2 for 64 candidates j at once, for each follower i; nobody hears itself.
        wide = (found + BIT_INDEX_MASK) >> WORD_SHIFT
        for a in range(listed):
            x, y, z = (
                record_positions[0, own + a],
                record_positions[1, own + a],
                record_positions[2, own + a] if D == 3 else 0.0,
            )
            for w in range(wide):
                # By halves, of which the second may be nobody; a constant length makes it one loop without a rest.
                word, base = NO_BITS, w << WORD_SHIFT
                for half in range(np.uintp(0), min(found - base, np.uintp(WORD_BITS)), np.uintp(HALF_WORD_BITS)):
                    for n in range(half, half + np.uintp(HALF_WORD_BITS)):
                        dx, dy = x - columns[0, base + n], y - columns[1, base + n]
                        dz = z - columns[2, base + n] if D == 3 else 0.0
                        word |= BIT_MASKS[n] if dx * dx + dy * dy + dz * dz <= radius_squared else NO_BITS
                words[a * wide + w] = word
            words[a * wide + ((mine + a) >> WORD_SHIFT)] &= ~(ONE_BIT << np.uint64((mine + a) & BIT_INDEX_MASK))

        # The bits of each agent's words as a list, from the lowest on; leaders and obstacle agents have none.
        for a in range(listed):
            x, y, z = (
                record_positions[0, own + a],
                record_positions[1, own + a],
                record_positions[2, own + a] if D == 3 else 0.0,
            )
            for w in range(wide if roles[order[own + a]] == FOLLOWER else np.uintp(0)):
                word, base = words[a * wide + w], w << WORD_SHIFT
                while word != NO_BITS:
                    lowest = word & (~word + ONE_BIT)
                    n = base + BIT_POSITIONS[lowest * DE_BRUIJN >> DE_BRUIJN_SHIFT]
                    senders[entry] = records[n]
                    offsets[0, entry], offsets[1, entry] = x - columns[0, n], y - columns[1, n]
                    if D == 3:
                        offsets[2, entry] = z - columns[2, n]
                    entry += np.uintp(1)
                    word ^= lowest
            ends[agents + a] = entry
        agents += listed
        if own + listed < stop:
            return c, done + listed, agents
        c, done = c + size, np.uintp(0)
    return c, done, agents


@kernel
def list_batch(
    c: Index,
    done: Index,
    last: Index,
    record_positions: Array,
    roles: Array,
    order: Array,
    starts: Array,
    shape: Any,
    max_cells: Index,
    radius_squared: float,
    memory: Any,
    axes: Any,
) -> tuple[Index, Index, Index]:
    """List whom agents hear, from bucket c on, without the first `done` records of its block, up to bucket `last`.

    Args:
        c: the bucket to begin with.
        done: how many agents of its block have had their turn.
        last: the bucket to end before.
        record_positions: positions of all records in columns, (D, N + COPIED).
        roles: (N,), of agents.
        order: record s is agent order[s].
        starts: where buckets start.
        shape: of the torus of cells.
        max_cells: how many cells a block has at most.
        radius_squared: R^2.
        memory: that of `make_list_buffers`.
        axes: one number for each dimension.

    Returns:
        `c` and `done` to go on with, and how many agents were listed.
    """
    # The constant lets the compiler leave the third coordinate out in the plane; of the two calls it compiles one.
    if len(axes) == 2:
        return _list_batch_nd(
            2, c, done, last, record_positions, roles, order, starts, shape, max_cells, radius_squared, memory
        )
    return _list_batch_nd(
        3, c, done, last, record_positions, roles, order, starts, shape, max_cells, radius_squared, memory
    )


@inline_kernel
def compute_offsets(D: Index, s: Index, record_positions: Array, lists: Any, first: Index, last: Index) -> None:
    """Fill in r_ij of the entries first .. last of record s, in lists that were made or changed by others."""
    senders, offsets, _ = lists
    for e in range(first, last):
        for d in range(D):
            offsets[d, e] = record_positions[d, s] - record_positions[d, np.uintp(senders[e])]
