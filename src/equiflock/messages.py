"""What is said and what an agent knows: psi and the delayed K-hop aggregation (section 2.4 of the paper).

The message from j to i is three vectors, with r_ij = r_i - r_j and v_ij = v_i - v_j:

    psi(r_ij, v_ij) = [ v_ij,  r_ij / |r_ij|^4,  r_ij / |r_ij|^2 ]

and with N_i(t) the agents that i hears at time t, each agent knows Z_i(t) = [z_i^1(t), .. z_i^K(t)]:

    z_i^1(t) = sum or mean over j in N_i(t) of psi(r_ij(t), v_ij(t))
    z_i^k(t) = mean over j in N_i(t) of z_j^(k-1)(t - dt),    k = 2 .. K

Of several obstacle agents within R only the nearest is heard, and it stands still unless the `Orbit` technique says
what else a follower takes it to do. Before t = 0 everything is zero, and so are the sums of an agent that hears nobody.
Relative vectors and the one-hop sums are taken in float64, so a flock far from the origin loses nothing; messages are
float32.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Int64

from equiflock import threads
from equiflock.cells import cell_list, order_by_rank, out_of_range, sort_into_cells
from equiflock.checks import InputError, check_choice, check_count, check_positive, short
from equiflock.graph import AGENTS_PER_THREAD, SMALL_FLOCK, Graph, radius_graph, split_flocks
from equiflock.hearing import gather_records, hear_cells, hear_flocks, hear_listed, make_records
from equiflock.kernels import Array, Index
from equiflock.orbit import STAND_STILL, Orbit
from equiflock.types import Flock, Messages, Neighbourhood, OneHop, check_flock

Obstacles = Literal["nearest", "all"]


def messages(flock: Flock, *, radius: float | None = None, hops: int = 3, one_hop: OneHop = "mean") -> Messages:
    """What every agent of a flock with no past knows, (B, N, K, 3, D): z^1 at hop index 0, zeros beyond.

    Args:
        flock: the agents now.
        radius: the communication radius R, if it shall be another than that of the flock.
        hops: K >= 1.
        one_hop: whether z^1 is the sum or the mean over the agents heard.

    Coincident agents hear each other: v_ij counts in full, the two position channels are exactly zero (psi is
    computed with max(|r_ij|, 1e-8) in place of |r_ij|).
    """
    return DelayedAggregation(radius=radius, hops=hops, one_hop=one_hop).hear(check_flock(flock))


class DelayedAggregation:
    """The memory of a flock in flight: `hear` it once per time step and get what every agent knows.

    Args:
        radius: the communication radius R, if it shall be another than that of the flock.
        hops: K >= 1.
        one_hop: whether z^1 is the sum or the mean over the agents heard.
        neighbourhood: "moving" for whoever is within R now, "frozen" for whoever was at the first step.
        orbit: what a follower makes of the nearest obstacle agent's position; None if that just stands still.
        obstacles: which obstacle agents within R are heard and counted in |N_i|, "nearest" or "all".

    Memory is O(N). The array that `hear` returns is overwritten at the step after the next.
    """

    def __init__(
        self,
        *,
        radius: float | None = None,
        hops: int,
        one_hop: OneHop,
        neighbourhood: Neighbourhood = "moving",
        orbit: Orbit | None = None,
        obstacles: Obstacles = "nearest",
    ) -> None:
        self.radius = None if radius is None else check_positive("radius", radius)
        self.hops = check_count("hops", hops)
        self.one_hop = check_choice("one_hop", one_hop, ("sum", "mean"))
        self.neighbourhood = check_choice("neighbourhood", neighbourhood, ("moving", "frozen"))
        self.obstacles = check_choice("obstacles", obstacles, ("nearest", "all"))
        self.orbit = orbit
        self._now: Messages | None = None
        self._before: Messages | None = None
        self._graph: Graph | None = None
        self._memory: tuple[Any, ...] | None = None

    @property
    def orbit(self) -> Orbit | None:
        """The technique by which followers avoid obstacles, if they do; it may change between two steps."""
        return self._orbit

    @orbit.setter
    def orbit(self, orbit: Orbit | None) -> None:
        if orbit is not None and not isinstance(orbit, Orbit):
            raise InputError(f"orbit must be an Orbit, such as equiflock.Orbit(), or None; got {short(orbit)}")
        self._orbit = orbit
        numbers = STAND_STILL if orbit is None else orbit.numbers
        self._rules = self.obstacles == "nearest", orbit is not None, numbers

    def hear(
        self, flock: Flock, flying: Bool[np.ndarray, " B"] | None = None, ranks: Int64[np.ndarray, " N"] | None = None
    ) -> Messages:
        """Let a time step pass and return Z(t), (B, N, K, 3, D).

        Args:
            flock: the agents now.
            flying: (B,), which flocks are; the others cost nothing and know nothing: zeros.
            ranks: (N,), for a single large flock whose agents do not stand in their order in memory: the number of
                each. An agent adds up whom it hears within a cell in the order of their numbers.
        """
        B, N, D = check_flock(flock).shape
        if self._now is None or self._before is None:
            self._now, self._before = (np.zeros((B, N, self.hops, 3, D), np.float32) for _ in range(2))
        elif self._now.shape != (B, N, self.hops, 3, D):
            raise InputError(f"the flock must stay {self._now.shape[:2]}; got {flock.shape[:2]}: use replace")
        self._now, self._before = self._before, self._now
        active = np.arange(B) if flying is None else np.flatnonzero(flying)
        if len(active) < B:
            self._now[~flying] = 0.0  # type: ignore[operator]
        now, before = (z.reshape(B, N, -1) for z in (self._now, self._before))
        if len(active) == 0:
            pass
        elif self.neighbourhood == "frozen":
            self._hear_frozen(flock, active, before, now)
        elif N <= SMALL_FLOCK:
            self._hear_flocks(flock, active, before, now)
        else:
            for b in active:
                self._hear_large(flock, b, before[b], now[b], ranks)
        return self._now

    def _radius_of(self, flock: Flock) -> float:
        return flock.comm_radius if self.radius is None else self.radius

    @property
    def fixed_graph(self) -> Graph | None:
        """Who hears whom for ever, in a frozen neighbourhood; None in a moving one, or before anybody heard."""
        return self._graph

    @property
    def order(self) -> Int64[np.ndarray, " N"] | None:
        """The agents of the last large flock that was heard, cell by cell."""
        return None if self._memory is None else self._memory[0][0].view(np.int64)

    def renumber(self, order: Int64[np.ndarray, " N"]) -> None:
        """Go on with the same agents in another order: the s-th is the one that was number order[s]."""
        if self._now is not None and self._before is not None:
            self._now, self._before = self._now[:, order], self._before[:, order]
        self._memory = None  # its order is that of the old numbers

    def replace(self, flock: Flock, keep: Bool[np.ndarray, " N"]) -> None:
        """Go on with another flock: its first agents are the kept ones, whose histories follow them."""
        kept = int(keep.sum())
        B, N, D = flock.shape
        for name in ("_now", "_before"):
            old = getattr(self, name)
            if old is not None:
                new = np.zeros((B, N, self.hops, 3, D), np.float32)
                new[:, :kept] = old[:, keep]
                setattr(self, name, new)
        if self._graph is not None:
            self._graph = self._graph.among(keep, N)
        self._memory = None

    def _hear_flocks(self, flock: Flock, active: Array, before: Array, now: Array) -> None:
        parts = split_flocks(len(active), flock.shape[1])
        state = flock.positions, flock.velocities, flock.roles, before
        rest = self._rules, self._radius_of(flock), self.one_hop == "mean", now
        if not all(threads.share(hear_flocks, [(*state, *rest, active[slice(*part)]) for part in parts])):
            raise out_of_range()

    def _hear_large(self, flock: Flock, b: Index, before: Array, now: Array, ranks: Array | None) -> None:
        N, radius = flock.shape[1], self._radius_of(flock)
        if self._memory is None or len(self._memory[1][0]) != N:
            self._memory = cell_list(N), make_records(N, before.shape[1], flock.shape[2])
        (order, starts, bucket), records = self._memory
        positions, velocities, roles = flock.positions[b], flock.velocities[b], flock.roles[b]
        shape = sort_into_cells(positions, radius, order, starts, bucket)
        if shape[0] == 0:
            raise out_of_range()
        parts = threads.split(N, AGENTS_PER_THREAD)
        buckets = shape[0] * shape[1] * shape[2]
        cuts = np.searchsorted(starts[: buckets + 1], np.array([last for _, last in parts[:-1]], np.uintp)).tolist()
        bounds = list(zip([0, *cuts], [*cuts, buckets], strict=True))
        if ranks is not None:
            threads.share(order_by_rank, [(order, starts, ranks, *part) for part in bounds])
        source = positions, velocities, before, order, records
        if not all(threads.share(gather_records, [(*source, *part) for part in parts])):
            raise out_of_range()
        numbers = np.empty(0, np.int64) if ranks is None else ranks
        common = records, roles, (order, starts, shape, numbers), self._rules, radius, self.one_hop == "mean", now
        threads.share(hear_cells, [(*common, *part) for part in bounds])

    def _hear_frozen(self, flock: Flock, active: Array, before: Array, now: Array) -> None:
        if self._graph is None:
            self._graph = radius_graph(flock, self._radius_of(flock))
        parts = split_flocks(len(active), flock.shape[1])
        state = flock.positions, flock.velocities, flock.roles, before
        graph = self._graph.starts, self._graph.senders.view(np.uintp)
        rest = *graph, self._rules, self.one_hop == "mean", now
        if not all(threads.share(hear_listed, [(*state, *rest, active[slice(*part)]) for part in parts])):
            raise out_of_range()
