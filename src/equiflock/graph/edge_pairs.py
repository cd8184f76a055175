"""Sets of edges (receiver, sender) of one flock: differences, and edges in both directions as pairs.

Both functions take time O(N + edges) and need edges sorted by receiver, as `Graph.edges` returns them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int64

from equiflock._runtime.jit import Array, kernel

Edges = Int64[np.ndarray, "edges 2"]
"""Messages as rows (receiver, sender), sorted by receiver."""


class EdgePairs(NamedTuple):
    """Edges with one row for two agents that receive from each other."""

    pairs: Edges
    """Rows (receiver, sender); the sender receives from the receiver, too, if it can receive at all."""
    singles: Edges
    """Rows (receiver, sender) whose sender could receive from the receiver, but does not."""


def subtract_edges(edges: Edges, others: Edges, agents: int) -> Edges:
    """Return the edges that are not among the others, in their order; `agents` is N."""
    is_kept = np.empty(len(edges), np.bool_)
    _mark_missing(edges, others, np.full(agents, -1, np.int64), is_kept)
    return np.asarray(edges[is_kept])


def pair_edges(edges: Edges, can_receive: Bool[np.ndarray, " N"]) -> EdgePairs:
    """Return the edges in pairs; `can_receive` says which agents receive messages at all, as all receivers do."""
    starts = np.zeros(len(can_receive) + 1, np.int64)
    np.cumsum(np.bincount(edges[:, 1], minlength=len(can_receive)), out=starts[1:])
    is_pair, is_single = np.empty(len(edges), np.bool_), np.empty(len(edges), np.bool_)
    _find_pairs(edges, starts, can_receive, is_pair, is_single)
    return EdgePairs(edges[is_pair], edges[is_single])


@kernel
def _mark_missing(edges: Array, others: Array, marks: Array, is_kept: Array) -> None:
    """Set is_kept[e] to whether edge e is not among the others; marks (N,) must be -1 at first."""
    other = 0
    for e in range(edges.shape[0]):
        receiver, sender = edges[e, 0], edges[e, 1]
        # Mark the senders that the receiver has among the others.
        while other < others.shape[0] and others[other, 0] <= receiver:
            if others[other, 0] == receiver:
                marks[others[other, 1]] = receiver
            other += 1
        is_kept[e] = marks[sender] != receiver


@kernel
def _find_pairs(edges: Array, starts: Array, can_receive: Array, is_pair: Array, is_single: Array) -> None:
    """Write which edges stand for a pair, and which are single; starts[j] counts the edges from senders below j."""
    N = can_receive.size
    # List the receivers of each sender.
    receivers, ends = np.empty(edges.shape[0], np.int64), starts[:N].copy()
    for e in range(edges.shape[0]):
        sender = edges[e, 1]
        receivers[ends[sender]] = edges[e, 0]
        ends[sender] += 1
    marks, last = np.full(N, -1, np.int64), -1
    for e in range(edges.shape[0]):
        i, j = edges[e, 0], edges[e, 1]
        # Mark those who receive from i.
        if i != last:
            for k in range(starts[i], starts[i + 1]):
                marks[receivers[k]] = i
            last = i
        # Of the two edges between agents that receive from each other, keep that of the smaller index.
        is_mutual = marks[j] == i
        is_pair[e] = i < j if is_mutual else not can_receive[j]
        is_single[e] = not is_mutual and can_receive[j]
