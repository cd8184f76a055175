"""How the kernels of `hearing` are shared out to threads: small flocks whole, a large one by its cells.

`terms` are what they are told besides the state: the obstacle rule, R, and what is said; `air` is what becomes of
messages, None if all arrive. Each function returns False if somebody is off the scale.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int64

from equiflock.features import Senses
from equiflock.flock import Flock
from equiflock.runtime import threads
from equiflock.runtime.checks import OffScaleError
from equiflock.runtime.jit import Array, Index
from equiflock.runtime.threads import AGENTS_PER_THREAD, split_flocks
from equiflock.senses.cells import FARTHEST_CELL, cell_list, order_by_rank, out_of_range, sort_into_cells
from equiflock.senses.graph import Graph
from equiflock.senses.hearing import hear_cells, hear_flocks, hear_listed
from equiflock.senses.records import gather_records, make_calls, make_records, put_on_air
from equiflock.senses.sums import LARGEST_SUM


def hear_small(flock: Flock, active: Array, before: Array, now: Array, terms: tuple[Any, ...], air: Any) -> bool:
    """Fill in `now` for small flocks; each thread takes some of the active ones."""
    parts = split_flocks(len(active), flock.shape[1]) if len(active) > 1 else [(0, 1)]
    state = flock.positions, flock.velocities, flock.roles, flock.groups, before
    return all(threads.share(hear_flocks, [(*state, *terms, now, active[slice(*part)], air) for part in parts]))


def hear_fixed(
    flock: Flock, active: Array, before: Array, now: Array, links: Graph, terms: tuple[Any, ...], air: Any
) -> bool:
    """Fill in `now` for flocks in which everybody hears those that are listed, at any distance."""
    parts = split_flocks(len(active), flock.shape[1])
    state = flock.positions, flock.velocities, flock.roles, flock.groups, before
    rules, _, said = terms
    rest = links.starts, links.senders.view(np.uintp), rules, said, now
    return all(threads.share(hear_listed, [(*state, *rest, active[slice(*part)], air) for part in parts]))


def off_scale(flock: Flock, comm_radius: float, senses: Senses, declared: bool) -> OffScaleError:
    """Why the kernels refuse a flock: for its state, or for a `declared` feature that is no number or too large."""
    state = max(np.abs(flock.positions).max() / comm_radius, np.abs(flock.velocities).max())
    if not declared or not state <= FARTHEST_CELL:
        return out_of_range()
    names = ", ".join(dict.fromkeys(name for name, _ in senses.channels))
    return OffScaleError(f"sums of features must be numbers below {LARGEST_SUM:g}; one of {names} is off the scale")


class LargeFlocks:
    """Hears large flocks one by one, with memory for cells and records that is kept from step to step.

    Args:
        agents: N.
        D: the dimensions of space.
        older: (K - 1) * C * D, how many numbers an agent passes on.
        delayed: whether messages are heard later than they are sent.
    """

    def __init__(self, agents: int, D: int, older: int, delayed: bool) -> None:
        self.agents = agents
        self._older = older
        self._cells = cell_list(agents)
        self._records = make_records(agents, D, older, delayed)

    @property
    def order(self) -> Int64[np.ndarray, " N"]:
        """The agents of the last flock that was heard, cell by cell."""
        return self._cells[0].view(np.int64)

    def hear(
        self,
        flock: Flock,
        b: Index,
        before: Array,
        now: Array,
        ranks: Array | None,
        terms: tuple[Any, ...],
        air: Any,
    ) -> bool:
        """Fill in `now` (N, K * C * D) for one flock of a batch; each thread takes some of its cells."""
        (rules, comm_radius, said), N = terms, self.agents
        (order, starts, bucket), records = self._cells, self._records
        positions, velocities, crew = flock.positions[b], flock.velocities[b], (flock.roles[b], flock.groups[b])
        shape = sort_into_cells(positions, comm_radius, order, starts, bucket)
        if shape[0] == 0:
            return False
        # Threads get whole buckets, cut so that all have about as many agents.
        parts = threads.split(N, AGENTS_PER_THREAD)
        buckets = shape[0] * shape[1] * shape[2]
        cuts = np.searchsorted(starts[: buckets + 1], np.array([last for _, last in parts[:-1]], np.uintp)).tolist()
        bounds = list(zip([0, *cuts], [*cuts, buckets], strict=True))
        # Whatever the order in memory, agents of a cell are added up in the caller's order: the sums keep every bit.
        if ranks is not None:
            threads.share(order_by_rank, [(order, starts, ranks, *part) for part in bounds])
        # All records must be in cell order before any thread aggregates. Copying them is so little work that handing
        # it over pays for many agents only.
        source = positions, velocities, before, self._older, order, records
        copied = threads.split(N, 3 * AGENTS_PER_THREAD)
        if not all(threads.share(gather_records, [(*source, *part) for part in copied])):
            return False
        numbers = np.empty(0, np.int64) if ranks is None else ranks
        # What the radio makes of the records, of which an agent may hear any.
        if air is not None:
            calls = make_calls(N)
            told = b, order, numbers, records, self._older, air, calls
            if not all(threads.share(put_on_air, [(*told, *part) for part in copied])):
                return False
            air = b, air, calls
        common = records, crew, (order, starts, shape, numbers), rules, comm_radius, said, now, air
        return all(threads.share(hear_cells, [(*common, *part) for part in bounds]))
