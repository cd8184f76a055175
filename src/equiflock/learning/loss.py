"""Types of the learners: tuples, their errors, and loss weightings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from jaxtyping import Float64

from equiflock.controllers.networks.gradients import TrainingTuples

Tuples: TypeAlias = TrainingTuples
"""Observations and targets of T tuples, packed as a learner reads them."""
Errors: TypeAlias = Float64[np.ndarray, "..."]
"""For every tuple, the mean over its agents of |a_expert - a_student|^2."""
LossWeighting: TypeAlias = Callable[[Errors], Errors]
"""Function from the errors of a batch to the weight of each error in the loss."""
