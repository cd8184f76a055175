"""Algebraic connectivity of the communication graph: how far it is from falling apart."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from equiflock.flock import Flock
from equiflock.graph.radius_graph import label_components, radius_graph

MAX_DENSE_AGENTS = 64
"""Number of agents up to which the eigenvalues of a dense matrix are computed, which is faster for small flocks."""
SHIFT = -0.01
"""Number below all eigenvalues, near which the sparse solver searches; Laplacians have no negative ones."""


def compute_algebraic_connectivity(flock: Flock, comm_radius: float | None = None) -> Float64[np.ndarray, " B"]:
    """Return the second-smallest eigenvalue of the graph Laplacian of working agents, (B,), directions ignored.

    It is 0 for a disconnected flock and for fewer than two agents, N for a complete graph, and the smaller, the weaker
    the weakest cut (Fiedler, "Algebraic connectivity of graphs", 1973).
    """
    graph, working = radius_graph(flock, comm_radius), flock.working
    is_connected = label_components(graph, working).max(axis=1) == 0
    values = np.zeros(len(flock))
    for b in np.flatnonzero(is_connected & (working.sum(axis=1) > 1)):
        receivers, senders = graph.edges(int(b)).T
        both = working[b][receivers] & working[b][senders]
        index = np.cumsum(working[b]) - 1
        values[b] = _compute_fiedler_value(index[receivers[both]], index[senders[both]], int(working[b].sum()))
    return values


def _compute_fiedler_value(receivers: np.ndarray, senders: np.ndarray, agents: int) -> float:
    """Return the second-smallest Laplacian eigenvalue of a connected graph; edges may be given in both directions."""
    if agents <= MAX_DENSE_AGENTS:
        joined = np.zeros((agents, agents))
        joined[receivers, senders] = joined[senders, receivers] = 1.0
        return float(np.linalg.eigvalsh(np.diag(joined.sum(axis=0)) - joined)[1])
    # SciPy takes a tenth of a second to import.
    from scipy.sparse import csc_array, diags_array
    from scipy.sparse.linalg import eigsh

    ends = np.concatenate([receivers, senders]), np.concatenate([senders, receivers])
    links = csc_array((np.ones(len(ends[0])), ends), shape=(agents, agents))
    links.data[:] = 1.0  # edges in both directions were added up
    laplacian = csc_array(diags_array(links.sum(axis=0)) - links)
    # A fixed first vector makes the result reproducible; the constant one is the eigenvector of 0.
    first = np.random.default_rng(0).normal(size=agents)
    return float(np.sort(eigsh(laplacian, k=2, sigma=SHIFT, v0=first, return_eigenvectors=False))[1])
