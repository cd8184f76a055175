"""Statistics of the working agents of a flock at one instant, for endings: means and the velocity variance."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from equiflock.flock import Flock, Vectors


def compute_velocity_variance(flock: Flock) -> Float64[np.ndarray, " B"]:
    """Return (1/N) sum_i |v_i - mean(v)|^2 over working leaders and followers; 0 if there are none."""
    working = flock.working
    squares = np.square(flock.velocities - average_working(flock, flock.velocities)[:, None]).sum(axis=2)
    return np.asarray(squares.sum(axis=1, where=working) / np.maximum(working.sum(axis=1), 1))


def average_working(flock: Flock, vectors: Vectors) -> Float64[np.ndarray, "B D"]:
    """Return the mean of positions or velocities over working leaders and followers; 0 if there are none."""
    working = flock.working
    return np.asarray(vectors.sum(axis=1, where=working[..., None]) / np.maximum(working.sum(axis=1), 1)[:, None])
