"""The kernels of `aggregation`: the observations of each agent, summed over its neighbours in a fixed order.

In `previous` and `observations` an agent's K x C x D block is one row.

Where an argument is None, Numba prunes the branches that need it, and compiles faster; it does the same with branches
on the length of a tuple, here `axes`. Pruning needs a separate argument, so `table` is passed beside `channel_spec`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from equiflock._runtime.jit import Array, Index, kernel
from equiflock.flock import FOLLOWER, OBSTACLE
from equiflock.graph.cell_list import Numbering, SortedCells, make_cell_list, sort_into_cells
from equiflock.observations.channel_sums import FeatureBuffers, aggregate_declared_channels, make_feature_buffers
from equiflock.observations.feature_weights import ChannelTable
from equiflock.observations.neighbour_lists import (
    BATCH_AGENTS,
    ListBuffers,
    NeighbourLists,
    Records,
    RolesGroups,
    RuleResult,
    apply_obstacle_rule,
    compute_cells_per_block,
    compute_offsets,
    list_batch,
    make_list_buffers,
    make_rule_buffers,
)
from equiflock.observations.orbit import ObstacleRule, OrbitCoefficients
from equiflock.observations.paper_sums import PAPER_CHANNELS, aggregate_measured_channels, aggregate_paper_channels
from equiflock.observations.radio_kernels import (
    RadioArgs,
    SenderHashes,
    drop_lost_messages,
    measure_messages,
    unpack_radio_args,
)
from equiflock.observations.records import apply_radio, gather_records, make_records, make_sender_hashes


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


class FlockRadio(NamedTuple):
    """The radio of one flock of a batch."""

    flock: Index
    """The index of the flock."""
    args: RadioArgs
    sender_hashes: SenderHashes


class BatchBuffers(NamedTuple):
    """Memory of one thread for batches of agents."""

    listing: ListBuffers
    rule_result: RuleResult
    features: FeatureBuffers
    """Empty if neither declared channels nor a radio need it."""


@kernel
def make_batch_buffers(N: Index, D: Index, needs_feature_buffers: bool) -> BatchBuffers:
    """Allocate a thread's memory for batches of a flock of N agents."""
    listing = make_list_buffers(N, D)
    features = make_feature_buffers(listing.lists.senders.size if needs_feature_buffers else 0, D)
    return BatchBuffers(listing, make_rule_buffers(), features)


@kernel
def _aggregate_batch(
    first: Index,
    agents: Index,
    order: Array,
    records: Records,
    roles_groups: RolesGroups,
    lists: NeighbourLists,
    rule_result: RuleResult,
    channel_spec: ChannelSpec,
    table: ChannelTable | None,
    has_obstacles: bool,
    observations: Array,
    features: FeatureBuffers,
) -> bool:
    """Write the observations of a batch of agents, whose records begin with `first`, from their neighbour lists.

    Returns:
        False if a sum of a declared channel is not finite or too large; the paper's channels are not checked here.
    """
    is_mean, paper_channel_count, axes = channel_spec.is_mean, channel_spec.paper_channel_count, channel_spec.axes
    # A faster kernel sums the paper's channels and the older hops; declared channels may follow.
    if table is None:
        aggregate_paper_channels(
            first, agents, order, records, lists, rule_result, is_mean, np.intp(PAPER_CHANNELS), observations, axes
        )
        return True
    if paper_channel_count > 0:
        aggregate_paper_channels(
            first, agents, order, records, lists, rule_result, is_mean, np.intp(len(table)), observations, axes
        )
    return aggregate_declared_channels(
        first,
        agents,
        order,
        records,
        roles_groups,
        lists,
        rule_result,
        table,
        paper_channel_count,
        has_obstacles,
        observations,
        features,
        False,
        axes,
    )


@kernel
def aggregate_received(
    b: Index,
    first: Index,
    agents: Index,
    numbering: Numbering,
    records: Records,
    roles_groups: RolesGroups,
    lists: NeighbourLists,
    rule_result: RuleResult,
    channel_spec: ChannelSpec,
    table: ChannelTable | None,
    observations: Array,
    features: FeatureBuffers,
    radio_args: RadioArgs,
) -> bool:
    """Do what `_aggregate_batch` does, with r_ij and v_ij as the radio delivers them.

    The caller has already removed lost messages from the lists. Return False if a sum is not finite or too large.
    """
    order, measuring = numbering.order, radio_args.measuring
    if not measuring.is_measured:
        return _aggregate_batch(
            first,
            agents,
            order,
            records,
            roles_groups,
            lists,
            rule_result,
            channel_spec,
            table,
            True,
            observations,
            features,
        )
    # Measure r_ij and v_ij, then sum.
    shift = np.uintp(order.size if measuring.is_delayed else 0)
    roles, vectors = roles_groups.roles, features.vectors
    measure_messages(b, first, shift, agents, lists, records, roles, rule_result, radio_args, numbering, vectors)
    if table is not None:
        return aggregate_declared_channels(
            first,
            agents,
            order,
            records,
            roles_groups,
            lists,
            rule_result,
            table,
            0,
            True,
            observations,
            features,
            True,
            channel_spec.axes,
        )
    aggregate_measured_channels(
        first,
        agents,
        order,
        records,
        lists,
        rule_result,
        channel_spec.is_mean,
        observations,
        vectors,
        channel_spec.axes,
    )
    return True


@kernel
def aggregate_cells(
    records: Records,
    roles_groups: RolesGroups,
    cells: SortedCells,
    obstacle_rule: ObstacleRule,
    comm_radius: float,
    channel_spec: ChannelSpec,
    observations: Array,
    flock_radio: FlockRadio | None,
    first: Index,
    last: Index,
) -> bool:
    """Write the observations (N, K * C * D) of the agents in buckets first .. last - 1 of one flock.

    Leaders and obstacle agents observe zeros. `flock_radio` is None for an ideal radio.

    Returns:
        False if a sum is not finite or too large.
    """
    needs_feature_buffers = channel_spec.table is not None or flock_radio is not None
    buffers = make_batch_buffers(cells.order.size, records.positions.shape[0], needs_feature_buffers)
    return _aggregate_cells(
        records,
        roles_groups,
        cells,
        obstacle_rule,
        comm_radius,
        channel_spec,
        observations,
        flock_radio,
        first,
        last,
        buffers,
    )


@kernel
def _aggregate_cells(
    records: Records,
    roles_groups: RolesGroups,
    cells: SortedCells,
    obstacle_rule: ObstacleRule,
    comm_radius: float,
    channel_spec: ChannelSpec,
    observations: Array,
    flock_radio: FlockRadio | None,
    first: Index,
    last: Index,
    buffers: BatchBuffers,
) -> bool:
    """Do what `aggregate_cells` does, in the given buffers."""
    order, starts, shape, agent_ids = cells
    listing, rule_result, features = buffers
    record_positions, roles, lists, numbering = (
        records.positions,
        roles_groups.roles,
        listing.lists,
        Numbering(order, agent_ids),
    )
    has_obstacles, max_cells = (roles == OBSTACLE).any(), compute_cells_per_block(starts, shape)
    # Without obstacle agents the rule is skipped; forget its result for another flock of the batch.
    if not has_obstacles:
        rule_result.virtual_velocities[:] = 0.0
        rule_result.obstacle_counts[:] = 0
    fine, c, done = True, np.intp(first), np.uintp(0)
    while c < last:
        # List the neighbours of a batch of agents, apply radio and obstacle rule, and sum.
        s = starts[c] + done
        batch = list_batch(
            c,
            done,
            last,
            record_positions,
            roles,
            order,
            starts,
            shape,
            max_cells,
            comm_radius * comm_radius,
            listing,
            channel_spec.axes,
        )
        c, done, agents = batch.bucket, batch.done, batch.agents
        if agents == 0:
            continue
        if flock_radio is not None:
            b, radio_args = flock_radio.flock, flock_radio.args
            drop_lost_messages(b, s, agents, lists, numbering, radio_args, flock_radio.sender_hashes)
            if has_obstacles:
                own = s + np.uintp(order.size if radio_args.measuring.is_delayed else 0)
                apply_obstacle_rule(own, agents, lists, records, roles, numbering, obstacle_rule, rule_result)
            fine &= aggregate_received(
                b,
                s,
                agents,
                numbering,
                records,
                roles_groups,
                lists,
                rule_result,
                channel_spec,
                channel_spec.table,
                observations,
                features,
                radio_args,
            )
        else:
            if has_obstacles:
                apply_obstacle_rule(s, agents, lists, records, roles, numbering, obstacle_rule, rule_result)
            fine &= _aggregate_batch(
                s,
                agents,
                order,
                records,
                roles_groups,
                lists,
                rule_result,
                channel_spec,
                channel_spec.table,
                has_obstacles,
                observations,
                features,
            )
    return fine


@kernel
def aggregate_flocks(
    positions: Array,
    velocities: Array,
    roles: Array,
    groups: Array,
    previous: Array,
    packed_args: tuple[Any, ...],
    observations: Array,
    active: Array,
    packed_radio: tuple[Any, ...] | None,
    steps_ahead: Index,
) -> bool:
    """Write the observations (B, N, K * C * D) of all agents of the active flocks; other flocks are left unchanged.

    Leaders and obstacle agents observe zeros.

    Args:
        positions: (B, N, D), at the step at which the messages were sent, as all of the state.
        velocities: (B, N, D).
        roles: (B, N).
        groups: (B, N).
        previous: (B, N, K * C * D), the observations of the step before that.
        packed_args: the `KernelArgs`, packed.
        observations: (B, N, K * C * D), the result.
        active: indices of the flocks to observe.
        packed_radio: the `RadioArgs`, packed; None for an ideal radio.
        steps_ahead: steps since the one for which `packed_radio` was packed.

    Returns:
        False if a flock or a sum is out of range.
    """
    obstacle_rule, comm_radius, channel_spec = unpack_kernel_args(packed_args)
    _, N, D = positions.shape
    order, starts, agent_buckets = make_cell_list(N)
    no_ids, sender_hashes = np.empty(0, np.int64), make_sender_hashes(N if packed_radio is not None else 0)
    older_size = previous.shape[2] - compute_first_hop_size(channel_spec.table, D)
    is_delayed = False if packed_radio is None else unpack_radio_args(packed_radio, steps_ahead).measuring.is_delayed
    records = make_records(N, D, older_size, is_delayed)
    buffers = make_batch_buffers(N, D, channel_spec.table is not None or packed_radio is not None)
    for b in active:
        # Sort the flock into cells and its records into cell order, then aggregate over all cells.
        shape = sort_into_cells(positions[b], comm_radius, order, starts, agent_buckets)
        if shape[0] == 0 or not gather_records(
            positions[b], velocities[b], previous[b], older_size, order, records, 0, N
        ):
            return False
        buckets = shape[0] * shape[1] * shape[2]
        cells, roles_groups = SortedCells(order, starts, shape, no_ids), RolesGroups(roles[b], groups[b])
        # Not a literal 0: Numba compiles a kernel again for every constant argument.
        first = np.int64(0)
        if packed_radio is not None:
            radio_args = unpack_radio_args(packed_radio, steps_ahead)
            if not apply_radio(b, order, no_ids, records, older_size, radio_args, sender_hashes, first, N):
                return False
            flock_radio = FlockRadio(b, radio_args, sender_hashes)
            if not _aggregate_cells(
                records,
                roles_groups,
                cells,
                obstacle_rule,
                comm_radius,
                channel_spec,
                observations[b],
                flock_radio,
                first,
                buckets,
                buffers,
            ):
                return False
        elif not _aggregate_cells(
            records,
            roles_groups,
            cells,
            obstacle_rule,
            comm_radius,
            channel_spec,
            observations[b],
            None,
            first,
            buckets,
            buffers,
        ):
            return False
    return True


@kernel
def compute_first_hop_size(table: ChannelTable | None, D: Index) -> Index:
    """Return C * D, the size of one hop of an agent's block."""
    if table is None:
        return PAPER_CHANNELS * D
    return len(table) * D


@kernel
def aggregate_listed(
    positions: Array,
    velocities: Array,
    roles: Array,
    groups: Array,
    previous: Array,
    begins: Array,
    senders: Array,
    packed_args: tuple[Any, ...],
    observations: Array,
    active: Array,
    packed_radio: tuple[Any, ...] | None,
) -> bool:
    """Write the observations of all agents of the active flocks, whose neighbours are the listed senders.

    Agent i of flock b receives from senders[begins[b N + i] : begins[b N + i + 1]], at any distance, if it is a
    follower; other agents observe zeros. Packed arguments are those of `aggregate_flocks`.

    Returns:
        False if a flock or a sum is out of range.
    """
    obstacle_rule, _, channel_spec = unpack_kernel_args(packed_args)
    _, N, D = positions.shape
    order, no_ids = np.arange(N).astype(np.uintp), np.empty(0, np.int64)
    numbering, sender_hashes = Numbering(order, no_ids), make_sender_hashes(N if packed_radio is not None else 0)
    older_size = previous.shape[2] - compute_first_hop_size(channel_spec.table, D)
    is_delayed = False if packed_radio is None else unpack_radio_args(packed_radio, np.int64(0)).measuring.is_delayed
    shift = np.uintp(N if is_delayed else 0)
    records = make_records(N, D, older_size, is_delayed)
    buffers = make_batch_buffers(N, D, channel_spec.table is not None or packed_radio is not None)
    lists, rule_result, features = buffers.listing.lists, buffers.rule_result, buffers.features
    list_senders, ends = lists.senders, lists.ends
    fine = True
    for b in active:
        if not gather_records(positions[b], velocities[b], previous[b], older_size, order, records, 0, N):
            return False
        if packed_radio is not None:
            radio_args = unpack_radio_args(packed_radio, np.int64(0))
            if not apply_radio(b, order, no_ids, records, older_size, radio_args, sender_hashes, np.int64(0), N):
                return False
        roles_groups, first = RolesGroups(roles[b], groups[b]), np.uintp(0)
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
            if packed_radio is not None:
                drop_lost_messages(b, first, agents, lists, numbering, radio_args, sender_hashes)
            # The obstacle rule, in the plane only: space has no obstacles.
            if D == 2:
                apply_obstacle_rule(
                    first + shift, agents, lists, records, roles[b], numbering, obstacle_rule, rule_result
                )
            else:
                begin = np.uintp(0)
                for a in range(agents):
                    compute_offsets(3, first + shift + a, records.positions, lists, begin, ends[a])
                    begin = ends[a]
            if packed_radio is not None:
                fine &= aggregate_received(
                    b,
                    first,
                    agents,
                    numbering,
                    records,
                    roles_groups,
                    lists,
                    rule_result,
                    channel_spec,
                    channel_spec.table,
                    observations[b],
                    features,
                    radio_args,
                )
            else:
                fine &= _aggregate_batch(
                    first,
                    agents,
                    order,
                    records,
                    roles_groups,
                    lists,
                    rule_result,
                    channel_spec,
                    channel_spec.table,
                    D == 2,
                    observations[b],
                    features,
                )
            first += agents
    return fine
