"""Adam (Kingma and Ba, 2015) for weights in one flat array, with the arithmetic of `torch.optim.Adam`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32

from equiflock.runtime.jit import Array, Index, kernel

BETA_1, BETA_2 = 0.9, 0.999
"""Decay rates per step of the mean gradient and of the mean squared gradient."""
EPSILON = 1e-8
"""Added to the root of the mean square."""


class AdamState(NamedTuple):
    """The state of Adam as kernels take it."""

    mean: Array
    """float32 (size,): running mean of the gradient."""
    mean_square: Array
    """float32 (size,): running mean of the squared gradient."""
    steps: Index
    """Number of steps taken."""
    learning_rate: float


class Adam:
    """The running means of the gradient and of its square, and the number of steps taken."""

    def __init__(self, size: int, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.mean: Float32[np.ndarray, " size"] = np.zeros(size, np.float32)
        self.mean_square: Float32[np.ndarray, " size"] = np.zeros(size, np.float32)
        self.steps = 0

    def step(self, weights: Float32[np.ndarray, " size"], gradient: Float32[np.ndarray, " size"]) -> None:
        """Update the weights in place by one step."""
        self.steps += 1
        adam_step(weights, gradient, self.mean, self.mean_square, self.steps, self.learning_rate)


@kernel
def adam_step(
    weights: Array, gradient: Array, mean: Array, mean_square: Array, steps: Index, learning_rate: float
) -> None:
    """Take step number `steps`, counted from 1: w -= rate m / (sqrt(v) + eps), for bias-corrected m and v.

    `weights`, `mean` (m) and `mean_square` (v) are updated in place; `steps` is not.
    """
    # m and v start at zero; these factors correct the resulting bias.
    size = np.float32(learning_rate / (1.0 - BETA_1**steps))
    per_root = np.float32(1.0 / np.sqrt(1.0 - BETA_2**steps))
    old, new = np.float32(BETA_1), np.float32(1.0 - BETA_1)
    old_square, new_square = np.float32(BETA_2), np.float32(1.0 - BETA_2)
    for n in range(weights.size):
        mean[n] = old * mean[n] + new * gradient[n]
        mean_square[n] = old_square * mean_square[n] + new_square * gradient[n] * gradient[n]
        weights[n] -= size * mean[n] / (np.sqrt(mean_square[n]) * per_root + np.float32(EPSILON))
