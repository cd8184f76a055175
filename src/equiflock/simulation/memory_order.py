"""The order of a large flock's agents in memory: agents that are near in space are near in memory.

It changes only the speed. Sums over neighbours still run in the caller's order within a cell, and a moment's arrays are
copied back into the caller's order when they are read.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from jaxtyping import Int64

from equiflock._runtime.memory import ReadOnlyDict, as_read_only
from equiflock._runtime.threads import MAX_SMALL_FLOCK
from equiflock.flock import Flock
from equiflock.protocols import LastStep, Moment

CACHE_DISTANCE = 20_000
"""Distance in memory, in agents, beyond which two agents are rarely in the processor's cache together."""
MAX_STRAY_SHARE = 0.2
"""Agents are reordered if more than this share of them is far in memory from the next one in cell order."""


class ReorderableSensing(Protocol):
    """Senses that sort agents into cells, and can continue with the same agents in another order."""

    @property
    def order(self) -> Int64[np.ndarray, " N"] | None:
        """The agents of the last large flock that was observed, cell by cell."""
        ...

    def renumber(self, order: Int64[np.ndarray, " N"]) -> None:
        """Continue with the same agents in another order: agent s was number order[s] before."""
        ...


class MemoryOrder:
    """Keeps a single large flock in cell order.

    Args:
        sensing: provides the cell order, and is renumbered when agents are reordered.
        agents: N.
    """

    def __init__(self, sensing: ReorderableSensing, agents: int) -> None:
        self.sensing = sensing
        self.agent_ids: Int64[np.ndarray, " N"] = np.arange(agents)
        """The caller's number of each agent in memory."""

    def rebuild_for(self, flock: Flock) -> MemoryOrder | None:
        """Return an identity memory order for the flock after agents were added or removed; None unless worthwhile."""
        return MemoryOrder(self.sensing, flock.shape[1]) if self.is_worthwhile(flock) else None

    @staticmethod
    def is_worthwhile(flock: Flock) -> bool:
        """Return whether cell order saves time: only for a single flock of many agents, all of which work."""
        return len(flock) == 1 and flock.shape[1] > MAX_SMALL_FLOCK and flock.all_working

    def propose_order(self) -> Int64[np.ndarray, " N"] | None:
        """Return the cell order into which to sort the agents now, or None if few are far from it in memory."""
        order = self.sensing.order
        if order is None:
            return None
        # Sorting all arrays costs more than a few cache misses.
        strays = np.count_nonzero(np.abs(np.diff(order)) > CACHE_DISTANCE)
        return order.copy() if strays > len(order) * MAX_STRAY_SHARE else None

    def compute_inverse_order(self) -> Int64[np.ndarray, " N"]:
        """Return the order that restores the caller's: the caller's agent i is at place order[i] in memory."""
        return np.argsort(self.agent_ids)

    def reorder(self, order: Int64[np.ndarray, " N"]) -> None:
        """Renumber ids and sensing for agents that the caller reorders: place s gets the agent of place order[s]."""
        self.agent_ids = self.agent_ids[order]
        self.sensing.renumber(order)

    def to_caller_order(self, moment: Moment) -> Moment:
        """Return a moment in the caller's order, from one in memory order, whose arrays are copied when first read."""
        return _ReorderedMoment.from_memory(moment, self.agent_ids)


class _ReorderedMoment(Moment):
    """A moment whose arrays are copied into the caller's order when they are first read."""

    @classmethod
    def from_memory(cls, moment: Moment, agent_ids: Int64[np.ndarray, " N"]) -> _ReorderedMoment:
        """Return a view of a moment in which place s holds the caller's agent agent_ids[s]."""
        # The large arrays stay unset on purpose: reading one calls __getattr__, which makes it.
        reordered = cls.__new__(cls)
        for name in ("step", "time", "flying", "outcomes", "comm_radius", "time_step", "start_steps", "last_step"):
            object.__setattr__(reordered, name, getattr(moment, name))  # a moment is frozen
        # Flights with limits are never in memory order.
        object.__setattr__(reordered, "safety_states", None)
        object.__setattr__(reordered, "_memory", moment)
        object.__setattr__(reordered, "_agent_ids", agent_ids)
        return reordered

    def with_last_step(self, last_step: LastStep) -> Moment:
        """Return the moment with the step before, which is in the caller's order; no array is copied here."""
        result = self.from_memory(self._memory, self._agent_ids)
        object.__setattr__(result, "last_step", last_step)
        return result

    def __getattr__(self, name: str) -> Any:
        """Make one of the large arrays when it is first read."""
        if name.startswith("_"):  # unset in an unfinished copy
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        memory = self._memory
        if name == "flock":
            arrays, comm_radius = map(self._to_caller_order, memory.flock.arrays), memory.flock.comm_radius
            value: Any = Flock.view(*arrays, comm_radius=comm_radius)
        elif name in ("observations", "accelerations"):
            value = as_read_only(self._to_caller_order(getattr(memory, name)))
        elif name == "body_state":
            copies = {key: as_read_only(self._to_caller_order(array)) for key, array in memory.body_state.items()}
            value = ReadOnlyDict(copies)
        elif name == "compute_message_graph":
            compute_graph, agent_ids = memory.compute_message_graph, self._agent_ids
            value = None if compute_graph is None else lambda: compute_graph().renumber_agents(agent_ids)
        else:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        # Set the attribute, so that the next read does not call __getattr__.
        object.__setattr__(self, name, value)
        return value

    def _to_caller_order(self, array: Any) -> Any:
        """Return a copy of an array (B, N, ..) in the caller's order."""
        # Place s in memory holds the caller's agent agent_ids[s].
        result = np.empty_like(array)
        result[:, self._agent_ids] = array
        return result
