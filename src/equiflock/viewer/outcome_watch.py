"""The ending of a scenario, applied to a live flight, which it does not stop."""

from __future__ import annotations

import logging
import math

import numpy as np

from equiflock.flock import Flock
from equiflock.outcomes import Outcome
from equiflock.plotting.player.overlay import MAX_MEASURED_AGENTS
from equiflock.scenarios import Scenario

log = logging.getLogger("equiflock.viewer")


class OutcomeWatch:
    """The first outcome that a new ending of the scenario reports, from `start_time` on; none for large flocks."""

    def __init__(self, scenario: Scenario, start_time: float = 0.0) -> None:
        self._ending = scenario.ending()
        self._start_time = start_time
        self.outcome = int(Outcome.FLYING)
        """Code of the outcome; FLYING until there is one."""
        self.elapsed = math.nan
        """Seconds from `start_time` to the outcome."""

    def update(self, time: float, flock: Flock) -> None:
        """Ask the ending about a single flock, unless it has reported an outcome."""
        if self._ending is None or self.outcome != Outcome.FLYING or flock.shape[1] > MAX_MEASURED_AGENTS:
            return
        elapsed = time - self._start_time
        try:
            (outcome,) = self._ending(np.array([elapsed]), flock, np.array([True]))
            self.outcome = int(Outcome(int(outcome)))
        except Exception:  # a plugin's ending may raise anything, and a page's user may change the flock in any way
            log.exception("the scenario's ending cannot judge the live flight")
            self._ending = None
            return
        if self.outcome != Outcome.FLYING:
            self.elapsed = elapsed
