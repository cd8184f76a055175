"""The learning rate of every epoch of a training."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["constant", "cosine", "linear"]


def compute_rate_factor(schedule: Schedule, epoch: int, epochs: int, warm_up: int = 0, final: float = 0.0) -> float:
    """The share of the full learning rate that an epoch has.

    It grows along a line, (e + 1) / (W + 1) for the W epochs of the warm-up. Then it is 1, or falls to `final`, as a
    line or a half wave of the cosine does: with x = (e - W) / (E - W), 1 - x or (1 + cos(pi x)) / 2 is the share of
    what is to fall that is left. The end, x = 1, comes after the last epoch, so no epoch goes by with a rate of 0.

    Args:
        schedule: how it falls after the warm-up.
        epoch: e, counted from 0.
        epochs: E, how many there are.
        warm_up: W, how many epochs it takes to reach the full rate.
        final: the share at the end.
    """
    if epoch < warm_up:
        return (epoch + 1) / (warm_up + 1)
    if schedule == "constant":
        return 1.0
    done = (epoch - warm_up) / (epochs - warm_up)
    left = 1.0 - done if schedule == "linear" else (1.0 + math.cos(math.pi * done)) / 2.0
    return final + (1.0 - final) * left
