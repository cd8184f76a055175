"""Records of a flock, and the neighbour lists of a batch of its agents: the first half of computing observations.

A block is a few adjacent cells of one row; all agents in and around it are the candidates of every agent in it. They
are copied into columns once, so that testing 64 of them against R is one arithmetic loop, whose result is one word with
a bit for each candidate. The bits of a word then become a list, in the order of candidates, which is the order (cell,
index) of the cell list. A list depends neither on the size of the block nor on the other agents in it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from equiflock._runtime.jit import Array, Index, inline_kernel, kernel
from equiflock.flock import FOLLOWER, MAX_MAGNITUDE
from equiflock.graph.cell_list import TorusShape, list_nearby_runs, wrap_index

WORD_BITS = 64
"""Candidates per word."""
HALF_WORD_BITS = WORD_BITS // 2
BATCH_AGENTS = 128
"""The most agents of a batch: their words and lists stay in the processor's nearest cache."""
BATCH_ENTRIES = 4_096
"""The capacity of the lists of a batch, in entries, beyond the N of a single agent."""
COLUMNS_PER_PASS = 16
"""Columns of the older hops summed together: a cache line of float32, and both older hops of the paper's channels for
K = 3 in the plane."""
COPY_CHUNK = 8
"""Candidates copied at a time; surplus copies are overwritten or never read."""
MAX_BLOCK_CELLS = 16
"""The most cells of a block."""
TARGET_CANDIDATES = 54, 128
"""The fastest number of candidates around a block, in the plane and in space: with fewer, each copy serves too few
agents; with more, too many tests fail. In the plane they seldom need a second word."""

# 1 << n for all n, as an array: looking a bit up is faster than shifting by a different number in each lane.
BIT_MASKS = np.array([1 << n for n in range(WORD_BITS)], np.uint64)
# The index of the only bit of a word: one product gives each a different number in the six highest bits (de Bruijn).
_DE_BRUIJN = 0x03F79D71B4CB0A89
BIT_POSITIONS = np.zeros(WORD_BITS, np.uint8)
for _n in range(WORD_BITS):
    BIT_POSITIONS[(_DE_BRUIJN << _n & 2**64 - 1) >> 58] = _n
DE_BRUIJN, DE_BRUIJN_SHIFT = np.uint64(_DE_BRUIJN), np.uint64(58)
NO_BITS, ONE_BIT = np.uint64(0), np.uint64(1)
BIT_INDEX_MASK, WORD_SHIFT = np.uintp(WORD_BITS - 1), np.uintp(6)
"""n & BIT_INDEX_MASK is the index within a word, n >> WORD_SHIFT the index of the word."""


class RecordBuffers(NamedTuple):
    """Memory for the messages of a flock, a row per record.

    If messages are delayed, rows 0 .. N - 1 are the state at the send step, and rows N .. 2 N - 1 that of the receivers
    now, in the same order.
    """

    positions: Array
    """(D, rows + COPY_CHUNK) float64."""
    velocities: Array
    """(rows, D) float64."""
    older_hops: Array
    """(N, padded) float32: z^1 .. z^(K-1) of the step before sending, padded by zeros to whole passes."""


class Records(NamedTuple):
    """The messages of a flock, and the agents that sent them.

    In `delayed_messages` a row stands for (slot, flock, agent), and the agents are those of all flocks.
    """

    positions: Array
    """This and the next two as in `RecordBuffers`."""
    velocities: Array
    older_hops: Array
    order: Array
    """(rows,) uintp: record s is of agent order[s]."""
    agent_ids: Array
    """(N,) int64: the id by which the caller knows each agent; empty if ids are the indices."""
    roles: Array
    """(N,) int8, by agent."""
    groups: Array
    """(N,) int32, by agent."""
    has_obstacles: bool
    """Whether an agent is an obstacle agent."""


class NeighbourLists(NamedTuple):
    """The neighbour lists of a batch of agents, one after the other.

    The neighbours of agent a of the batch are the records senders[ends[a - 1] : ends[a]], with 0 for ends[-1].
    """

    senders: Array
    """(N + BATCH_ENTRIES,) uint32: records of the senders."""
    offsets: Array
    """(2 D, N + BATCH_ENTRIES) float32: rows 0 .. D - 1 are r_ij, subtracted in float64; `channel_sums` overwrites
    all."""
    ends: Array
    """(BATCH_AGENTS,) uintp: where the list of each agent ends."""


class RuleResult(NamedTuple):
    """The fields of `ObstacleSelection` for each agent of a batch; all zero if the flock has no obstacle agents."""

    virtual_velocities: Array
    """(BATCH_AGENTS, 2) float64: v_ij of the nearest obstacle agent by the orbit technique."""
    nearest: Array
    """(BATCH_AGENTS,) uintp: the record of the nearest obstacle agent."""
    obstacle_counts: Array
    """(BATCH_AGENTS,) int64: obstacle agents whose relative velocity is replaced."""


class FeatureBuffers(NamedTuple):
    """The features of a batch, a row per entry of its lists; empty if neither channels nor radio need them."""

    vectors: Array
    """(entries, 2 D) float64: r_ij in columns 0 .. D - 1, v_ij in columns D .. 2 D - 1."""
    squares: Array
    """(entries,) float64: max(|r_ij|, MIN_DISTANCE)^2."""
    inners: Array
    """(entries,) float64: <r_ij, v_ij>."""
    weights: Array
    """(entries,) float64: the weights of one channel."""


class Batch(NamedTuple):
    """A few agents of a flock with successive records, and their neighbours."""

    first: Index
    """The record of the first agent."""
    agents: Index
    lists: NeighbourLists
    rule_result: RuleResult
    features: FeatureBuffers


class BatchBuffers(NamedTuple):
    """Memory of one thread for batches."""

    runs: Array
    """(27, 2) uintp: first and last + 1 of each run of agents around a block."""
    columns: Array
    """(D, N + WORD_BITS + COPY_CHUNK) float64: positions of the candidates."""
    candidates: Array
    """(N + WORD_BITS + COPY_CHUNK,) uint32: records of the candidates."""
    words: Array
    """(BATCH_AGENTS (N // WORD_BITS + 1),) uint64: a bit for each agent and candidate, set if within R."""
    lists: NeighbourLists
    rule_result: RuleResult
    features: FeatureBuffers


class SortedCells(NamedTuple):
    """The cells of a flock whose records are in cell order."""

    starts: Array
    """(2 N + 65,) uintp: bucket c holds the records starts[c] .. starts[c + 1] - 1."""
    shape: TorusShape


class BatchEnd(NamedTuple):
    """Where a batch ended, and its size."""

    bucket: Index
    """The bucket with which the next batch begins."""
    done: Index
    """Records of that bucket's block that are listed already."""
    agents: Index
    """Agents listed."""


@kernel
def make_records(N: Index, D: Index, older_size: Index, is_delayed: bool) -> RecordBuffers:
    """Allocate the records of N agents, each of which relays `older_size` = (K - 1) * C * D numbers."""
    rows = 2 * N if is_delayed else N
    # Kernels sum whole passes of columns and copy whole chunks of candidates: the padding must exist and be finite.
    older_hops = np.zeros((N, -(-older_size // COLUMNS_PER_PASS) * COLUMNS_PER_PASS), np.float32)
    return RecordBuffers(np.zeros((D, rows + COPY_CHUNK), np.float64), np.empty((rows, D), np.float64), older_hops)


@kernel
def gather_records(
    positions: Array,
    velocities: Array,
    previous: Array,
    older_size: Index,
    order: Array,
    buffers: RecordBuffers,
    first: Index,
    last: Index,
) -> bool:
    """Copy the state and older hops of the agents order[first : last] of a flock into records first .. last - 1.

    Return False if a position or velocity is NaN or exceeds MAX_MAGNITUDE.
    """
    record_positions, record_velocities, older_hops = buffers
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
def make_batch_buffers(N: Index, D: Index, needs_features: bool) -> BatchBuffers:
    """Allocate a thread's memory for batches of a flock of N agents."""
    # No block has more than N candidates; the last word is padded, and copies may extend beyond the last candidate.
    candidates, entries = N + WORD_BITS + COPY_CHUNK, N + BATCH_ENTRIES
    features = entries if needs_features else 0
    return BatchBuffers(
        np.empty((27, 2), np.uintp),
        np.empty((D, candidates), np.float64),
        np.empty(candidates, np.uint32),
        np.empty(BATCH_AGENTS * (N // WORD_BITS + 1), np.uint64),
        NeighbourLists(
            np.empty(entries, np.uint32), np.empty((2 * D, entries), np.float32), np.empty(BATCH_AGENTS, np.uintp)
        ),
        RuleResult(np.zeros((BATCH_AGENTS, 2)), np.zeros(BATCH_AGENTS, np.uintp), np.zeros(BATCH_AGENTS, np.int64)),
        FeatureBuffers(np.empty((features, 2 * D)), np.empty(features), np.empty(features), np.empty(features)),
    )


@kernel
def compute_cells_per_block(cells: SortedCells) -> Index:
    """Return the number of cells of a block, 1 to MAX_BLOCK_CELLS, with about `TARGET_CANDIDATES` around it."""
    starts, shape = cells
    occupied, buckets = 0, shape[0] * shape[1] * shape[2]
    for c in range(buckets):
        occupied += starts[c] < starts[c + 1]
    # Three rows of cells in the plane and nine in space, each two cells longer than the block.
    rows, target = (9, TARGET_CANDIDATES[1]) if shape[2] > 1 else (3, TARGET_CANDIDATES[0])
    per_cell = starts[buckets] / max(occupied, 1)
    return min(max(int(target / (rows * per_cell)) - 2, 1), MAX_BLOCK_CELLS)


@kernel
def list_block_runs(c: Index, max_cells: Index, shape: TorusShape, starts: Array, runs: Array) -> tuple[Index, Index]:
    """List in `runs` the runs of agents in and around the block of at most `max_cells` cells from bucket c on.

    Returns:
        The number of cells of the block, and the number of runs, which is 0 if the block is empty.
    """
    nx, ny, nz = shape
    x, row = c % nx, c // nx
    # Where the row wraps around, the block is one cell.
    cells = min(max_cells, nx - 1 - x)
    if x == 0 or cells < 1:
        return 1, list_nearby_runs(c, shape, starts, runs)
    if starts[c] == starts[c + cells]:
        return cells, np.uintp(0)
    # Elsewhere the agents of a row, from the cell before the block to the cell after it, are one run.
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
    records: Records,
    cells: SortedCells,
    max_cells: Index,
    radius_squared: float,
    buffers: BatchBuffers,
) -> BatchEnd:
    """Do what `list_batch` does, for D as a compile-time constant."""
    # One function with local arrays: Numba counts references whenever arrays are passed on, here for every agent.
    runs, columns, candidate_records, words = buffers.runs, buffers.columns, buffers.candidates, buffers.words
    senders, offsets, ends = buffers.lists
    record_positions, order, roles = records.positions, records.order, records.roles
    starts, shape = cells
    agents, entry = np.uintp(0), np.uintp(0)
    while c < last:
        size, count = list_block_runs(c, min(max_cells, last - c), shape, starts, runs)
        own, stop, candidates = starts[c] + done, starts[c + size], np.uintp(0)
        for run in range(count):
            candidates += runs[run, 1] - runs[run, 0]
        # A block that does not fit any more waits for the next batch; one too large for any batch is cut.
        room = (np.uintp(senders.size) - entry) // max(candidates, np.uintp(1))
        listed = min(stop - own, np.uintp(ends.size) - agents, room)
        if listed < stop - own and agents > 0:
            break

        # Copy the candidates into columns, several at a time: the length of a run is no branch to mispredict.
        candidates, mine = np.uintp(0), np.uintp(0)
        for run in range(count):
            begin, end = runs[run, 0], runs[run, 1]
            mine = candidates + own - begin if (begin <= own) & (own < end) else mine
            for j in range(begin, end, np.uintp(COPY_CHUNK)):
                n = candidates + j - begin
                for k in range(np.uintp(COPY_CHUNK)):
                    columns[0, n + k], columns[1, n + k] = record_positions[0, j + k], record_positions[1, j + k]
                    if D == 3:
                        columns[2, n + k] = record_positions[2, j + k]
                    candidate_records[n + k] = j + k
            candidates += end - begin
        # Pad the last word with candidates infinitely far away.
        for n in range(candidates, (candidates + BIT_INDEX_MASK) & ~BIT_INDEX_MASK):
            columns[0, n] = np.inf

        # |r_ij|^2 <= R^2 for 64 candidates j at once, for each agent i of the block; j != i.
        wide = (candidates + BIT_INDEX_MASK) >> WORD_SHIFT
        for a in range(listed):
            x, y = record_positions[0, own + a], record_positions[1, own + a]
            z = record_positions[2, own + a] if D == 3 else 0.0
            for w in range(wide):
                # By halves, as the second may be padding; a constant length gives one vector loop without a remainder.
                word, base = NO_BITS, w << WORD_SHIFT
                for half in range(np.uintp(0), min(candidates - base, np.uintp(WORD_BITS)), np.uintp(HALF_WORD_BITS)):
                    for n in range(half, half + np.uintp(HALF_WORD_BITS)):
                        dx, dy = x - columns[0, base + n], y - columns[1, base + n]
                        dz = z - columns[2, base + n] if D == 3 else 0.0
                        word |= BIT_MASKS[n] if dx * dx + dy * dy + dz * dz <= radius_squared else NO_BITS
                words[a * wide + w] = word
            words[a * wide + ((mine + a) >> WORD_SHIFT)] &= ~(ONE_BIT << np.uint64((mine + a) & BIT_INDEX_MASK))

        # Turn the bits of each follower's words into its list, from the lowest on; other agents have no neighbours.
        for a in range(listed):
            x, y = record_positions[0, own + a], record_positions[1, own + a]
            z = record_positions[2, own + a] if D == 3 else 0.0
            for w in range(wide if roles[order[own + a]] == FOLLOWER else np.uintp(0)):
                word, base = words[a * wide + w], w << WORD_SHIFT
                while word != NO_BITS:
                    lowest = word & (~word + ONE_BIT)
                    n = base + BIT_POSITIONS[lowest * DE_BRUIJN >> DE_BRUIJN_SHIFT]
                    senders[entry] = candidate_records[n]
                    offsets[0, entry], offsets[1, entry] = x - columns[0, n], y - columns[1, n]
                    if D == 3:
                        offsets[2, entry] = z - columns[2, n]
                    entry += np.uintp(1)
                    word ^= lowest
            ends[agents + a] = entry
        agents += listed
        if own + listed < stop:
            return BatchEnd(c, done + listed, agents)
        c, done = c + size, np.uintp(0)
    return BatchEnd(c, done, agents)


@kernel
def list_batch(
    c: Index,
    done: Index,
    last: Index,
    records: Records,
    cells: SortedCells,
    max_cells: Index,
    radius_squared: float,
    buffers: BatchBuffers,
    axes: tuple[Index, ...],
) -> BatchEnd:
    """Write the neighbour lists of the next batch of agents into `buffers.lists`; return where the batch ends.

    The batch begins with bucket c, without the first `done` records of its block, and ends before bucket `last`, or
    earlier if the buffers are full. Agents other than followers have empty lists. `max_cells` is the most cells of a
    block; `axes` has one number for each dimension.
    """
    # The constant lets the compiler omit the third coordinate in the plane; it compiles only one of the two calls.
    if len(axes) == 2:
        return _list_batch_nd(2, c, done, last, records, cells, max_cells, radius_squared, buffers)
    return _list_batch_nd(3, c, done, last, records, cells, max_cells, radius_squared, buffers)


@inline_kernel
def compute_offsets(
    D: Index, s: Index, record_positions: Array, lists: NeighbourLists, first: Index, last: Index
) -> None:
    """Write r_ij of the entries first .. last - 1, which belong to record s, after a change of the lists."""
    senders, offsets = lists.senders, lists.offsets
    for e in range(first, last):
        for d in range(D):
            offsets[d, e] = record_positions[d, s] - record_positions[d, np.uintp(senders[e])]
