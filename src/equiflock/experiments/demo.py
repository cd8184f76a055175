"""The demonstration: train a network from scratch and compare it with other controllers on unseen flocks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool

from equiflock.controllers import load
from equiflock.experiments.summary import RECORDED_METRICS
from equiflock.flock import Flock
from equiflock.learning.recipe import DAgger
from equiflock.learning.run_config import RunConfig
from equiflock.learning.training_run import TrainingRun
from equiflock.learning.training_tables import read_reports
from equiflock.learning.validation import Validation
from equiflock.protocols import Controller, Moment
from equiflock.runtime.checks import InputError
from equiflock.runtime.checksums import VersionMismatchError
from equiflock.runtime.provenance import collect_versions
from equiflock.scenarios import RandomDisk
from equiflock.simulation.simulate import simulate
from equiflock.simulation.trajectory import Trajectory

if TYPE_CHECKING:  # it imports torch
    from equiflock.learning.dagger import EpochReport

STUDENT = "etdagnn"
CONTROLLERS = ("tanner", STUDENT, "tdagnn", "tanner-dynamic")
LABELS = {
    "tanner": "tanner (the expert)",
    STUDENT: f"{STUDENT} (just trained)",
    "tdagnn": "tdagnn (bundled)",
    "tanner-dynamic": "tanner-dynamic",
}
RECIPE = DAgger(controller=STUDENT, epochs=120, validate_every=20, checkpoint_every=20)
DURATION, TIME_STEP = 2.0, 0.01


@dataclass(frozen=True)
class Demonstration:
    """Results of the demonstration.

    Attributes:
        recipe: training settings.
        network: the trained network.
        epochs: the report of each epoch.
        expert: the expert's result on the validation flocks.
        start: initial conditions of the test, the same for all controllers.
        runs: flights by controller name.
    """

    recipe: DAgger
    network: Controller
    epochs: tuple[EpochReport, ...]
    expert: Validation
    start: Flock
    runs: Mapping[str, Trajectory]

    def find_disconnected(self, controller: str) -> Bool[np.ndarray, " B"]:
        """Return a mask of the flocks that are disconnected at the end."""
        return np.asarray(self.runs[controller].series["component_count"][-1] > 1)

    def find_always_connected(self, controller: str) -> Bool[np.ndarray, " B"]:
        """Return a mask of the flocks that are connected at every step."""
        return np.asarray((self.runs[controller].series["component_count"] == 1).all(axis=0))

    @property
    def contrasting_flocks(self) -> list[int]:
        """Flocks that the student keeps connected at every step and that end disconnected under `tanner-dynamic`."""
        return np.flatnonzero(self.find_always_connected(STUDENT) & self.find_disconnected("tanner-dynamic")).tolist()


def resume_or_create_training(folder: Path, recipe: DAgger) -> TrainingRun:
    """Return the training in `folder` if it has this recipe and these versions; else replace it by a new one.

    Raise VersionMismatchError if another format version wrote it; then nothing is removed.
    """
    try:
        run = TrainingRun(folder)
        if run.config == RunConfig(recipe, collect_versions("torch")):
            return run
    except VersionMismatchError:
        raise
    except InputError:
        pass  # missing or damaged
    return TrainingRun.create(folder, recipe, force=True)


def demonstrate(
    disk: RandomDisk,
    recipe: DAgger = RECIPE,
    duration: float = DURATION,
    on_epoch: Callable[[EpochReport], object] | None = None,
    on_step: Callable[[str, Moment], object] | None = None,
    training: Path | None = None,
) -> Demonstration:
    """Train, then fly the flocks of `disk` under each of `CONTROLLERS`, one after another in this process.

    Args:
        disk: initial conditions of the test.
        recipe: training settings.
        duration: seconds per flight.
        on_epoch: called with the report of every epoch trained by this call.
        on_step: called with the controller's name and every moment of its flight.
        training: run directory of the training, where a training with the same recipe is continued; by default a
            temporary one.
    """
    # Reports are read from the run directory, which includes epochs of earlier processes.
    with tempfile.TemporaryDirectory() as elsewhere:
        run = resume_or_create_training(training or Path(elsewhere) / "training", recipe)
        run.train(on_epoch)
        network = load(run.weights)
        epochs, expert = read_reports(run.folder)
    # All controllers fly the same flocks.
    start = disk.draw()
    runs = {}
    for name in CONTROLLERS:
        runs[name] = simulate(
            start,
            network if name == STUDENT else load(name),
            time_step=TIME_STEP,
            duration=duration,
            record=RECORDED_METRICS,
            on_step=partial(on_step, name) if on_step is not None else None,
            config={"controller": LABELS[name], "start": asdict(disk)},
        )
    return Demonstration(recipe, network, epochs, expert, start, runs)
