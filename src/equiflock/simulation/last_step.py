"""The step before each moment, for metrics that compare two moments."""

from __future__ import annotations

import numpy as np

from equiflock.protocols import LastStep, Moment


class LastStepRecorder:
    """Adds the step before to each moment of a flight; call `attach` once per moment, in their order.

    It copies velocities and commands of every moment, so use it only where a metric needs them.
    """

    def __init__(self) -> None:
        self._latest: LastStep | None = None

    def attach(self, moment: Moment) -> Moment:
        """Return the moment with its `last_step`.

        A flock that starts or restarts at this moment, or whose number of agents changed, has no step before: its
        velocities and commands are those of the moment itself, so that nothing has changed.
        """
        present = LastStep(moment.flock.velocities.copy(), moment.accelerations.copy())
        latest, self._latest = self._latest, present
        is_new = moment.flock_steps == 0
        if latest is None or latest.velocities.shape != present.velocities.shape:
            latest = present
        elif is_new.any():
            latest = LastStep(*(np.where(is_new[:, None, None], *pair) for pair in zip(present, latest, strict=True)))
        return moment.with_last_step(latest)
