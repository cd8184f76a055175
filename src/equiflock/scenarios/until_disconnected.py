"""The ending of a flight by the loss of connectivity."""

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
    """Ends a flight as soon as the communication graph of agents that work, directions ignored, is not connected.

    Who could hear whom is what counts, by where agents are, whatever messages are lost or late: that is
    `metrics.message_component_count`.

    Args:
        comm_radius: the communication radius R, if it shall be another than that of the flight.
    """

    comm_radius: float | None = None

    def __post_init__(self) -> None:
        if self.comm_radius is not None:
            check_positive("comm_radius", self.comm_radius)

    def __call__(self, time: float, flock: Flock, flying: Bool[np.ndarray, " B"]) -> Int8[np.ndarray, " B"]:
        """DISCONNECTED where a flying flock has more than one component."""
        outcomes = np.full(len(flock), Outcome.FLYING, np.int8)
        # Components are numbered from 0, so a label above 0 is that of a second one.
        outcomes[flying] = np.where(
            components(flock[flying], self.comm_radius).max(axis=1) > 0, Outcome.DISCONNECTED, Outcome.FLYING
        )
        return outcomes
