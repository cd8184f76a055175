"""Camera of films: windows that fit all agents of all panels at one scale, and move with the flocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from equiflock.flock import Role
from equiflock.simulation.trajectory import Trajectory

LEAST_EXTENT = 3.0
"""Least width of a window, in communication radii."""
MAX_GROWTH = 2.5
"""Obstacles are fitted, too, while they widen the window of the flock at most by this factor."""


def fit_windows(
    runs: Sequence[Trajectory], times: Float64[np.ndarray, " T"], smoothing: int = 0
) -> tuple[Float64[np.ndarray, "P T 2"], Float64[np.ndarray, " T"]]:
    """Return the centre of each panel's window at some times, in seconds, and the width of all of them.

    A window fits all agents of the run's only flock, failed ones included, and obstacle agents that are near enough.
    It is smooth over `smoothing` times before and after each.
    """
    boxes = [_fit_box(run, times, smoothing) for run in runs]
    centres = np.array([(low + high) / 2 for low, high in boxes])
    widths = np.max([(high - low).max(axis=1) for low, high in boxes], axis=0)
    return centres, np.maximum(widths, LEAST_EXTENT * max(run.comm_radius for run in runs))


def compute_window_width(runs: Sequence[Trajectory]) -> float:
    """Return the width of a window that fits all agents of runs of a single flock at all saved times."""
    return max(float(fit_windows([run], run.times)[1].max()) for run in runs)


def _fit_box(
    run: Trajectory, times: Float64[np.ndarray, " T"], smoothing: int
) -> tuple[Float64[np.ndarray, "T 2"], Float64[np.ndarray, "T 2"]]:
    """Return the lower left and the upper right corners of the box to fit at each time."""
    at = np.clip(np.searchsorted(run.times, times), 0, len(run.times) - 1)
    before = np.maximum(at - 1, 0)
    paths, is_obstacle = run.positions[:, 0, :, :2], run.roles[0] == Role.OBSTACLE
    agents = paths[:, ~is_obstacle]
    low, high = agents.min(axis=1), agents.max(axis=1)
    if is_obstacle.any():
        posts = paths[:, is_obstacle]
        all_low, all_high = np.minimum(low, posts.min(axis=1)), np.maximum(high, posts.max(axis=1))
        extent = np.maximum((high - low).max(axis=1), LEAST_EXTENT * run.comm_radius)
        near = ((all_high - all_low).max(axis=1) <= MAX_GROWTH * extent)[:, None]
        low, high = np.where(near, all_low, low), np.where(near, all_high, high)
    # Times between two saved frames have both their boxes. Boxes are smoothed relative to the mean of the agents,
    # whose motion is smooth.
    low, high = np.minimum(low[at], low[before]), np.maximum(high[at], high[before])
    middle = (agents.mean(axis=1)[at] + agents.mean(axis=1)[before]) / 2
    return middle - _smooth_envelope(middle - low, smoothing), middle + _smooth_envelope(high - middle, smoothing)


def _smooth_envelope(values: Float64[np.ndarray, "T 2"], reach: int) -> Float64[np.ndarray, "T 2"]:
    """Return a smooth curve that is nowhere below the values: the moving average of their moving maximum."""
    if reach == 0:
        return values
    window = 2 * reach + 1
    padded = np.pad(values, ((2 * reach, 2 * reach), (0, 0)), mode="edge")
    highest = np.lib.stride_tricks.sliding_window_view(padded, window, axis=0).max(axis=-1)
    return np.asarray(np.lib.stride_tricks.sliding_window_view(highest, window, axis=0).mean(axis=-1))
