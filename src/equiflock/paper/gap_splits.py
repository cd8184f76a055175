"""Empirical gaps, test loss - training loss, of the same tuples on other draws: bootstrap samples, and other splits.

The weights of every epoch stay fixed, so that one draw of tuples gives the gaps of all epochs, and with the bound of
every epoch the correlation of both. Flocks are drawn within their time index, as the data has the same number at each.
Losses have the shape (E, S, b): epochs, time indices, flocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from jaxtyping import Float64

from equiflock._runtime.randomness import make_rng
from equiflock.statistics import RESAMPLES

SPLITS = 400
"""Number of splits that are redrawn."""
CHUNK = 50
"""Number of draws at a time, which bounds the memory."""
Losses = Float64[np.ndarray, "E S _"]


def resample_gaps(train: Losses, test: Losses, seed: int, resamples: int = RESAMPLES) -> Float64[np.ndarray, "R E"]:
    """Return the gaps of every epoch on bootstrap samples of the training and of the test tuples."""
    rng = make_rng(seed, "resampled gaps")
    test_loss, train_loss = (
        _average_draws(losses, partial(_draw_bootstrap, rng, losses), resamples) for losses in (test, train)
    )
    return np.asarray(test_loss - train_loss)


def redraw_gaps(train: Losses, test: Losses, seed: int, splits: int = SPLITS) -> Float64[np.ndarray, "R E"]:
    """Return the gaps of every epoch if other tuples, as many, had been those for training and for testing."""
    rng = make_rng(seed, "redrawn splits")
    tuples = np.concatenate([train, test], axis=2)
    _, S, B = tuples.shape
    trained = train.shape[2]

    def draw_split(count: int) -> Float64[np.ndarray, "R S B"]:
        """Return 1 for the flocks of the training split."""
        place = rng.permuted(np.broadcast_to(np.arange(B), (count, S, B)), axis=2)
        return np.asarray(place < trained, np.float64)

    train_mean = _average_draws(tuples, draw_split, splits) * (B / trained)
    total = tuples.mean(axis=(1, 2))
    return np.asarray((total - train_mean * (trained / B)) * (B / (B - trained)) - train_mean)


def _draw_bootstrap(rng: np.random.Generator, losses: Losses, count: int) -> Float64[np.ndarray, "R S b"]:
    """Return how often each flock counts in bootstrap samples."""
    _, S, b = losses.shape
    drawn = rng.integers(b, size=(count, S, b)) + b * np.arange(count * S).reshape(count, S, 1)
    return np.bincount(drawn.ravel(), minlength=count * S * b).reshape(count, S, b).astype(np.float64)


def _average_draws(
    losses: Losses, draw: Callable[[int], Float64[np.ndarray, "R S b"]], draws: int
) -> Float64[np.ndarray, "R E"]:
    """Return the mean over tuples of weight times loss, for each draw of weights and each epoch."""
    flat = losses.reshape(len(losses), -1)
    parts = [draw(count).reshape(count, -1) @ flat.T for count in _split_count(draws)]
    return np.asarray(np.concatenate(parts) / flat.shape[1])


def _split_count(total: int) -> Iterator[int]:
    """Yield numbers of at most CHUNK that sum to the total."""
    for first in range(0, total, CHUNK):
        yield min(CHUNK, total - first)
