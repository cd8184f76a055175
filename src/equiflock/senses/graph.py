"""The communication graph: who hears whom within the radius R, exactly.

Agent i hears j when j != i and |r_i - r_j| <= R, decided in float64 as |r_i - r_j|^2 <= R^2 (section 2.3 of
the paper). Only followers hear; leaders and obstacle agents are heard. Of agents that have failed, stopped and drifting
ones hear nobody, and nobody hears silent and stopped ones. Connectivity is counted among agents that work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from equiflock.flock import FOLLOWER, OBSTACLE, Flock, Roles, Vectors, check_flock
from equiflock.runtime import threads
from equiflock.runtime.arrays import as_read_only
from equiflock.runtime.checks import check_positive
from equiflock.runtime.jit import Array, Index, kernel
from equiflock.runtime.threads import split_flocks
from equiflock.senses.cell_list import (
    list_nearby_runs,
    make_flock_buffers,
    make_out_of_range_error,
    select_neighbours,
    sort_flock,
)


@dataclass(frozen=True, eq=False)
class Graph:
    """The communication graph of B flocks, as lists of in-neighbours.

    Attributes:
        starts: (B * N + 1,), agent i of flock b hears senders[starts[b * N + i] : starts[b * N + i + 1]].
        senders: (edges,), indices of agents within their flock.
        shape: (B, N).
    """

    starts: Int64[np.ndarray, " rows"]
    senders: Int64[np.ndarray, " edges"]
    shape: tuple[int, int]

    @property
    def degrees(self) -> Int64[np.ndarray, "B N"]:
        """How many agents each agent hears, (B, N)."""
        return np.diff(self.starts).reshape(self.shape)

    def neighbours(self, flock: int, agent: int) -> Int64[np.ndarray, " degree"]:
        """The agents that an agent hears, by their indices."""
        B, N = self.shape
        row = range(B)[flock] * N + range(N)[agent]  # indices like a list's
        return self.senders[self.starts[row] : self.starts[row + 1]]

    def edges(self, flock: int) -> Int64[np.ndarray, "edges 2"]:
        """The edges of one flock as rows (receiver, sender)."""
        flock, N = range(self.shape[0])[flock], self.shape[1]
        # The list of receiver i has degrees[i] senders, and lists stand one after the other.
        receivers = np.repeat(np.arange(N), self.degrees[flock])
        senders = self.senders[self.starts[flock * N] : self.starts[(flock + 1) * N]]
        return np.stack([receivers, senders], axis=1)

    def subgraph(self, keep: Bool[np.ndarray, " N"], agents: int) -> Graph:
        """The graph among the kept agents, which come first in a flock of `agents`."""
        # The new number of every kept agent, and each edge as (flock, receiver, sender).
        B, _ = self.shape
        position = np.cumsum(keep) - 1
        receivers = np.repeat(np.arange(self.degrees.size), self.degrees.ravel())
        flock, receiver = np.divmod(receivers, len(keep))
        # An edge stays if both of its ends do; the counts of edges by receiver are summed to where each list starts.
        stays = keep[receiver] & keep[self.senders]
        rows = flock[stays] * agents + position[receiver[stays]]
        starts = np.zeros(B * agents + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=B * agents), out=starts[1:])
        return Graph(starts, position[self.senders[stays]], (B, agents))

    def select_flocks(self, which: Bool[np.ndarray, " B"]) -> Graph:
        """The graph of some of the flocks."""
        rows = np.repeat(which, self.shape[1])
        starts = np.concatenate([[0], np.cumsum(np.diff(self.starts)[rows])])
        senders = self.senders[np.repeat(rows, np.diff(self.starts))]
        return Graph(starts, senders, (int(which.sum()), self.shape[1]))

    def renumber_agents(self, agent_ids: Int64[np.ndarray, " N"]) -> Graph:
        """The graph in which agent s has the number ranks[s], in every flock."""
        B, N = self.shape
        flock, receiver = np.divmod(np.repeat(np.arange(B * N), self.degrees.ravel()), N)
        rows, senders = flock * N + agent_ids[receiver], agent_ids[self.senders]
        # The lists of receivers stand in the order of their new numbers.
        order = np.lexsort((senders, rows))
        starts = np.zeros_like(self.starts)
        np.cumsum(np.bincount(rows, minlength=B * N), out=starts[1:])
        return Graph(starts, senders[order], self.shape)

    def drop_senders(self, muted: Bool[np.ndarray, "B N"]) -> Graph:
        """The graph in which nobody hears the muted agents, (B, N)."""
        # The row of each edge's receiver, which tells the flock that its sender is in.
        rows = np.repeat(np.arange(self.degrees.size), self.degrees.ravel())
        heard = ~muted[rows // self.shape[1], self.senders]
        starts = np.zeros_like(self.starts)
        np.cumsum(np.bincount(rows[heard], minlength=self.degrees.size), out=starts[1:])
        return Graph(starts, self.senders[heard], self.shape)


def radius_graph(flock: Flock, comm_radius: float | None = None) -> Graph:
    """The exact communication graph, with no cap on neighbours, for communication radius R, the flock's if left out.

    Memory is O(N + edges). Coincident agents (|r_ij| = 0) hear each other like any others.
    """
    comm_radius = check_flock(flock).comm_radius if comm_radius is None else check_positive("comm_radius", comm_radius)
    # First count, so that the list of senders has the right length and each receiver its own part of it; then list.
    roles = flock.roles if flock.all_working else flock.effective_roles
    degrees, _ = compute_connectivity(flock, comm_radius, roles)
    starts = np.zeros(degrees.size + 1, np.int64)
    np.cumsum(degrees.ravel(), out=starts[1:])
    senders = np.empty(starts[-1], np.int64)
    run_over_flocks(
        _list_neighbours, flock, flock.positions, as_read_only(roles), comm_radius, starts.astype(np.uintp), senders
    )
    graph = Graph(starts, senders, flock.shape[:2])
    return graph if flock.all_working else graph.drop_senders(flock.muted)


def components(flock: Flock, comm_radius: float | None = None) -> Int64[np.ndarray, "B N"]:
    """Which connected component each agent belongs to, (B, N), numbered 0, 1, .. by their first agents.

    Two agents of the flock are joined when at least one hears the other within R, the flock's if left out, so two
    leaders are not joined directly. Obstacle agents and agents that have failed belong to no component, -1, and join
    nobody: the graph is that of agents that work, by where they are.
    """
    # Failed agents count for as little here as obstacle agents do.
    all_working = check_flock(flock).all_working
    roles = flock.roles if all_working else np.where(flock.working, flock.roles, np.int8(OBSTACLE))
    return compute_connectivity(flock, comm_radius, roles)[1]


def compute_connectivity(
    flock: Flock, comm_radius: float | None = None, roles: Roles | None = None
) -> tuple[Int64[np.ndarray, "B N"], Int64[np.ndarray, "B N"]]:
    """Degrees and component labels, both (B, N), without listing the edges: memory O(N).

    Args:
        flock: the agents now.
        comm_radius: R, that of the flock if left out.
        roles: (B, N), in place of the flock's, whatever condition agents are in.
    """
    comm_radius = check_flock(flock).comm_radius if comm_radius is None else check_positive("comm_radius", comm_radius)
    degrees = np.empty(flock.shape[:2], np.int64)
    labels = np.empty(flock.shape[:2], np.int64)
    # Read-only, as the arrays of a flock are, so that kernels are compiled once.
    counted = flock.roles if roles is None else as_read_only(roles)
    run_over_flocks(_compute_flocks_connectivity, flock, flock.positions, counted, comm_radius, degrees, labels)
    return degrees, labels


def run_over_flocks(kernel: Any, flock: Flock, *arguments: Any) -> None:
    """Run `kernel(*arguments, first, last) -> bool` over all flocks on several threads; False is bad input."""
    parts = split_flocks(*flock.shape[:2])
    if not all(threads.run_parallel(kernel, [(*arguments, *part) for part in parts])):
        raise make_out_of_range_error()


@kernel
def find_root(parent: Array, i: Index) -> Index:
    """The representative of i's set in a union-find forest, in which every agent points towards that of its set."""
    while parent[i] != i:
        parent[i] = parent[parent[i]]  # halve the path, so that the next search is shorter
        i = parent[i]
    return i


@kernel
def unite(parent: Array, i: Index, j: Index) -> None:
    """Unite the sets of i and j; the smallest index represents them."""
    a, b = find_root(parent, i), find_root(parent, j)
    parent[max(a, b)] = min(a, b)


@kernel
def make_connectivity_buffers(N: Index) -> Any:
    """Memory for `compute_flock_connectivity`: cells, and a union-find forest."""
    return make_flock_buffers(N), np.empty(N, np.uintp)


@kernel
def compute_flock_connectivity(
    positions: Array, roles: Array, comm_radius: float, degrees: Array, labels: Array, memory: Any
) -> bool:
    """Degrees and component labels, each (N,), of one flock; False if its positions are out of range."""
    cells, parent = memory
    (order, starts, _), sorted_positions, (runs, hits) = cells
    shape = sort_flock(positions, comm_radius, cells)
    if shape[0] == 0:
        return False
    # Each agent is a set by itself until an edge joins it to another.
    N = np.uintp(positions.shape[0])
    for i in range(N):
        parent[i] = i
    # The in-degree |N_i| of every follower, and the edges to agents that are no obstacles.
    for c in range(shape[0] * shape[1] * shape[2]):
        count = list_nearby_runs(c, shape, starts, runs)
        for s in range(starts[c], starts[c + 1]):
            i = order[s]
            heard = select_neighbours(s, sorted_positions, comm_radius * comm_radius, runs, count, hits)
            degrees[i] = heard if roles[i] == FOLLOWER else 0
            if roles[i] != FOLLOWER:
                continue
            for h in range(heard):
                j = order[hits[h]]
                if roles[j] != OBSTACLE:
                    unite(parent, i, j)
    # Number the sets by their smallest agents, which represent them, so they come before all others.
    following = 0
    for i in range(N):
        root = find_root(parent, i)
        if roles[i] == OBSTACLE:
            labels[i] = -1
        elif root == i:
            labels[i] = following
            following += 1
        else:
            labels[i] = labels[root]
    return True


@kernel
def _compute_flocks_connectivity(
    positions: Vectors, roles: Roles, comm_radius: float, degrees: Array, labels: Array, first: Index, last: Index
) -> bool:
    """Degrees and component labels, each (B, N), of flocks first .. last; False if one is out of range."""
    memory = make_connectivity_buffers(positions.shape[1])  # once for all flocks of this thread
    for b in range(first, last):
        if not compute_flock_connectivity(positions[b], roles[b], comm_radius, degrees[b], labels[b], memory):
            return False
    return True


@kernel
def _list_neighbours(
    positions: Vectors, roles: Roles, comm_radius: float, begins: Array, senders: Array, first: Index, last: Index
) -> bool:
    """Write into senders, from begins[b * N + i] on, whom agent i of each of the flocks first .. last hears."""
    N = positions.shape[1]
    # Once for all flocks of this thread.
    memory = make_flock_buffers(N)
    (order, starts, _), sorted_positions, (runs, hits) = memory
    for b in range(first, last):
        # Positions that are out of range were refused when neighbours were counted.
        shape = sort_flock(positions[b], comm_radius, memory)
        for c in range(shape[0] * shape[1] * shape[2]):
            count = list_nearby_runs(c, shape, starts, runs)
            for s in range(starts[c], starts[c + 1]):
                i = order[s]
                if roles[b, i] == FOLLOWER:
                    heard = select_neighbours(s, sorted_positions, comm_radius * comm_radius, runs, count, hits)
                    for h in range(heard):
                        senders[begins[np.uintp(b * N) + i] + h] = order[hits[h]]
    return True
