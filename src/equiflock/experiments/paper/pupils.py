"""The trained networks that the experiments fly: those of the package, or those trained under another reading."""

from __future__ import annotations

import tempfile
import zlib
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from equiflock.controllers import load
from equiflock.controllers.trained import TRAINED
from equiflock.experiments.curves import controller_of
from equiflock.experiments.flights import FlightJob
from equiflock.experiments.paper.reading import Reading
from equiflock.experiments.paper.training import read_validation
from equiflock.experiments.runner.cluster import origin
from equiflock.learning.recipe import DAgger
from equiflock.learning.run import TrainingRun
from equiflock.protocols import Controller
from equiflock.runtime.checks import InputError
from equiflock.runtime.files import folder_lock
from equiflock.scenarios import Scenario, make_scenario


@dataclass(frozen=True)
class Pupils:
    """Where the weights of a controller and seed come from.

    Trainings are kept in a folder, and trained when they are first asked for: any process may come first.
    """

    reading: Reading = field(default_factory=Reading)
    """The reading under which they are trained."""
    recipe: DAgger | None = None
    """What trainings have besides; None for the weights of the package."""
    folder: Path = field(default=Path(), repr=False, compare=False)
    """The folder of the trainings; the weights do not depend on it."""

    def load(self, controller: str, seed: int | None) -> Controller:
        """The controller of that name: a law, or a network that is trained with the seed."""
        if self.recipe is None or controller not in TRAINED or seed is None:
            return controller_of(controller, seed)
        return load(self.trained(controller, seed).weights)

    def trained(self, controller: str, seed: int) -> TrainingRun:
        """The finished training of a network; it is trained first, or to its end, if it is not."""
        assert self.recipe is not None
        recipe = self.reading.recipe(self.recipe, controller, seed)
        # A worker on another machine may not have the folder; it trains in a temporary one, of this program alone.
        program = zlib.crc32(repr(origin()).encode())
        elsewhere = Path(tempfile.gettempdir()) / f"equiflock-trainings-{program:08x}"
        home = self.folder if self.folder.parent.is_dir() else elsewhere
        # The name tells readings apart, and a hash all the rest of the recipe.
        folder = home / f"{controller}-{seed}-{zlib.crc32(repr(recipe).encode()):08x}"
        home.mkdir(parents=True, exist_ok=True)
        with folder_lock(home, wait=True):  # of several processes that need it, one begins it
            run = TrainingRun(folder) if folder.exists() else TrainingRun.create(folder, recipe)
        if run.recipe != recipe:
            raise InputError(f"{folder} holds another training: remove it, and it is trained again")
        run.train(wait=True)
        return run


class PupilFlight(FlightJob):
    """The common part of jobs that fly a pupil, or a law that it is compared with, through one of the paper's tests."""

    controller: str
    seed: int | None
    flocks: int
    agents: int
    pupils: Pupils
    split: str | None
    """The set of initial conditions; None for those of the test."""

    def flown(self) -> Controller:
        """The controller that flies."""
        return self.pupils.load(self.controller, self.seed)

    def scene(self, name: str, **options: Any) -> Scenario:
        """A scenario with this job's flocks, whose velocities are drawn as those of the training were."""
        options |= {"flocks": self.flocks, "agents": self.agents, "velocities": self.pupils.reading.velocities}
        if self.split is not None:
            options["split"] = self.split
        return make_scenario(name, **options)

    @property
    def shown_name(self) -> str:
        """The controller's name without its options, as tables have it."""
        return self.controller.partition(":")[0]


@dataclass(frozen=True)
class PupilJob:
    """The training of one network under a reading; its result is the validation table."""

    pupils: Pupils
    controller: str
    seed: int

    @property
    def key(self) -> str:
        """The job's name."""
        return f"training-{self.controller}-{self.seed}"

    @property
    def labels(self) -> dict[str, Any]:
        """The table has all its columns already."""
        return {}

    def run(self) -> pd.DataFrame:
        """Train; epoch, controller, flock, ivv, iman and seed, the expert's rows first."""
        table = read_validation(self.pupils.trained(self.controller, self.seed).validation, self.seed)
        # Networks and the expert under the names that statements know, without the reading's options.
        return table.assign(controller=table.controller.str.partition(":")[0])


def pupil_jobs(pupils: Pupils, seeds: tuple[int, ...]) -> list[PupilJob]:
    """The trainings of all networks with these seeds."""
    return [PupilJob(pupils, name, seed) for name, seed in product(TRAINED, seeds)]
