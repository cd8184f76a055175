"""Baselines of an observation step in common styles: dense NumPy arrays, or a k-d tree and NumPy.

Both compute what `DelayedAggregation.observe` computes (K = 3, mean aggregation, D = 2), in float64, and are checked
against it before they are timed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from equiflock.flock import Flock

Array = NDArray[Any]


def dense_step(flock: Flock, before: Array, radius: float = 1.0) -> Array:
    """Compute observations with N x N arrays, flock by flock (all at once would only take more memory)."""
    B, N, D = flock.shape
    now = np.empty((B, N, 3 * 3 * D))
    for b in range(B):
        offsets = flock.positions[b][:, None] - flock.positions[b][None]
        relative_velocities = flock.velocities[b][:, None] - flock.velocities[b][None]
        squares = np.square(offsets).sum(axis=-1)
        np.fill_diagonal(squares, np.inf)
        adjacency = squares <= radius * radius
        per_square = np.where(adjacency, 1.0 / squares, 0.0)[..., None]
        degrees = np.maximum(adjacency.sum(axis=1), 1)[:, None]
        now[b, :, :D] = np.where(adjacency[..., None], relative_velocities, 0.0).sum(axis=1) / degrees
        now[b, :, D : 2 * D] = (offsets * per_square**2).sum(axis=1) / degrees
        now[b, :, 2 * D : 3 * D] = (offsets * per_square).sum(axis=1) / degrees
        now[b, :, 3 * D :] = adjacency.astype(np.float64) @ before[b, :, : 6 * D] / degrees
    return now


def tree_step(flock: Flock, before: Array, radius: float = 1.0) -> Array:
    """Compute observations with scipy's k-d tree for the pairs, and NumPy's bincount for the sums over them."""
    B, N, D = flock.shape
    now = np.empty((B, N, 3 * 3 * D))
    for b in range(B):
        pairs = cKDTree(flock.positions[b]).query_pairs(radius, output_type="ndarray")
        i, j = np.concatenate([pairs, pairs[:, ::-1]]).T
        offsets = flock.positions[b][i] - flock.positions[b][j]
        per_square = 1.0 / np.square(offsets).sum(axis=-1, keepdims=True)
        messages = np.concatenate(
            [
                flock.velocities[b][i] - flock.velocities[b][j],
                offsets * per_square**2,
                offsets * per_square,
                before[b][j, : 6 * D],
            ],
            axis=1,
        )
        degrees = np.maximum(np.bincount(i, minlength=N), 1)
        for channel in range(3 * 3 * D):
            now[b, :, channel] = np.bincount(i, weights=messages[:, channel], minlength=N) / degrees
    return now
