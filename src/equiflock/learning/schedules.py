"""Learning rate schedules."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["constant", "cosine", "linear"]


def compute_rate_factor(schedule: Schedule, epoch: int, epochs: int, warm_up: int = 0, final: float = 0.0) -> float:
    """Return the factor on the learning rate in epoch e.

    During the W warm-up epochs the factor is (e + 1) / (W + 1). Then it is 1, or decays to `final`:

        final + (1 - final) s(x),  x = (e - W) / (E - W),

    with s(x) = 1 - x ("linear") or s(x) = (1 + cos(pi x)) / 2 ("cosine"). x = 1 comes after the last epoch, so that no
    epoch has a rate of 0.

    Args:
        schedule: shape of the decay after the warm-up.
        epoch: e, counted from 0.
        epochs: E, the number of epochs.
        warm_up: W, the number of warm-up epochs.
        final: the factor at x = 1.
    """
    if epoch < warm_up:
        return (epoch + 1) / (warm_up + 1)
    if schedule == "constant":
        return 1.0
    x = (epoch - warm_up) / (epochs - warm_up)
    decay = 1.0 - x if schedule == "linear" else (1.0 + math.cos(math.pi * x)) / 2.0
    return final + (1.0 - final) * decay
