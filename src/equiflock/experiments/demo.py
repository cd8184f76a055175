"""The demonstration: the same flocks under the centralized expert and under the law that agents can run alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
from jaxtyping import Bool

from equiflock.controllers import load
from equiflock.experiments.summary import RECORDED
from equiflock.initial import RandomDisk
from equiflock.simulation import simulate
from equiflock.trajectory import Trajectory
from equiflock.types import Flock, Moment

CONTROLLERS = ("tanner", "tanner-dynamic")
SECONDS, TIME_STEP = 2.0, 0.01


@dataclass(frozen=True)
class Demonstration:
    """What the demonstration found.

    Attributes:
        start: the initial conditions, the same for all controllers.
        runs: controller -> its flight.
    """

    start: Flock
    runs: Mapping[str, Trajectory]

    def splits(self, controller: str) -> Bool[np.ndarray, " B"]:
        """Which flocks end in more than one piece."""
        return np.asarray(self.runs[controller].series["component_count"][-1] > 1)

    def stays_whole(self, controller: str) -> Bool[np.ndarray, " B"]:
        """Which flocks are connected all the time."""
        return np.asarray((self.runs[controller].series["component_count"] == 1).all(axis=0))

    @property
    def telling(self) -> list[int]:
        """The flocks that `tanner` keeps together all the time while `tanner-dynamic` loses agents for good."""
        return np.flatnonzero(self.stays_whole("tanner") & self.splits("tanner-dynamic")).tolist()


def demonstrate(
    disk: RandomDisk, duration: float = SECONDS, on_step: Callable[[str, Moment], object] | None = None
) -> Demonstration:
    """Fly the flocks of `disk` under each controller."""
    start = disk.draw()
    runs = {}
    for name in CONTROLLERS:
        watch = partial(on_step, name) if on_step is not None else None
        runs[name] = simulate(
            start,
            load(name),
            time_step=TIME_STEP,
            duration=duration,
            radius=disk.comm_radius,
            record=RECORDED,
            on_step=watch,
            config={"start": asdict(disk)},
        )
    return Demonstration(start, runs)
