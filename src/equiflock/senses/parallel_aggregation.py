"""How the kernels of `hearing` are shared out to threads: small flocks whole, a large one by its cells.

`kernel_args` are what they are told besides the state: the obstacle rule, R, and what is said; `flock_radio` is what becomes of
messages, None if all arrive. Each function returns False if somebody is off the scale.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int64

from equiflock.features import Senses
from equiflock.flock import Flock
from equiflock.runtime import threads
from equiflock.runtime.checks import NumericRangeError
from equiflock.runtime.jit import Array, Index
from equiflock.runtime.threads import AGENTS_PER_THREAD, split_flocks
from equiflock.senses.aggregation_kernels import aggregate_cells, aggregate_flocks, aggregate_listed
from equiflock.senses.cell_list import (
    MAX_CELL_INDEX,
    make_cell_list,
    make_out_of_range_error,
    sort_by_agent_id,
    sort_into_cells,
)
from equiflock.senses.channel_sums import LARGEST_SUM
from equiflock.senses.graph import Graph
from equiflock.senses.records import apply_radio, gather_records, make_records, make_sender_hashes


def aggregate_small_flocks(
    flock: Flock, active: Array, previous: Array, observations: Array, kernel_args: tuple[Any, ...], flock_radio: Any
) -> bool:
    """Fill in `observations` for small flocks; each thread takes some of the active ones."""
    parts = split_flocks(len(active), flock.shape[1]) if len(active) > 1 else [(0, 1)]
    state = flock.positions, flock.velocities, flock.roles, flock.groups, previous
    return all(
        threads.run_parallel(
            aggregate_flocks,
            [(*state, *kernel_args, observations, active[slice(*part)], flock_radio) for part in parts],
        )
    )


def aggregate_fixed_graph(
    flock: Flock,
    active: Array,
    previous: Array,
    observations: Array,
    links: Graph,
    kernel_args: tuple[Any, ...],
    flock_radio: Any,
) -> bool:
    """Fill in `observations` for flocks in which everybody hears those that are listed, at any distance."""
    parts = split_flocks(len(active), flock.shape[1])
    state = flock.positions, flock.velocities, flock.roles, flock.groups, previous
    obstacle_rule, _, channel_spec = kernel_args
    rest = links.starts, links.senders.view(np.uintp), obstacle_rule, channel_spec, observations
    return all(
        threads.run_parallel(aggregate_listed, [(*state, *rest, active[slice(*part)], flock_radio) for part in parts])
    )


def make_off_scale_error(
    flock: Flock, comm_radius: float, senses: Senses, needs_feature_buffers: bool
) -> NumericRangeError:
    """Why the kernels refuse a flock: for its state, or for a `needs_feature_buffers` feature that is no number or too large."""
    state = max(np.abs(flock.positions).max() / comm_radius, np.abs(flock.velocities).max())
    if not needs_feature_buffers or not state <= MAX_CELL_INDEX:
        return make_out_of_range_error()
    names = ", ".join(dict.fromkeys(name for name, _ in senses.channels))
    return NumericRangeError(f"sums of features must be numbers below {LARGEST_SUM:g}; one of {names} is off the scale")


class LargeFlockAggregator:
    """Hears large flocks one by one, with memory for cells and records that is kept from step to step.

    Args:
        agents: N.
        D: the dimensions of space.
        older_size: (K - 1) * C * D, how many numbers an agent passes on.
        delayed: whether messages are heard later than they are sent.
    """

    def __init__(self, agents: int, D: int, older_size: int, delayed: bool) -> None:
        self.agents = agents
        self._older_size = older_size
        self._cells = make_cell_list(agents)
        self._records = make_records(agents, D, older_size, delayed)

    @property
    def order(self) -> Int64[np.ndarray, " N"]:
        """The agents of the last flock that was heard, cell by cell."""
        return self._cells[0].view(np.int64)

    def observe(
        self,
        flock: Flock,
        b: Index,
        previous: Array,
        observations: Array,
        agent_ids: Array | None,
        kernel_args: tuple[Any, ...],
        flock_radio: Any,
    ) -> bool:
        """Fill in `observations` (N, K * C * D) for one flock of a batch; each thread takes some of its cells."""
        (obstacle_rule, comm_radius, channel_spec), N = kernel_args, self.agents
        (order, starts, bucket), records = self._cells, self._records
        positions, velocities, roles_groups = flock.positions[b], flock.velocities[b], (flock.roles[b], flock.groups[b])
        shape = sort_into_cells(positions, comm_radius, order, starts, bucket)
        if shape[0] == 0:
            return False
        # Threads get whole buckets, cut so that all have about as many agents.
        parts = threads.split_range(N, AGENTS_PER_THREAD)
        buckets = shape[0] * shape[1] * shape[2]
        cuts = np.searchsorted(starts[: buckets + 1], np.array([last for _, last in parts[:-1]], np.uintp)).tolist()
        bounds = list(zip([0, *cuts], [*cuts, buckets], strict=True))
        # Whatever the order in memory, agents of a cell are added up in the caller's order: the sums keep every bit.
        if agent_ids is not None:
            threads.run_parallel(sort_by_agent_id, [(order, starts, agent_ids, *part) for part in bounds])
        # All records must be in cell order before any thread aggregates. Copying them is so little work that handing
        # it over pays for many agents only.
        source = positions, velocities, previous, self._older_size, order, records
        copied = threads.split_range(N, 3 * AGENTS_PER_THREAD)
        if not all(threads.run_parallel(gather_records, [(*source, *part) for part in copied])):
            return False
        numbers = np.empty(0, np.int64) if agent_ids is None else agent_ids
        # What the radio makes of the records, of which an agent may hear any.
        if flock_radio is not None:
            sender_hashes = make_sender_hashes(N)
            told = b, order, numbers, records, self._older_size, flock_radio, sender_hashes
            if not all(threads.run_parallel(apply_radio, [(*told, *part) for part in copied])):
                return False
            flock_radio = b, flock_radio, sender_hashes
        common = (
            records,
            roles_groups,
            (order, starts, shape, numbers),
            obstacle_rule,
            comm_radius,
            channel_spec,
            observations,
            flock_radio,
        )
        return all(threads.run_parallel(aggregate_cells, [(*common, *part) for part in bounds]))
