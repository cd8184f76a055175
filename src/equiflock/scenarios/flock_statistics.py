"""What endings ask of a flock at one instant: where its middle is, and how far its velocities agree."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from equiflock.flock import Flock, Vectors


def compute_velocity_variance(flock: Flock) -> Float64[np.ndarray, " B"]:
    """The velocity variance of leaders and followers that work, obstacle agents left out; 0 if there are none."""
    working = flock.working
    squares = np.square(flock.velocities - average_working(flock, flock.velocities)[:, None]).sum(axis=2)
    return np.asarray(squares.sum(axis=1, where=working) / np.maximum(working.sum(axis=1), 1))


def average_working(flock: Flock, vectors: Vectors) -> Float64[np.ndarray, "B D"]:
    """The mean of positions or velocities over leaders and followers that work; 0 if there are none."""
    working = flock.working
    return np.asarray(vectors.sum(axis=1, where=working[..., None]) / np.maximum(working.sum(axis=1), 1)[:, None])
