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
from equiflock.runtime.arrays import ReadOnlyDict, read_only
from equiflock.runtime.threads import SMALL_FLOCK
from equiflock.simulation.moving import BodyState

FAR_IN_MEMORY = 20_000
"""Two agents this many places apart in memory are rarely in the processor's cache together."""
MOST_STRAYS = 0.2
"""Agents are reordered when more than this share of them is far in memory from the next one in cell order."""


Stored: TypeAlias = tuple[Flock, Observations, Vectors, BodyState, Callable[[], Any] | None]
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
        self.ranks: Int64[np.ndarray, " N"] = np.arange(agents)
        """The caller's number of every agent, as they stand in memory."""

    def replaced(self, flock: Flock) -> MemoryOrder | None:
        """The order for a changed flock, in the caller's order so far; None if it is not large enough any more."""
        return MemoryOrder(self.sensing, flock.shape[1]) if self.pays(flock) else None

    @staticmethod
    def pays(flock: Flock) -> bool:
        """Whether cell order saves time: only for a single flock of many agents, all of which work."""
        return len(flock) == 1 and flock.shape[1] > SMALL_FLOCK and flock.all_work

    def wanted(self) -> Int64[np.ndarray, " N"] | None:
        """The order to bring agents into now, or None if few of them have strayed."""
        order = self.sensing.order
        if order is None:
            return None
        # Sorting all arrays costs more than some cache misses, so it waits until they are many.
        strays = np.count_nonzero(np.abs(np.diff(order)) > FAR_IN_MEMORY)
        return order.copy() if strays > len(order) * MOST_STRAYS else None

    def back(self) -> Int64[np.ndarray, " N"]:
        """The order that brings agents back to the caller's."""
        return np.argsort(self.ranks)

    def reorder(self, order: Int64[np.ndarray, " N"]) -> None:
        """Take note that the agent at place s is now the one that was at order[s]."""
        self.ranks = self.ranks[order]
        self.sensing.renumber(order)

    def moment(
        self,
        step: int,
        time: float,
        stored: Stored,
        ends: tuple[Bool[np.ndarray, " B"], Int8[np.ndarray, " B"], float],
    ) -> Moment:
        """The moment of a flight that stores flock, observations, accelerations and body state in this order."""
        return _MomentInCellOrder.of(step, time, stored, ends, self.ranks)


class _MomentInCellOrder(Moment):
    """A moment whose arrays are copied into the caller's order when somebody first looks at them."""

    @classmethod
    def of(
        cls,
        step: int,
        time: float,
        stored: Stored,
        ends: tuple[Bool[np.ndarray, " B"], Int8[np.ndarray, " B"], float],
        ranks: Int64[np.ndarray, " N"],
    ) -> _MomentInCellOrder:
        """A moment over arrays in cell order; place s in memory holds the caller's agent ranks[s]."""
        # The large arrays are left unset on purpose: reading one calls __getattr__, which makes it.
        moment = cls.__new__(cls)
        known = dict(zip(("flying", "outcomes", "comm_radius"), ends, strict=True))
        for name, value in {"step": step, "time": time, "_stored": stored, "_ranks": ranks, **known}.items():
            object.__setattr__(moment, name, value)  # a moment is frozen
        return moment

    def __getattr__(self, name: str) -> Any:
        """Make one of the large arrays, when it is read for the first time."""
        in_order: dict[str, Callable[[], Any]] = {
            "flock": self._flock,
            "observations": lambda: read_only(self._in_order(self._stored[1])),
            "accelerations": lambda: read_only(self._in_order(self._stored[2])),
            "body_state": self._body_state,
            "heard": self._heard,
        }
        if name not in in_order:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        # Kept under its name, so that reading it again does not come here.
        found = in_order[name]()
        object.__setattr__(self, name, found)
        return found

    def _flock(self) -> Flock:
        flock = self._stored[0]
        return Flock.view(*map(self._in_order, flock.arrays), comm_radius=flock.comm_radius)

    def _body_state(self) -> BodyState:
        return ReadOnlyDict({name: read_only(self._in_order(array)) for name, array in self._stored[3].items()})

    def _heard(self) -> Callable[[], Any] | None:
        # A graph is made when it is asked for, and in the order of memory.
        heard, ranks = self._stored[4], self._ranks
        return None if heard is None else lambda: heard().renumbered(ranks)

    def _in_order(self, array: Any) -> Any:
        # Place s in memory holds the agent that the caller knows by the number ranks[s].
        found = np.empty_like(array)
        found[:, self._ranks] = array
        return found
