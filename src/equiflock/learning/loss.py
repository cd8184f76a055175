"""The loss of imitation: how much the student's accelerations differ from the expert's.

A tuple holds the observations of the N agents of one flock and the accelerations of the expert. Its error is

    e = 1/N sum_i |a_i^expert - a_i^student|^2.

DAgger (section 5 of the paper, "Training") minimizes the mean error of a batch, cloning the `ScoringLoss` (section
4.3). `compute_errors` and `compute_loss` are for torch. The kernels of `equiflock.controllers.networks.gradients`
compute the same errors, `add_squared_errors`, and with them the gradient, `add_gradient`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from jaxtyping import Float32, Float64
from torch import Tensor, from_numpy

from equiflock.controllers.networks.gradients import TrainingTuples

Tuples: TypeAlias = TrainingTuples
"""Observations and targets of T tuples, packed as a learner reads them."""
Errors: TypeAlias = Float64[np.ndarray, "..."]
"""The error e of every tuple."""
LossWeighting: TypeAlias = Callable[[Errors], Errors]
"""Function from the errors of a batch to the weight of each error in the loss."""


def compute_errors(accelerations: Tensor, targets: Tensor) -> Tensor:
    """Return the error e of every tuple, (b,), from the accelerations of student and expert, (b, N, D)."""
    return (accelerations - targets).square().sum(-1).mean(-1)


def compute_loss(errors: Tensor, loss_weighting: LossWeighting | None) -> Tensor:
    """Return the mean of the errors (b,) of a batch, or their sum with the weights of `loss_weighting`."""
    if loss_weighting is None:
        return errors.mean()
    return (errors * from_numpy(loss_weighting(errors.detach().double().numpy())).float()).sum()


class ScoringLoss:
    """The loss of the generalization bound (section 4.3), min(1, (b^2 + e) / M), for a tuple with the error e.

    b in [0, sqrt(M)] is the only weight of the paper's scoring model, and starts at 0. A tuple with b^2 + e >= M has
    no gradient, so training may start with (b^2 + e) / M, which always has one.
    """

    def __init__(self, scale: float) -> None:
        self.scale = scale
        """M."""
        self.bias: Float32[np.ndarray, " 1"] = np.zeros(1, np.float32)
        """b."""

    def compute_scores(self, errors: Errors) -> Errors:
        """Return (b^2 + e) / M of every tuple."""
        scores: Errors = (float(self.bias[0]) ** 2 + errors) / self.scale
        return scores

    def compute_weights(self, errors: Errors, is_clipped: bool) -> Errors:
        """Return d(mean loss) / de of every tuple of a batch; without `is_clipped`, of the loss without min(1, .)."""
        weights = np.full(len(errors), 1.0 / (self.scale * len(errors)))
        if is_clipped:
            weights[self.compute_scores(errors) > 1.0] = 0.0
        return weights

    def compute_bias_gradient(self, weights: Errors) -> Float32[np.ndarray, " 1"]:
        """Return d(mean loss) / db = 2 b sum of the weights."""
        gradient: Float32[np.ndarray, " 1"] = (2.0 * self.bias * weights.sum()).astype(np.float32)
        return gradient

    def clip_bias(self) -> None:
        """Clip b to [0, sqrt(M)] in place."""
        np.clip(self.bias, 0.0, math.sqrt(self.scale), out=self.bias)
