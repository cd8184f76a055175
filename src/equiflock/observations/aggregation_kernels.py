"""The kernels of `aggregation`: the observations of each agent, summed over its neighbours in a fixed order.

Small flocks are distributed over threads whole, a large one by its cells. In `previous` and `observations` an agent's
K x C x D block is one row. A kernel returns False if a flock or a sum is out of range.

Where an argument is None, Numba prunes the branches that need it, and compiles faster; it does the same with branches
on the length of a tuple, here `axes`. Pruning needs a separate argument, so `table` is passed beside `channel_spec`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64

from equiflock._runtime import threads
from equiflock._runtime.jit import Array, Index, kernel
from equiflock._runtime.threads import AGENTS_PER_THREAD
from equiflock.flock import FOLLOWER, OBSTACLE, Flock
from equiflock.graph.cell_list import make_cell_list, sort_by_agent_id, sort_into_cells
from equiflock.observations.channel_sums import (
    PAPER_CHANNELS,
    aggregate_declared_channels,
    aggregate_measured_channels,
    aggregate_paper_channels,
)
from equiflock.observations.feature_weights import ChannelTable
from equiflock.observations.neighbour_lists import (
    BATCH_AGENTS,
    Batch,
    BatchBuffers,
    Records,
    SortedCells,
    compute_cells_per_block,
    compute_offsets,
    gather_records,
    list_batch,
    make_batch_buffers,
    make_records,
)
from equiflock.observations.orbit import ObstacleRule, OrbitCoefficients, apply_obstacle_rule
from equiflock.observations.radio_kernels import (
    FlockRadio,
    RadioArgs,
    apply_radio,
    drop_lost_messages,
    make_flock_radio,
    measure_messages,
    unpack_radio_args,
)


class ChannelSpec(NamedTuple):
    """The channels of observations."""

    is_mean: bool
    """Whether the paper's three channels are averaged, rather than summed."""
    table: ChannelTable | None
    """(C, 5) uintp: the declared channels; None if the paper's are all."""
    paper_channel_count: Index
    """How many channels of the table are the paper's; they come first."""
    axes: tuple[int, ...]
    """D numbers; the length is a constant at compile time."""


class KernelArgs(NamedTuple):
    """What the kernels need besides the state and the radio."""

    obstacle_rule: ObstacleRule
    comm_radius: float
    """R."""
    channel_spec: ChannelSpec


def pack_kernel_args(kernel_args: KernelArgs) -> tuple[Any, ...]:
    """Return the arguments as plain tuples, which kernels take for the reason given at `pack_radio_args`."""
    rule = kernel_args.obstacle_rule
    packed_rule = rule.nearest_only, rule.is_orbiting, tuple(rule.orbit)
    return packed_rule, kernel_args.comm_radius, tuple(kernel_args.channel_spec)


@kernel
def unpack_kernel_args(packed: tuple[Any, ...]) -> KernelArgs:
    """Return the arguments of `pack_kernel_args`."""
    (nearest_only, is_orbiting, orbit), comm_radius, channel_spec = packed
    rule = ObstacleRule(nearest_only, is_orbiting, OrbitCoefficients(*orbit))
    return KernelArgs(rule, comm_radius, ChannelSpec(*channel_spec))


@kernel
def aggregate_flocks(
    positions: Array,
    velocities: Array,
    roles: Array,
    groups: Array,
    previous: Array,
    observations: Array,
    packed_args: tuple[Any, ...],
    packed_radio: tuple[Any, ...] | None,
    active: Array,
    steps_ahead: Index,
) -> bool:
    """Write the observations (B, N, K * C * D) of all agents of the active flocks; other flocks are left unchanged.

    Leaders and obstacle agents observe zeros. The state, (B, N, ..), is that of the step at which messages were sent,
    and `previous` the observations of the step before that. `packed_args` are the `KernelArgs` and `packed_radio` the
    `RadioArgs`, packed, or None for an ideal radio; `steps_ahead` counts the steps since they were packed.
    """
    kernel_args = unpack_kernel_args(packed_args)
    channel_spec = kernel_args.channel_spec
    _, N, D = positions.shape
    cells, no_ids = make_cell_list(N), np.empty(0, np.int64)
    order, starts = cells.order, cells.starts
    older_size = observations.shape[2] - compute_first_hop_size(channel_spec.table, D)
    is_delayed = False if packed_radio is None else unpack_radio_args(packed_radio, steps_ahead).measuring.is_delayed
    state = make_records(N, D, older_size, is_delayed)
    buffers = make_batch_buffers(N, D, channel_spec.table is not None or packed_radio is not None)
    # Not a literal 0: Numba compiles a kernel again for every constant argument.
    first, fine = np.int64(0), True
    for b in active:
        # Sort the flock into cells and its records into cell order, then aggregate over all cells.
        shape = sort_into_cells(positions[b], kernel_args.comm_radius, cells)
        if shape[0] == 0 or not gather_records(
            positions[b], velocities[b], previous[b], older_size, order, state, first, N
        ):
            return False
        records = Records(
            state.positions,
            state.velocities,
            state.older_hops,
            order,
            no_ids,
            roles[b],
            groups[b],
            (roles[b] == OBSTACLE).any(),
        )
        sorted_cells, last = SortedCells(starts, shape), shape[0] * shape[1] * shape[2]
        if packed_radio is not None:
            flock_radio = make_flock_radio(b, unpack_radio_args(packed_radio, steps_ahead), N)
            if not apply_radio(flock_radio, records, older_size, first, N):
                return False
            fine = _aggregate_cells(
                records, sorted_cells, kernel_args, flock_radio, observations[b], first, last, buffers
            )
        else:
            fine = _aggregate_cells(records, sorted_cells, kernel_args, None, observations[b], first, last, buffers)
        if not fine:
            return False
    return True


@kernel
def compute_first_hop_size(table: ChannelTable | None, D: Index) -> Index:
    """Return C * D, the size of one hop of an agent's block."""
    if table is None:
        return PAPER_CHANNELS * D
    return len(table) * D


@kernel
def aggregate_cells(
    records: Records,
    cells: SortedCells,
    kernel_args: KernelArgs,
    flock_radio: FlockRadio | None,
    observations: Array,
    first: Index,
    last: Index,
) -> bool:
    """Write the observations (N, K * C * D) of the agents in buckets first .. last - 1 of one flock.

    Leaders and obstacle agents observe zeros. `flock_radio` is None for an ideal radio.
    """
    needs_features = kernel_args.channel_spec.table is not None or flock_radio is not None
    buffers = make_batch_buffers(records.order.size, records.positions.shape[0], needs_features)
    return _aggregate_cells(records, cells, kernel_args, flock_radio, observations, first, last, buffers)


@kernel
def _aggregate_cells(
    records: Records,
    cells: SortedCells,
    kernel_args: KernelArgs,
    flock_radio: FlockRadio | None,
    observations: Array,
    first: Index,
    last: Index,
    buffers: BatchBuffers,
) -> bool:
    """Do what `aggregate_cells` does, in the given buffers."""
    obstacle_rule, comm_radius, channel_spec = kernel_args
    starts, max_cells = cells.starts, compute_cells_per_block(cells)
    # Without obstacle agents the rule is skipped; forget its result for another flock of the batch.
    if not records.has_obstacles:
        buffers.rule_result.virtual_velocities[:] = 0.0
        buffers.rule_result.obstacle_counts[:] = 0
    fine, c, done = True, np.intp(first), np.uintp(0)
    while c < last:
        # List the neighbours of a batch of agents, apply radio and obstacle rule, and sum.
        s = starts[c] + done
        end = list_batch(
            c, done, last, records, cells, max_cells, comm_radius * comm_radius, buffers, channel_spec.axes
        )
        c, done = end.bucket, end.done
        if end.agents == 0:
            continue
        batch = Batch(s, end.agents, buffers.lists, buffers.rule_result, buffers.features)
        if flock_radio is not None:
            drop_lost_messages(flock_radio, batch, records)
            if records.has_obstacles:
                shift = np.uintp(records.order.size if flock_radio.args.measuring.is_delayed else 0)
                apply_obstacle_rule(batch, shift, records, obstacle_rule)
            fine &= aggregate_received(
                flock_radio.flock, flock_radio.args, batch, records, channel_spec, channel_spec.table, observations
            )
        else:
            if records.has_obstacles:
                apply_obstacle_rule(batch, np.uintp(0), records, obstacle_rule)
            fine &= _aggregate_batch(batch, records, channel_spec, channel_spec.table, observations)
    return fine


@kernel
def _aggregate_batch(
    batch: Batch, records: Records, channel_spec: ChannelSpec, table: ChannelTable | None, observations: Array
) -> bool:
    """Write the observations of a batch of agents from their neighbour lists.

    Return False if a sum of a declared channel is not finite or too large; the paper's are not checked here.
    """
    is_mean, paper_channel_count, axes = channel_spec.is_mean, channel_spec.paper_channel_count, channel_spec.axes
    # A faster kernel sums the paper's channels and the older hops; declared channels may follow.
    if table is None:
        aggregate_paper_channels(batch, records, is_mean, np.intp(PAPER_CHANNELS), observations, axes)
        return True
    if paper_channel_count > 0:
        aggregate_paper_channels(batch, records, is_mean, np.intp(len(table)), observations, axes)
    return aggregate_declared_channels(batch, records, table, paper_channel_count, False, observations, axes)


@kernel
def aggregate_received(
    b: Index,
    radio_args: RadioArgs,
    batch: Batch,
    records: Records,
    channel_spec: ChannelSpec,
    table: ChannelTable | None,
    observations: Array,
) -> bool:
    """Do what `_aggregate_batch` does, with r_ij and v_ij as the radio delivers them to flock b.

    The caller has already removed lost messages from the lists.
    """
    measuring, axes = radio_args.measuring, channel_spec.axes
    if not measuring.is_measured:
        return _aggregate_batch(batch, records, channel_spec, table, observations)
    shift = np.uintp(records.order.size if measuring.is_delayed else 0)
    measure_messages(b, radio_args, batch, shift, records)
    if table is not None:
        return aggregate_declared_channels(batch, records, table, np.int64(0), True, observations, axes)
    aggregate_measured_channels(batch, records, channel_spec.is_mean, observations, axes)
    return True


@kernel
def aggregate_listed(
    positions: Array,
    velocities: Array,
    roles: Array,
    groups: Array,
    previous: Array,
    observations: Array,
    packed_args: tuple[Any, ...],
    packed_radio: tuple[Any, ...] | None,
    begins: Array,
    senders: Array,
    active: Array,
) -> bool:
    """Write the observations of all agents of the active flocks, whose neighbours are the listed senders.

    Agent i of flock b receives from senders[begins[b N + i] : begins[b N + i + 1]], at any distance, if it is a
    follower; other agents observe zeros. Other arguments are those of `aggregate_flocks`.
    """
    obstacle_rule, _, channel_spec = unpack_kernel_args(packed_args)
    _, N, D = positions.shape
    order, no_ids = np.arange(N).astype(np.uintp), np.empty(0, np.int64)
    older_size = observations.shape[2] - compute_first_hop_size(channel_spec.table, D)
    is_delayed = False if packed_radio is None else unpack_radio_args(packed_radio, np.int64(0)).measuring.is_delayed
    shift, none, fine = np.uintp(N if is_delayed else 0), np.int64(0), True
    state = make_records(N, D, older_size, is_delayed)
    buffers = make_batch_buffers(N, D, channel_spec.table is not None or packed_radio is not None)
    lists, list_senders, ends = buffers.lists, buffers.lists.senders, buffers.lists.ends
    for b in active:
        if not gather_records(positions[b], velocities[b], previous[b], older_size, order, state, none, N):
            return False
        # Space has no obstacles.
        records = Records(
            state.positions, state.velocities, state.older_hops, order, no_ids, roles[b], groups[b], D == 2
        )
        if packed_radio is not None:
            flock_radio = make_flock_radio(b, unpack_radio_args(packed_radio, none), N)
            if not apply_radio(flock_radio, records, older_size, none, N):
                return False
        first = np.uintp(0)
        while first < N:
            # Records are in the order of agents here, so the listed senders are records.
            agents, end = np.uintp(0), np.uintp(0)
            while first + agents < N and agents < BATCH_AGENTS:
                row = np.uintp(b * N) + first + agents
                begin = np.uintp(begins[row])
                degree = np.uintp(begins[row + np.uintp(1)]) - begin
                if end + degree > list_senders.size:
                    break
                # Leaders and obstacle agents receive nothing: their Z is zero.
                for e in range(degree if roles[b, first + agents] == FOLLOWER else np.uintp(0)):
                    list_senders[end] = senders[begin + e]
                    end += np.uintp(1)
                ends[agents] = end
                agents += np.uintp(1)
            batch = Batch(first, agents, lists, buffers.rule_result, buffers.features)
            if packed_radio is not None:
                drop_lost_messages(flock_radio, batch, records)
            if D == 2:
                apply_obstacle_rule(batch, shift, records, obstacle_rule)
            else:
                begin = np.uintp(0)
                for a in range(agents):
                    compute_offsets(3, first + shift + a, records.positions, lists, begin, ends[a])
                    begin = ends[a]
            if packed_radio is not None:
                fine &= aggregate_received(
                    b, flock_radio.args, batch, records, channel_spec, channel_spec.table, observations[b]
                )
            else:
                fine &= _aggregate_batch(batch, records, channel_spec, channel_spec.table, observations[b])
            first += agents
    return fine


class LargeFlockAggregator:
    """Aggregation for large flocks, one by one; cells and records keep their memory from step to step.

    Args:
        agents: N.
        D: the number of dimensions.
        older_size: (K - 1) * C * D, the numbers that an agent relays.
        is_delayed: whether messages arrive later than they are sent.
    """

    def __init__(self, agents: int, D: int, older_size: int, is_delayed: bool) -> None:
        self.agents = agents
        self._older_size = older_size
        self._cells = make_cell_list(agents)
        self._state = make_records(agents, D, older_size, is_delayed)

    @property
    def order(self) -> Int64[np.ndarray, " N"]:
        """The agents of the last flock, cell by cell."""
        return self._cells.order.view(np.int64)

    def observe(
        self,
        flock: Flock,
        b: Index,
        previous: Array,
        observations: Array,
        agent_ids: Array | None,
        kernel_args: KernelArgs,
        radio_args: RadioArgs | None,
    ) -> bool:
        """Fill in `observations` (N, K * C * D) of flock b of a batch; each thread takes some of its cells.

        `previous` is (N, K * C * D). Return False if the flock or a sum is out of range.
        """
        N, older_size = self.agents, self._older_size
        order, starts, _ = self._cells
        positions, velocities = flock.positions[b], flock.velocities[b]
        shape = sort_into_cells(positions, kernel_args.comm_radius, self._cells)
        if shape[0] == 0:
            return False
        # Threads take whole buckets, with about the same number of agents each.
        parts = threads.split_range(N, AGENTS_PER_THREAD)
        buckets = shape[0] * shape[1] * shape[2]
        cuts = np.searchsorted(starts[: buckets + 1], np.array([last for _, last in parts[:-1]], np.uintp)).tolist()
        bounds = list(zip([0, *cuts], [*cuts, buckets], strict=True))
        # Sum the agents of a cell in the caller's order, whatever the order in memory: sums do not change by a bit.
        if agent_ids is not None:
            threads.run_parallel(sort_by_agent_id, [(order, starts, agent_ids, *part) for part in bounds])
        # All records must be in cell order before any thread aggregates. Copying them is little work, for which threads
        # pay off only with many agents.
        source = positions, velocities, previous, older_size, order, self._state
        copied = threads.split_range(N, 3 * AGENTS_PER_THREAD)
        if not all(threads.run_parallel(gather_records, [(*source, *part) for part in copied])):
            return False
        ids = np.empty(0, np.int64) if agent_ids is None else agent_ids
        roles, groups = flock.roles[b], flock.groups[b]
        records = Records(*self._state, order, ids, roles, groups, bool((roles == OBSTACLE).any()))
        # Apply the radio to all records, as an agent may receive any of them.
        flock_radio = None
        if radio_args is not None:
            flock_radio = make_flock_radio(b, radio_args, N)
            jobs = [(flock_radio, records, older_size, *part) for part in copied]
            if not all(threads.run_parallel(apply_radio, jobs)):
                return False
        common = records, SortedCells(starts, shape), kernel_args, flock_radio, observations
        return all(threads.run_parallel(aggregate_cells, [(*common, *part) for part in bounds]))
