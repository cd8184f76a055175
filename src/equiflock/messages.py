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
from equiflock.cells import (
    FASTEST,
    cell_list,
    into_cell_order,
    order_by_rank,
    out_of_range,
    runs_around,
    select_heard,
    sort_into_cells,
    workspace,
)
from equiflock.graph import AGENTS_PER_THREAD, FOLLOWER, OBSTACLE, SMALL_FLOCK, Graph, radius_graph, split_flocks
from equiflock.kernels import Array, Index, inlined, kernel
from equiflock.orbit import STAND_STILL, Orbit, hear_obstacles
from equiflock.types import (
    Flock,
    InputError,
    Messages,
    Neighbourhood,
    OneHop,
    check_choice,
    check_count,
    check_positive,
)

Obstacles = Literal["nearest", "all"]

SHORTEST = 1e-8
"""In psi, |r_ij| counts as at least this: coincident agents push each other nowhere, and nothing overflows."""


def messages(flock: Flock, *, radius: float = 1.0, hops: int = 3, one_hop: OneHop = "mean") -> Messages:
    """What every agent of a flock with no past knows, (B, N, K, 3, D): z^1 at hop index 0, zeros beyond.

    Args:
        flock: the agents now.
        radius: the communication radius R.
        hops: K >= 1.
        one_hop: whether z^1 is the sum or the mean over the agents heard.

    Coincident agents hear each other: v_ij counts in full, the two position channels are exactly zero (psi is
    computed with max(|r_ij|, 1e-8) in place of |r_ij|).
    """
    return DelayedAggregation(radius=radius, hops=hops, one_hop=one_hop).hear(flock)


class DelayedAggregation:
    """The memory of a flock in flight: `hear` it once per time step and get what every agent knows.

    Args:
        radius: the communication radius R.
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
        radius: float,
        hops: int,
        one_hop: OneHop,
        neighbourhood: Neighbourhood = "moving",
        orbit: Orbit | None = None,
        obstacles: Obstacles = "nearest",
    ) -> None:
        self.radius = check_positive("radius", radius)
        self.hops = check_count("hops", hops)
        self.one_hop = check_choice("one_hop", one_hop, ("sum", "mean"))
        self.neighbourhood = check_choice("neighbourhood", neighbourhood, ("moving", "frozen"))
        self.orbit = orbit
        self.obstacles = check_choice("obstacles", obstacles, ("nearest", "all"))
        self._rules = obstacles == "nearest", orbit is not None, STAND_STILL if orbit is None else orbit.numbers
        self._now: Messages | None = None
        self._before: Messages | None = None
        self._graph: Graph | None = None
        self._memory: tuple[Any, ...] | None = None

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
        B, N, D = flock.shape
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
            self._graph = _renumber(self._graph, keep, N)
        self._memory = None

    def _hear_flocks(self, flock: Flock, active: Array, before: Array, now: Array) -> None:
        parts = split_flocks(len(active), flock.shape[1])
        state = flock.positions, flock.velocities, flock.roles, before
        rest = self._rules, self.radius, self.one_hop == "mean", now
        if not all(threads.share(_hear_flocks, [(*state, *rest, active[slice(*part)]) for part in parts])):
            raise out_of_range()

    def _hear_large(self, flock: Flock, b: Index, before: Array, now: Array, ranks: Array | None) -> None:
        N = flock.shape[1]
        if self._memory is None or len(self._memory[1][0]) != N:
            self._memory = cell_list(N), _records(N, before.shape[1], flock.shape[2])
        (order, starts, bucket), records = self._memory
        positions, velocities, roles = flock.positions[b], flock.velocities[b], flock.roles[b]
        shape = sort_into_cells(positions, self.radius, order, starts, bucket)
        if shape[0] == 0:
            raise out_of_range()
        parts = threads.split(N, AGENTS_PER_THREAD)
        buckets = shape[0] * shape[1] * shape[2]
        cuts = np.searchsorted(starts[: buckets + 1], np.array([last for _, last in parts[:-1]], np.uintp)).tolist()
        bounds = list(zip([0, *cuts], [*cuts, buckets], strict=True))
        if ranks is not None:
            threads.share(order_by_rank, [(order, starts, ranks, *part) for part in bounds])
        source = positions, velocities, before, order, records
        if not all(threads.share(_gather_records, [(*source, *part) for part in parts])):
            raise out_of_range()
        numbers = np.empty(0, np.int64) if ranks is None else ranks
        common = records, roles, (order, starts, shape, numbers), self._rules, self.radius, self.one_hop == "mean", now
        threads.share(_hear_cells, [(*common, *part) for part in bounds])

    def _hear_frozen(self, flock: Flock, active: Array, before: Array, now: Array) -> None:
        if self._graph is None:
            self._graph = radius_graph(flock, self.radius)
        parts = split_flocks(len(active), flock.shape[1])
        state = flock.positions, flock.velocities, flock.roles, before
        graph = self._graph.starts, self._graph.senders.view(np.uintp)
        rest = *graph, self._rules, self.one_hop == "mean", now
        if not all(threads.share(_hear_listed, [(*state, *rest, active[slice(*part)]) for part in parts])):
            raise out_of_range()


def _renumber(graph: Graph, keep: Bool[np.ndarray, " N"], agents: int) -> Graph:
    """The graph among the kept agents, which come first in a flock of `agents`."""
    B, _ = graph.shape
    position = np.cumsum(keep) - 1
    receivers = np.repeat(np.arange(graph.degrees.size), graph.degrees.ravel())
    flock, receiver = np.divmod(receivers, len(keep))
    stays = keep[receiver] & keep[graph.senders]
    rows = flock[stays] * agents + position[receiver[stays]]
    starts = np.zeros(B * agents + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=B * agents), out=starts[1:])
    return Graph(starts, position[graph.senders[stays]], (B, agents))


# Kernels. The records of a flock are (place, motion, past): place and motion are positions and velocities padded
# to three float64, past the first K - 1 hops of what each agent knew a step ago. In `before` and `now` an agent's
# K x 3 x D block is one row.


@kernel
def _records(N: Index, width: Index, D: Index) -> tuple[Array, Array, Array]:
    """Memory for the records of N agents that know `width` = K * 3 * D numbers each."""
    past = np.empty((N, width - 3 * D), np.float32)
    return np.empty((N, 3), np.float64), np.empty((N, 3), np.float64), past


@kernel
def _gather_records(
    positions: Array, velocities: Array, before: Array, order: Array, records: Any, first: Index, last: Index
) -> bool:
    """Copy agents first .. last into cell order; False if a vector is not finite or absurdly large."""
    place, motion, past = records
    into_cell_order(positions, order, place, first, last)
    into_cell_order(velocities, order, motion, first, last)
    fine = True
    for s in range(np.uintp(first), np.uintp(last)):
        for c in range(past.shape[1]):
            past[s, c] = before[order[s], c]
        for d in range(3):
            fine &= (abs(place[s, d]) <= FASTEST) & (abs(motion[s, d]) <= FASTEST)
    return fine


@inlined
def _tell(
    s: Index,
    i: Index,
    heard: Index,
    hits: Array,
    records: Any,
    mean: bool,
    D: Index,
    later: Array,
    now: Array,
    more_x: float,
    more_y: float,
) -> None:
    """Write into now[i] what agent i, whose record is s, learns from hits[:heard], added up in that order.

    (more_x, more_y) is added to the sum of v_ij.
    """
    place, motion, past = records
    x, y, z = place[s, 0], place[s, 1], place[s, 2]
    u, v, w = motion[s, 0], motion[s, 1], motion[s, 2]
    v0, v1, v2 = more_x, more_y, 0.0  # the sum of v_ij
    a0, a1, a2 = 0.0, 0.0, 0.0  # the sum of r_ij / |r_ij|^4
    b0, b1, b2 = 0.0, 0.0, 0.0  # the sum of r_ij / |r_ij|^2
    for c in range(later.size):
        later[c] = 0.0
    for h in range(heard):
        j = hits[h]
        dx, dy, dz = x - place[j, 0], y - place[j, 1], z - place[j, 2] if D == 3 else 0.0
        per_square = 1.0 / max(dx * dx + dy * dy + dz * dz, SHORTEST * SHORTEST)
        per_fourth = per_square * per_square
        v0, v1, v2 = v0 + (u - motion[j, 0]), v1 + (v - motion[j, 1]), v2 + (w - motion[j, 2])
        a0, a1, a2 = a0 + dx * per_fourth, a1 + dy * per_fourth, a2 + dz * per_fourth
        b0, b1, b2 = b0 + dx * per_square, b1 + dy * per_square, b2 + dz * per_square
        for c in range(later.size):
            later[c] += past[j, c]
    per_degree = 1.0 / float(max(heard, np.uintp(1)))
    scale = per_degree if mean else 1.0
    now[i, 0], now[i, 1] = v0 * scale, v1 * scale
    now[i, D], now[i, D + 1] = a0 * scale, a1 * scale
    now[i, 2 * D], now[i, 2 * D + 1] = b0 * scale, b1 * scale
    if D == 3:
        now[i, 2], now[i, 5], now[i, 8] = v2 * scale, a2 * scale, b2 * scale
    for c in range(later.size):
        now[i, 3 * D + c] = later[c] * np.float32(per_degree)


@inlined
def _hear_cells_of(
    D: Index,
    records: Any,
    roles: Array,
    cells: Any,
    rules: Any,
    radius: float,
    mean: bool,
    now: Array,
    first: Index,
    last: Index,
) -> None:
    order, starts, shape, ranks = cells
    place, motion, past = records
    runs, hits = workspace(place.shape[0])
    later = np.empty(past.shape[1], np.float32)
    obstacles = D == 2 and (roles == OBSTACLE).any()
    for c in range(first, last):
        if starts[c] == starts[c + 1]:
            continue
        count = runs_around(c, shape, starts, runs)
        for s in range(starts[c], starts[c + 1]):
            i = order[s]
            if roles[i] != FOLLOWER:
                now[i] = 0.0
                continue
            heard = select_heard(s, place, radius * radius, runs, count, hits, D)
            more_x, more_y = 0.0, 0.0
            if obstacles:
                heard, more_x, more_y = hear_obstacles(s, heard, hits, place, motion, roles, (order, ranks), rules)
            _tell(s, i, heard, hits, records, mean, D, later, now, more_x, more_y)


@kernel
def _hear_cells(
    records: Any, roles: Array, cells: Any, rules: Any, radius: float, mean: bool, now: Array, first: Index, last: Index
) -> None:
    """What the agents in buckets first .. last of one flock know, into `now` (N, K * 3 * D)."""
    # The constant lets the compiler leave the third coordinate out in the plane.
    if cells[2][2] == 1:
        _hear_cells_of(2, records, roles, cells, rules, radius, mean, now, first, last)
    else:
        _hear_cells_of(3, records, roles, cells, rules, radius, mean, now, first, last)


@kernel
def _hear_flocks(
    positions: Array,
    velocities: Array,
    roles: Array,
    before: Array,
    rules: Any,
    radius: float,
    mean: bool,
    now: Array,
    active: Array,
) -> bool:
    """What all agents of the active flocks know; False if one of them is out of range."""
    _, N, D = positions.shape
    order, starts, bucket = cell_list(N)
    unranked = np.empty(0, np.int64)
    records = _records(N, before.shape[2], D)
    for b in active:
        shape = sort_into_cells(positions[b], radius, order, starts, bucket)
        if shape[0] == 0 or not _gather_records(positions[b], velocities[b], before[b], order, records, 0, N):
            return False
        buckets = shape[0] * shape[1] * shape[2]
        cells = order, starts, shape, unranked
        _hear_cells(records, roles[b], cells, rules, radius, mean, now[b], 0, buckets)
    return True


@kernel
def _hear_listed(
    positions: Array,
    velocities: Array,
    roles: Array,
    before: Array,
    begins: Array,
    senders: Array,
    rules: Any,
    mean: bool,
    now: Array,
    active: Array,
) -> bool:
    """What all agents of the active flocks know if they hear the listed senders, at any distance."""
    _, N, D = positions.shape
    order, unranked = np.arange(N).astype(np.uintp), np.empty(0, np.int64)
    records = _records(N, before.shape[2], D)
    place, motion, past = records
    later = np.empty(past.shape[1], np.float32)
    for b in active:
        if not _gather_records(positions[b], velocities[b], before[b], order, records, 0, N):
            return False
        for i in range(np.uintp(N)):
            if roles[b, i] != FOLLOWER:
                now[b, i] = 0.0
                continue
            row = np.uintp(b * N) + i
            hits = senders[begins[row] : begins[row + np.uintp(1)]].copy()
            heard, more_x, more_y = np.uintp(hits.size), 0.0, 0.0
            if D == 2:
                heard, more_x, more_y = hear_obstacles(
                    i, heard, hits, place, motion, roles[b], (order, unranked), rules
                )
            _tell(i, i, heard, hits, records, mean, D, later, now[b], more_x, more_y)
    return True
