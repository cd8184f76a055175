"""The kernels of `aggregation_kernels` on several threads: small flocks whole, a large one by its cells.

`packed_args` are the `KernelArgs`, packed; `radio_args` is None for an ideal radio. Each function returns False if a
flock or a sum is out of range.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int64

from equiflock._runtime import threads
from equiflock._runtime.checks import NumericRangeError
from equiflock._runtime.jit import Array, Index
from equiflock._runtime.threads import AGENTS_PER_THREAD, split_flocks
from equiflock.features import Senses
from equiflock.flock import Flock
from equiflock.graph.cell_list import (
    MAX_CELL_INDEX,
    SortedCells,
    make_cell_list,
    make_out_of_range_error,
    sort_by_agent_id,
    sort_into_cells,
)
from equiflock.graph.radius_graph import Graph
from equiflock.observations.aggregation_kernels import (
    FlockRadio,
    KernelArgs,
    aggregate_cells,
    aggregate_flocks,
    aggregate_listed,
)
from equiflock.observations.channel_sums import LARGEST_SUM
from equiflock.observations.neighbour_lists import RolesGroups
from equiflock.observations.radio_kernels import RadioArgs, pack_radio_args
from equiflock.observations.records import apply_radio, gather_records, make_records, make_sender_hashes


def aggregate_small_flocks(
    flock: Flock,
    active: Array,
    previous: Array,
    observations: Array,
    packed_args: tuple[Any, ...],
    radio_args: RadioArgs | None,
) -> bool:
    """Fill in `observations` (B, N, K * C * D) of the active flocks; each thread takes some of them.

    Return False if a flock or a sum is out of range.
    """
    parts = split_flocks(len(active), flock.shape[1]) if len(active) > 1 else [(0, 1)]
    state = flock.positions, flock.velocities, flock.roles, flock.groups, previous
    packed_radio = None if radio_args is None else pack_radio_args(radio_args)
    return all(
        threads.run_parallel(
            aggregate_flocks,
            [(*state, packed_args, observations, active[slice(*part)], packed_radio, 0) for part in parts],
        )
    )


def aggregate_fixed_graph(
    flock: Flock,
    active: Array,
    previous: Array,
    observations: Array,
    graph: Graph,
    packed_args: tuple[Any, ...],
    radio_args: RadioArgs | None,
) -> bool:
    """Fill in `observations` (B, N, K * C * D) of the active flocks, with the neighbours in `graph` at any distance.

    Each thread takes some of the flocks. Return False if a flock or a sum is out of range.
    """
    parts = split_flocks(len(active), flock.shape[1])
    state = flock.positions, flock.velocities, flock.roles, flock.groups, previous
    packed_radio = None if radio_args is None else pack_radio_args(radio_args)
    links = graph.starts, graph.senders.view(np.uintp)
    rest = *links, packed_args, observations
    return all(
        threads.run_parallel(aggregate_listed, [(*state, *rest, active[slice(*part)], packed_radio) for part in parts])
    )


def make_off_scale_error(
    flock: Flock, comm_radius: float, senses: Senses, has_declared_channels: bool
) -> NumericRangeError:
    """Return the error for which the kernels refused a flock: its state, or the sum of a declared feature."""
    state = max(np.abs(flock.positions).max() / comm_radius, np.abs(flock.velocities).max())
    if not has_declared_channels or not state <= MAX_CELL_INDEX:
        return make_out_of_range_error()
    names = ", ".join(dict.fromkeys(name for name, _ in senses.channels))
    return NumericRangeError(f"sums of features must be numbers below {LARGEST_SUM:g}; one of {names} is off the scale")


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
        self._records = make_records(agents, D, older_size, is_delayed)

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
        N, records = self.agents, self._records
        order, starts, agent_buckets = self._cells
        positions, velocities = flock.positions[b], flock.velocities[b]
        shape = sort_into_cells(positions, kernel_args.comm_radius, order, starts, agent_buckets)
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
        state = positions, velocities, previous, self._older_size, order, records
        copied = threads.split_range(N, 3 * AGENTS_PER_THREAD)
        if not all(threads.run_parallel(gather_records, [(*state, *part) for part in copied])):
            return False
        ids = np.empty(0, np.int64) if agent_ids is None else agent_ids
        # Apply the radio to all records, as an agent may receive any of them.
        flock_radio = None
        if radio_args is not None:
            sender_hashes = make_sender_hashes(N)
            source = b, order, ids, records, self._older_size, radio_args, sender_hashes
            if not all(threads.run_parallel(apply_radio, [(*source, *part) for part in copied])):
                return False
            flock_radio = FlockRadio(b, radio_args, sender_hashes)
        common = (
            records,
            RolesGroups(flock.roles[b], flock.groups[b]),
            SortedCells(order, starts, shape, ids),
            *kernel_args,
            observations,
            flock_radio,
        )
        return all(threads.run_parallel(aggregate_cells, [(*common, *part) for part in bounds]))
