"""Slow, obvious twins of the kernels: dense arrays and plain loops, straight from the paper's equations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from equiflock.types import Flock, Role

Array = NDArray[Any]
SHORTEST = 1e-8


def adjacency(positions: Array, roles: Array, radius: float) -> Array:
    """(N, N), row i marking whom agent i hears."""
    N = len(positions)
    heard = np.zeros((N, N), bool)
    for i in range(N):
        for j in range(N):
            offset = positions[i] - positions[j]
            near = sum(c * c for c in offset.tolist()) <= radius * radius
            heard[i, j] = i != j and near and roles[i] == Role.FOLLOWER
    return heard


def psi(offset: Array, relative_velocity: Array) -> Array:
    """The message, (3, D)."""
    distance = max(float(np.sqrt((offset**2).sum())), SHORTEST)
    return np.stack([relative_velocity, offset / distance**4, offset / distance**2])


def aggregate(flock: Flock, b: int, before: Array, heard: Array, one_hop: str) -> Array:
    """Z of one flock, (N, K, 3, D), from what was known a step before and who hears whom now."""
    positions, velocities = flock.positions[b], flock.velocities[b]
    now = np.zeros_like(before)
    for i in range(len(positions)):
        senders = np.flatnonzero(heard[i])
        if len(senders) == 0:
            continue
        said = sum(psi(positions[i] - positions[j], velocities[i] - velocities[j]) for j in senders)
        now[i, 0] = said / (len(senders) if one_hop == "mean" else 1)
        for k in range(1, before.shape[1]):
            now[i, k] = np.mean([before[j, k - 1] for j in senders], axis=0)
    return now


def components(flock: Flock, b: int, radius: float) -> Array:
    """Component labels, numbered by first agents; -1 for obstacle agents."""
    roles = flock.roles[b]
    heard = adjacency(flock.positions[b], roles, radius)
    joined = (heard | heard.T) & (roles != Role.OBSTACLE)[:, None] & (roles != Role.OBSTACLE)[None, :]
    labels = np.full(len(roles), -1)
    following = 0
    for i in range(len(roles)):
        if labels[i] >= 0 or roles[i] == Role.OBSTACLE:
            continue
        frontier = [i]
        while frontier:
            agent = frontier.pop()
            if labels[agent] < 0:
                labels[agent] = following
                frontier += np.flatnonzero(joined[agent]).tolist()
        following += 1
    return labels


def distances(points: Array) -> Array:
    """All distances between different points."""
    N = len(points)
    return np.array([np.sqrt(((points[i] - points[j]) ** 2).sum()) for i in range(N) for j in range(i)])
