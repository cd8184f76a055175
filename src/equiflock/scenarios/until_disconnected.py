"""The ending of a flight whose flock becomes disconnected."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int8

from equiflock.flock import Flock
from equiflock.outcomes import Outcome
from equiflock.runtime.checks import check_positive
from equiflock.senses.graph import components


@dataclass(frozen=True)
class UntilDisconnected:
    """Ending of a flight: the communication graph of working agents, directions ignored, is not connected.

    The graph follows from positions alone, whatever messages are lost or late; `metrics.message_component_count` counts
    the components of the messages that arrive.

    Args:
        comm_radius: R; default: the flight's.
    """

    comm_radius: float | None = None

    def __post_init__(self) -> None:
        if self.comm_radius is not None:
            check_positive("comm_radius", self.comm_radius)

    def __call__(self, time: float, flock: Flock, flying: Bool[np.ndarray, " B"]) -> Int8[np.ndarray, " B"]:
        """Return DISCONNECTED where a flying flock has several components of working agents, else FLYING."""
        outcomes = np.full(len(flock), Outcome.FLYING, np.int8)
        # Components are numbered from 0, so a label above 0 means a second component.
        outcomes[flying] = np.where(
            components(flock[flying], self.comm_radius).max(axis=1) > 0, Outcome.DISCONNECTED, Outcome.FLYING
        )
        return outcomes
