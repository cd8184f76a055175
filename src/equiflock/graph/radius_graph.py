"""The communication graph: the neighbours of each agent within the radius R, exactly.

Agent j is a neighbour of i if j != i and |r_i - r_j| <= R, decided in float64 as |r_i - r_j|^2 <= R^2 (section 2.3 of
the paper). Followers receive; leaders and obstacle agents only send. Of failed agents, stopped and drifting ones
receive nothing, and silent and stopped ones send nothing. Connectivity is that of working agents. The last functions
compare the groups of an agent's nearest neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int64

from equiflock._runtime import threads
from equiflock._runtime.jit import Array, Index, kernel
from equiflock._runtime.memory import as_read_only, check_fits_memory
from equiflock._runtime.threads import split_flocks
from equiflock.flock import FOLLOWER, NO_GROUP, OBSTACLE, Flock, Roles, Vectors, check_comm_radius, check_flock
from equiflock.graph.cell_list import (
    FlockBuffers,
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
        starts: (B * N + 1,), the neighbours of agent i of flock b are
            senders[starts[b * N + i] : starts[b * N + i + 1]].
        senders: (edges,), indices of agents within their flock.
        shape: (B, N).
    """

    starts: Int64[np.ndarray, " rows"]
    senders: Int64[np.ndarray, " edges"]
    shape: tuple[int, int]

    @classmethod
    def from_edges(
        cls, rows: Int64[np.ndarray, " edges"], senders: Int64[np.ndarray, " edges"], shape: tuple[int, int]
    ) -> Graph:
        """Return the graph of these edges; `rows`, b * N + i for receiver i of flock b, must be sorted."""
        starts = np.zeros(shape[0] * shape[1] + 1, np.int64)
        np.cumsum(np.bincount(rows, minlength=len(starts) - 1), out=starts[1:])
        return cls(starts, senders, shape)

    @property
    def rows(self) -> Int64[np.ndarray, " edges"]:
        """The receiver of each edge, b * N + i for agent i of flock b."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @property
    def degrees(self) -> Int64[np.ndarray, "B N"]:
        """|N_i|, the number of neighbours of each agent, (B, N)."""
        return np.diff(self.starts).reshape(self.shape)

    def neighbours(self, flock: int, agent: int) -> Int64[np.ndarray, " degree"]:
        """Return the indices of the agents from which `agent` receives."""
        B, N = self.shape
        row = range(B)[flock] * N + range(N)[agent]  # negative indices count from the end
        return self.senders[self.starts[row] : self.starts[row + 1]]

    def edges(self, flock: int) -> Int64[np.ndarray, "edges 2"]:
        """Return the edges of one flock as rows (receiver, sender)."""
        flock, N = range(self.shape[0])[flock], self.shape[1]
        senders = self.senders[self.starts[flock * N] : self.starts[(flock + 1) * N]]
        return np.stack([np.repeat(np.arange(N), self.degrees[flock]), senders], axis=1)

    def subgraph(self, keep: Bool[np.ndarray, " N"], agents: int) -> Graph:
        """Return the graph of the kept agents, renumbered in their order as the first of a flock of `agents` agents.

        Edges to or from other agents are dropped; the agents after the kept ones have no edges.
        """
        flock, receiver = np.divmod(self.rows, len(keep))
        new_index = np.cumsum(keep) - 1
        stays = keep[receiver] & keep[self.senders]
        rows = flock[stays] * agents + new_index[receiver[stays]]
        return Graph.from_edges(rows, new_index[self.senders[stays]], (self.shape[0], agents))

    def select_flocks(self, which: Bool[np.ndarray, " B"]) -> Graph:
        """Return the graph of the flocks where `which` is True."""
        flock, receiver = np.divmod(self.rows, self.shape[1])
        stays = which[flock]
        rows = (np.cumsum(which) - 1)[flock[stays]] * self.shape[1] + receiver[stays]
        return Graph.from_edges(rows, self.senders[stays], (int(which.sum()), self.shape[1]))

    def replace_flocks(self, which: Bool[np.ndarray, " B"], other: Graph) -> Graph:
        """Return the graph with the edges of another graph of the same shape in the flocks where `which` is True."""
        # Rows of these flocks come from the other graph; a stable sort keeps the order of senders within a row.
        N = self.shape[1]
        own, others = ~which[self.rows // N], which[other.rows // N]
        rows = np.concatenate([self.rows[own], other.rows[others]])
        senders, order = np.concatenate([self.senders[own], other.senders[others]]), np.argsort(rows, kind="stable")
        return Graph.from_edges(rows[order], senders[order], self.shape)

    def renumber_agents(self, agent_ids: Int64[np.ndarray, " N"]) -> Graph:
        """Return the graph in which agent s of every flock has the index agent_ids[s], with sorted lists of senders."""
        flock, receiver = np.divmod(self.rows, self.shape[1])
        rows, senders = flock * self.shape[1] + agent_ids[receiver], agent_ids[self.senders]
        order = np.lexsort((senders, rows))
        return Graph.from_edges(rows[order], senders[order], self.shape)

    def drop_senders(self, muted: Bool[np.ndarray, "B N"]) -> Graph:
        """Return the graph without edges from the muted agents, (B, N)."""
        rows = self.rows
        is_sent = ~muted[rows // self.shape[1], self.senders]
        return Graph.from_edges(rows[is_sent], self.senders[is_sent], self.shape)


class Connectivity(NamedTuple):
    """Degrees and connected components of B flocks."""

    degrees: Int64[np.ndarray, "B N"]
    """|N_i| of every agent."""
    labels: Int64[np.ndarray, "B N"]
    """Component labels 0, 1, .. by their first agents; -1 for obstacle agents."""


class ConnectivityBuffers(NamedTuple):
    """Memory of one thread for `compute_flock_connectivity`."""

    flock: FlockBuffers
    parents: Array
    """(N,) uintp: a union-find forest."""


def radius_graph(flock: Flock, comm_radius: float | None = None) -> Graph:
    """Return the exact communication graph, with no cap on neighbours.

    Only followers have neighbours; stopped and drifting agents have none, and silent and stopped agents are not
    senders. Coincident agents (|r_ij| = 0) are neighbours like any others. Lists of senders are not sorted. Memory is
    O(N + edges). Raise NumericRangeError if a position is out of range, and InputError if the machine lacks the memory.

    Args:
        flock: the agents now.
        comm_radius: R; default: that of the flock.
    """
    comm_radius = check_flock(flock).comm_radius if comm_radius is None else check_comm_radius(comm_radius)
    # Count first, to size the list of senders and each receiver's part of it; then list.
    roles = flock.roles if flock.all_working else flock.effective_roles
    degrees, _ = compute_connectivity(flock, comm_radius, roles)
    starts = np.concatenate([[0], np.cumsum(degrees)])
    advice = "spread the agents out, or lower comm_radius or agents"
    check_fits_memory(f"a graph of {starts[-1]:,} edges", 8 * int(starts[-1]), advice)
    senders = np.empty(starts[-1], np.int64)
    run_over_flocks(
        _list_neighbours, flock, flock.positions, as_read_only(roles), comm_radius, starts.astype(np.uintp), senders
    )
    graph = Graph(starts, senders, flock.shape[:2])
    return graph if flock.all_working else graph.drop_senders(flock.muted)


def components(flock: Flock, comm_radius: float | None = None) -> Int64[np.ndarray, "B N"]:
    """Return the connected component of each agent, (B, N), numbered 0, 1, .. by their first agents.

    An edge joins two agents if at least one receives from the other within R (default: the flock's), so two leaders are
    not joined directly. Obstacle agents and failed agents belong to no component (-1) and join no others: the graph is
    that of the positions of working agents.
    """
    # Failed agents are left out as obstacle agents are.
    all_working = check_flock(flock).all_working
    roles = flock.roles if all_working else np.where(flock.working, flock.roles, np.int8(OBSTACLE))
    return compute_connectivity(flock, comm_radius, roles).labels


def compute_connectivity(flock: Flock, comm_radius: float | None = None, roles: Roles | None = None) -> Connectivity:
    """Return degrees and component labels, each (B, N), without listing the edges; memory is O(N).

    The degree of a follower counts all agents within R, obstacle agents too; that of others is 0. Labels are as in
    `components`, but failed agents count like working ones: their conditions are ignored. Raise NumericRangeError if
    a position is out of range.

    Args:
        flock: the agents now.
        comm_radius: R; default: that of the flock.
        roles: (B, N), instead of those of the flock, for example to leave out failed agents.
    """
    comm_radius = check_flock(flock).comm_radius if comm_radius is None else check_comm_radius(comm_radius)
    degrees, labels = np.empty(flock.shape[:2], np.int64), np.empty(flock.shape[:2], np.int64)
    # Read-only, as the arrays of a flock are, so that kernels compile once.
    counted = flock.roles if roles is None else as_read_only(roles)
    run_over_flocks(_compute_flocks_connectivity, flock, flock.positions, counted, comm_radius, degrees, labels)
    return Connectivity(degrees, labels)


def label_components(graph: Graph, member: Bool[np.ndarray, "B N"]) -> Int64[np.ndarray, "B N"]:
    """Return the component labels (B, N) of members, joined by edges of either direction between members.

    Labels are 0, 1, .. in the order of the first agents of components; -1 for other agents.
    """
    labels = np.where(member, np.int64(0), np.int64(-1))
    _label_graph(graph.starts, graph.senders, member, labels)
    return labels


def run_over_flocks(kernel: Any, flock: Flock, *arguments: Any) -> None:
    """Call `kernel(*arguments, first, last)` for ranges of flocks first .. last - 1 that cover all, on several threads.

    Raise NumericRangeError if a kernel returns False, as positions are out of range.
    """
    parts = split_flocks(*flock.shape[:2])
    if not all(threads.run_parallel(kernel, [(*arguments, *part) for part in parts])):
        raise make_out_of_range_error()


@kernel
def find_root(parent: Array, i: Index) -> Index:
    """Return the representative of i's set in a union-find forest, and shorten the path to it in place."""
    while parent[i] != i:
        parent[i] = parent[parent[i]]  # path halving shortens the next search
        i = parent[i]
    return i


@kernel
def unite(parent: Array, i: Index, j: Index) -> None:
    """Unite the sets of i and j; the smallest index represents them."""
    a, b = find_root(parent, i), find_root(parent, j)
    parent[max(a, b)] = min(a, b)


@kernel
def _number_sets(parent: Array, labels: Array) -> None:
    """Write the labels (N,) of a union-find forest, 0, 1, .. by the smallest agents of sets; labels below 0 stay."""
    next_label = 0
    for i in range(np.uintp(labels.size)):
        if labels[i] < 0:
            continue
        # The smallest agent represents its set, and so comes before the others.
        root = find_root(parent, i)
        if root == i:
            labels[i] = next_label
            next_label += 1
        else:
            labels[i] = labels[root]


@kernel
def _label_graph(starts: Array, senders: Array, member: Array, labels: Array) -> None:
    """Write the labels of all flocks, which are 0 for members and -1 for others before."""
    B, N = member.shape
    for b in range(B):
        parent = np.arange(N).astype(np.uintp)
        for i in range(N):
            for e in range(starts[b * N + i], starts[b * N + i + 1]):
                if member[b, i] and member[b, senders[e]]:
                    unite(parent, np.uintp(i), np.uintp(senders[e]))
        _number_sets(parent, labels[b])


@kernel
def make_connectivity_buffers(N: Index) -> ConnectivityBuffers:
    """Allocate a thread's memory for flocks of N agents."""
    return ConnectivityBuffers(make_flock_buffers(N), np.empty(N, np.uintp))


@kernel
def compute_flock_connectivity(
    positions: Array, roles: Array, comm_radius: float, degrees: Array, labels: Array, buffers: ConnectivityBuffers
) -> bool:
    """Write degrees and component labels, each (N,), of one flock; return False if its positions are out of range.

    Degrees are 0 for all but followers; labels are -1 for obstacle agents.
    """
    parent = buffers.parents
    (order, starts, _), sorted_positions, runs, neighbours = buffers.flock
    shape = sort_flock(positions, comm_radius, buffers.flock)
    if shape[0] == 0:
        return False
    # Each agent is a set until an edge joins it to another.
    for i in range(np.uintp(positions.shape[0])):
        parent[i] = i
        labels[i] = -1 if roles[i] == OBSTACLE else 0
    # The in-degree |N_i| of every follower, and its edges to agents other than obstacle agents.
    for c in range(shape[0] * shape[1] * shape[2]):
        count = list_nearby_runs(c, shape, starts, runs)
        for s in range(starts[c], starts[c + 1]):
            i = order[s]
            degree = select_neighbours(s, sorted_positions, comm_radius * comm_radius, runs, count, neighbours)
            degrees[i] = degree if roles[i] == FOLLOWER else 0
            if roles[i] != FOLLOWER:
                continue
            for n in range(degree):
                j = order[neighbours[n]]
                if roles[j] != OBSTACLE:
                    unite(parent, i, j)
    _number_sets(parent, labels)
    return True


@kernel
def _compute_flocks_connectivity(
    positions: Vectors, roles: Roles, comm_radius: float, degrees: Array, labels: Array, first: Index, last: Index
) -> bool:
    """Write degrees and labels, (B, N), of flocks first .. last - 1; return False if positions are out of range."""
    buffers = make_connectivity_buffers(positions.shape[1])  # once for all flocks of this thread
    for b in range(first, last):
        if not compute_flock_connectivity(positions[b], roles[b], comm_radius, degrees[b], labels[b], buffers):
            return False
    return True


@kernel
def _list_neighbours(
    positions: Vectors, roles: Roles, comm_radius: float, begins: Array, senders: Array, first: Index, last: Index
) -> bool:
    """Write the neighbours of each follower i of flocks b = first .. last - 1 into senders[begins[b * N + i] :].

    Positions must be in range. Return True.
    """
    N = positions.shape[1]
    buffers = make_flock_buffers(N)
    (order, starts, _), sorted_positions, runs, neighbours = buffers
    for b in range(first, last):
        # The count of neighbours has refused positions out of range already.
        shape = sort_flock(positions[b], comm_radius, buffers)
        for c in range(shape[0] * shape[1] * shape[2]):
            count = list_nearby_runs(c, shape, starts, runs)
            for s in range(starts[c], starts[c + 1]):
                i = order[s]
                if roles[b, i] == FOLLOWER:
                    degree = select_neighbours(s, sorted_positions, comm_radius * comm_radius, runs, count, neighbours)
                    for n in range(degree):
                        senders[begins[np.uintp(b * N) + i] + n] = order[neighbours[n]]
    return True


def has_own_group_majority(flock: Flock, nearest: int) -> Bool[np.ndarray, "B N"]:
    """Return whether more than half of each agent's nearest neighbours are of its group, (B, N).

    Up to `nearest` agents within R count; ties in distance are broken arbitrarily. Obstacle agents and failed agents do
    not count. False for them, and for agents without neighbours.
    """
    has_majority = np.zeros(flock.shape[:2], bool)
    # Failed agents are in no group, as obstacle agents are.
    groups = np.where(flock.working, flock.groups, np.int32(NO_GROUP))
    run_over_flocks(_compare_groups, flock, flock.positions, groups, flock.comm_radius, np.intp(nearest), has_majority)
    return has_majority


@kernel
def _compare_groups(
    positions: Array, groups: Array, comm_radius: float, nearest: Index, has_majority: Array, first: Index, last: Index
) -> bool:
    """Write whether most of each agent's nearest neighbours are of its group, for flocks first .. last - 1.

    Of the agents within `comm_radius` that have a group, the `nearest` closest count; more than half must be of the
    agent's group. `has_majority` (B, N) is not written for agents without a group. Return False, with the rest
    unwritten, if a position is not finite or too far from the origin for the grid of cells.
    """
    _, N, D = positions.shape
    buffers = make_flock_buffers(N)
    (order, starts, _), sorted_positions, runs, neighbours = buffers
    squares, nearest_groups = np.empty(nearest), np.empty(nearest, np.int32)
    for b in range(first, last):
        shape = sort_flock(positions[b], comm_radius, buffers)
        if shape[0] == 0:
            return False
        for c in range(shape[0] * shape[1] * shape[2]):
            count = list_nearby_runs(c, shape, starts, runs)
            for s in range(starts[c], starts[c + 1]):
                i = order[s]
                if groups[b, i] == NO_GROUP:
                    continue
                # Insert each candidate into the nearest so far, sorted by distance.
                kept = 0
                degree = select_neighbours(s, sorted_positions, comm_radius * comm_radius, runs, count, neighbours)
                for h in range(degree):
                    j = order[neighbours[h]]
                    if groups[b, j] == NO_GROUP:
                        continue
                    square = 0.0
                    for d in range(D):
                        square += (positions[b, i, d] - positions[b, j, d]) ** 2
                    at = kept
                    while at > 0 and squares[at - 1] > square:
                        if at < nearest:
                            squares[at], nearest_groups[at] = squares[at - 1], nearest_groups[at - 1]
                        at -= 1
                    if at < nearest:
                        squares[at], nearest_groups[at] = square, groups[b, j]
                        kept = min(kept + 1, nearest)
                # More than half of them must be of the agent's group.
                own = 0
                for n in range(kept):
                    own += nearest_groups[n] == groups[b, i]
                has_majority[b, i] = 2 * own > kept
    return True
