"""Controllers and endings that are simple enough to predict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equiflock.features import Senses, paper_senses
from equiflock.flock import Flock
from equiflock.outcomes import Outcome


@dataclass(frozen=True)
class Push:
    """A constant acceleration, the same for everybody."""

    amount: float = 1.0
    senses: Senses = field(default_factory=lambda: paper_senses("mean", hops=2))

    def __call__(self, observations: Any) -> Any:
        return np.full((*observations.shape[:2], observations.shape[-1]), self.amount)


@dataclass(frozen=True)
class EndAt:
    """Ends flock b at steps[b]."""

    steps: tuple[int, ...]

    def __call__(self, times: NDArray[Any], flock: Flock, flying: NDArray[Any]) -> NDArray[Any]:
        over = times > np.array(self.steps) * 0.1 - 1e-9
        return np.where(over, Outcome.DISCONNECTED, Outcome.FLYING).astype(np.int8)
