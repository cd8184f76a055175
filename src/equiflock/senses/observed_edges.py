"""The edges of the communication graph after the obstacle rule, for pictures."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from equiflock.flock import Flock
from equiflock.runtime.jit import Array, kernel
from equiflock.senses.cell_list import Numbering
from equiflock.senses.graph import Graph, radius_graph
from equiflock.senses.orbit import NO_ORBIT, ObstacleRule, select_obstacles


def find_observed_edges(flock: Flock, graph: Graph | None = None) -> Int64[np.ndarray, "edges 2"]:
    """Return the edges of a single flock as rows (receiver, sender), after the obstacle rule.

    Of several obstacle agents that a receiver has as neighbours, only the edge from the nearest is kept.

    Args:
        flock: a batch of one.
        graph: the graph before the obstacle rule; default: all agents within R.
    """
    # Edges are sorted by receiver, so the senders of each receiver are contiguous.
    edges = (radius_graph(flock) if graph is None else graph).edges(0)
    N = flock.shape[1]
    starts = np.searchsorted(edges[:, 0], np.arange(N + 1)).astype(np.uintp)
    senders, is_observed = edges[:, 1].astype(np.uintp), np.zeros(len(edges), np.bool_)
    _keep_nearest_obstacles(flock.positions[0], flock.roles[0], starts, senders, is_observed)
    return np.stack([edges[is_observed, 0], senders[is_observed].astype(np.int64)], axis=1)


@kernel
def _keep_nearest_obstacles(positions: Array, roles: Array, starts: Array, senders: Array, is_observed: Array) -> None:
    """Apply the obstacle rule to each agent's senders[starts[i] : starts[i + 1]], in place, and mark those that remain.

    This reorders the senders of an agent, so read only those where `is_observed` is True.
    """
    # The rule works on records in cell order; here record i is agent i.
    N = positions.shape[0]
    numbering = Numbering(np.arange(N).astype(np.uintp), np.empty(0, np.int64))
    obstacle_rule = ObstacleRule(True, False, NO_ORBIT)
    record_positions = positions.T.copy()
    for i in range(np.uintp(N)):
        first, last = starts[i], starts[i + np.uintp(1)]
        # Only the orbit technique needs velocities, and it does not change the list: any array will do.
        selection = select_obstacles(
            i, first, last, senders, record_positions, positions, roles, numbering, obstacle_rule
        )
        is_observed[first : selection.end] = True
