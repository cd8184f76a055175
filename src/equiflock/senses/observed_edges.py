"""The edges of the communication graph after the obstacle rule, for pictures; the rule is that of the senses."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64

from equiflock.flock import Flock
from equiflock.runtime.jit import Array, kernel
from equiflock.senses.graph import Graph, radius_graph
from equiflock.senses.orbit import NO_ORBIT, select_obstacles


def find_observed_edges(flock: Flock, graph: Graph | None = None) -> Int64[np.ndarray, "edges 2"]:
    """The edges of a single flock as rows (receiver, sender); of several obstacle agents only the nearest is heard.

    Args:
        flock: a batch of one.
        graph: who hears whom without that rule; everybody within R of the flock if left out.
    """
    # Edges come sorted by receiver, so the senders of each receiver are one part of the list.
    edges = (radius_graph(flock) if graph is None else graph).edges(0)
    N = flock.shape[1]
    starts = np.searchsorted(edges[:, 0], np.arange(N + 1)).astype(np.uintp)
    senders, is_observed = edges[:, 1].astype(np.uintp), np.zeros(len(edges), np.bool_)
    _keep_nearest_obstacles(flock.positions[0], flock.roles[0], starts, senders, is_observed)
    return np.stack([edges[is_observed, 0], senders[is_observed].astype(np.int64)], axis=1)


@kernel
def _keep_nearest_obstacles(positions: Array, roles: Array, starts: Array, senders: Array, is_observed: Array) -> None:
    """Rewrite the list of each agent's senders by the obstacle rule, and mark those that are left."""
    # The rule works on records in cell order; here record i is agent i.
    N = positions.shape[0]
    order, unranked = np.arange(N).astype(np.uintp), np.empty(0, np.int64)
    record_positions = positions.T.copy()
    for i in range(np.uintp(N)):
        first, last = starts[i], starts[i + np.uintp(1)]
        # Velocities matter to the orbit technique only, which has no say in who is heard.
        end = select_obstacles(
            i, first, last, senders, record_positions, positions, roles, (order, unranked), (True, False, NO_ORBIT)
        )[0]
        is_observed[first:end] = True
