"""The order in which the agents of a large flock stand in memory: near in space, near in memory.

It changes nothing but the speed. Sums over neighbours still run in the caller's order within a cell, and a moment's
arrays are put back into the caller's order when they are read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np
from jaxtyping import Bool, Int8, Int64

from equiflock.flock import Flock, Observations, Vectors
from equiflock.protocols import Moment
from equiflock.runtime.arrays import ReadOnlyDict, as_read_only
from equiflock.runtime.threads import MAX_SMALL_FLOCK
from equiflock.simulation.body_motion import BodyState

CACHE_DISTANCE = 20_000
"""Two agents this many places apart in memory are rarely in the processor's cache together."""
MAX_STRAY_SHARE = 0.2
"""Agents are reordered when more than this share of them is far in memory from the next one in cell order."""


MomentArrays: TypeAlias = tuple[Flock, Observations, Vectors, BodyState, Callable[[], Any] | None]
"""What a moment is made of: flock, observations, accelerations, what bodies remember, and who heard whom."""


class ReorderableSensing(Protocol):
    """Senses that know the agents cell by cell, and can go on with the same agents in another order."""

    @property
    def order(self) -> Int64[np.ndarray, " N"] | None:
        """The agents of the last large flock that was heard, cell by cell."""
        ...

    def renumber(self, order: Int64[np.ndarray, " N"]) -> None:
        """Go on with the same agents in another order: the s-th is the one that was number order[s]."""
        ...


class MemoryOrder:
    """Keeps a single large flock in cell order.

    Args:
        sensing: knows the agents cell by cell, and is renumbered whenever they are reordered.
        agents: N.
    """

    def __init__(self, sensing: ReorderableSensing, agents: int) -> None:
        self.sensing = sensing
        self.agent_ids: Int64[np.ndarray, " N"] = np.arange(agents)
        """The caller's number of every agent, as they stand in memory."""

    def rebuild_for(self, flock: Flock) -> MemoryOrder | None:
        """The order for a changed flock, in the caller's order so far; None if it is not large enough any more."""
        return MemoryOrder(self.sensing, flock.shape[1]) if self.is_worthwhile(flock) else None

    @staticmethod
    def is_worthwhile(flock: Flock) -> bool:
        """Whether cell order saves time: only for a single flock of many agents, all of which work."""
        return len(flock) == 1 and flock.shape[1] > MAX_SMALL_FLOCK and flock.all_working

    def propose_order(self) -> Int64[np.ndarray, " N"] | None:
        """The order to bring agents into now, or None if few of them have strayed."""
        order = self.sensing.order
        if order is None:
            return None
        # Sorting all arrays costs more than some cache misses, so it waits until they are many.
        strays = np.count_nonzero(np.abs(np.diff(order)) > CACHE_DISTANCE)
        return order.copy() if strays > len(order) * MAX_STRAY_SHARE else None

    def compute_inverse_order(self) -> Int64[np.ndarray, " N"]:
        """The order that brings agents back to the caller's."""
        return np.argsort(self.agent_ids)

    def reorder(self, order: Int64[np.ndarray, " N"]) -> None:
        """Take note that the agent at place s is now the one that was at order[s]."""
        self.agent_ids = self.agent_ids[order]
        self.sensing.renumber(order)

    def make_moment(
        self,
        step: int,
        time: float,
        stored: MomentArrays,
        ends: tuple[Bool[np.ndarray, " B"], Int8[np.ndarray, " B"], float],
    ) -> Moment:
        """The moment of a flight that stores flock, observations, accelerations and body state in this order."""
        return _ReorderedMoment.from_memory(step, time, stored, ends, self.agent_ids)


class _ReorderedMoment(Moment):
    """A moment whose arrays are copied into the caller's order when somebody first looks at them."""

    @classmethod
    def from_memory(
        cls,
        step: int,
        time: float,
        stored: MomentArrays,
        ends: tuple[Bool[np.ndarray, " B"], Int8[np.ndarray, " B"], float],
        agent_ids: Int64[np.ndarray, " N"],
    ) -> _ReorderedMoment:
        """A moment over arrays in cell order; place s in memory holds the caller's agent ranks[s]."""
        # The large arrays are left unset on purpose: reading one calls __getattr__, which makes it.
        moment = cls.__new__(cls)
        known = dict(zip(("flying", "outcomes", "comm_radius"), ends, strict=True))
        for name, value in {
            "step": step,
            "time": time,
            "_memory_arrays": stored,
            "_agent_ids": agent_ids,
            **known,
        }.items():
            object.__setattr__(moment, name, value)  # a moment is frozen
        return moment

    def __getattr__(self, name: str) -> Any:
        """Make one of the large arrays, when it is read for the first time."""
        in_order: dict[str, Callable[[], Any]] = {
            "flock": self._make_flock,
            "observations": lambda: as_read_only(self._to_caller_order(self._memory_arrays[1])),
            "accelerations": lambda: as_read_only(self._to_caller_order(self._memory_arrays[2])),
            "body_state": self._make_body_state,
            "compute_message_graph": self._make_message_graph_function,
        }
        if name not in in_order:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        # Kept under its name, so that reading it again does not come here.
        found = in_order[name]()
        object.__setattr__(self, name, found)
        return found

    def _make_flock(self) -> Flock:
        flock = self._memory_arrays[0]
        return Flock.view(*map(self._to_caller_order, flock.arrays), comm_radius=flock.comm_radius)

    def _make_body_state(self) -> BodyState:
        return ReadOnlyDict(
            {name: as_read_only(self._to_caller_order(array)) for name, array in self._memory_arrays[3].items()}
        )

    def _make_message_graph_function(self) -> Callable[[], Any] | None:
        # A graph is made when it is asked for, and in the order of memory.
        heard, agent_ids = self._memory_arrays[4], self._agent_ids
        return None if heard is None else lambda: heard().renumber_agents(agent_ids)

    def _to_caller_order(self, array: Any) -> Any:
        # Place s in memory holds the agent that the caller knows by the number ranks[s].
        found = np.empty_like(array)
        found[:, self._agent_ids] = array
        return found
