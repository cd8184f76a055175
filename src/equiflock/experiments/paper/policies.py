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
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.experiments.curves import load_with_seed
from equiflock.experiments.flight_jobs import FlightJob
from equiflock.experiments.paper.interpretation import Interpretation
from equiflock.experiments.paper.training import read_validation
from equiflock.experiments.runner.dask_cluster import fingerprint_program
from equiflock.learning.recipe import DAgger
from equiflock.learning.training_run import TrainingRun
from equiflock.protocols import Controller
from equiflock.runtime.checks import InputError
from equiflock.runtime.files import lock_dir
from equiflock.scenarios import Scenario, make_scenario


@dataclass(frozen=True)
class TrainedPolicies:
    """Where the weights of a controller and seed come from.

    Trainings are kept in a folder, and trained when they are first asked for: any process may come first.
    """

    interpretation: Interpretation = field(default_factory=Interpretation)
    """The reading under which they are trained."""
    recipe: DAgger | None = None
    """What trainings have besides; None for the weights of the package."""
    folder: Path = field(default=Path(), repr=False, compare=False)
    """The folder of the trainings; the weights do not depend on it."""

    def load(self, controller: str, seed: int | None) -> Controller:
        """The controller of that name: a law, or a network that is trained with the seed."""
        if self.recipe is None or controller not in PAPER_NETWORKS or seed is None:
            return load_with_seed(controller, seed)
        return load(self.get_training_run(controller, seed).weights)

    def get_training_run(self, controller: str, seed: int) -> TrainingRun:
        """The finished training of a network; it is trained first, or to its end, if it is not."""
        assert self.recipe is not None
        recipe = self.interpretation.recipe(self.recipe, controller, seed)
        # A worker on another machine may not have the folder; it trains in a temporary one, of this program alone.
        program = zlib.crc32(repr(fingerprint_program()).encode())
        elsewhere = Path(tempfile.gettempdir()) / f"equiflock-trainings-{program:08x}"
        home = self.folder if self.folder.parent.is_dir() else elsewhere
        # The name tells readings apart, and a hash all the rest of the recipe.
        folder = home / f"{controller}-{seed}-{zlib.crc32(repr(recipe).encode()):08x}"
        home.mkdir(parents=True, exist_ok=True)
        with lock_dir(home, wait=True):  # of several processes that need it, one begins it
            run = TrainingRun(folder) if folder.exists() else TrainingRun.create(folder, recipe)
        if run.recipe != recipe:
            raise InputError(f"{folder} holds another training: remove it, and it is trained again")
        run.train(wait=True)
        return run


class PolicyFlightJob(FlightJob):
    """The common part of jobs that fly a pupil, or a law that it is compared with, through one of the paper's tests."""

    controller: str
    seed: int | None
    flocks: int
    agents: int
    policies: TrainedPolicies
    split: str | None
    """The set of initial conditions; None for those of the test."""

    def make_controller(self) -> Controller:
        """The controller that flies."""
        return self.policies.load(self.controller, self.seed)

    def build_scenario(self, name: str, **options: Any) -> Scenario:
        """A scenario with this job's flocks, whose velocities are drawn as those of the training were."""
        options |= {"flocks": self.flocks, "agents": self.agents, "velocities": self.policies.interpretation.velocities}
        if self.split is not None:
            options["split"] = self.split
        return make_scenario(name, **options)

    @property
    def base_name(self) -> str:
        """The controller's name without its options, as tables have it."""
        return self.controller.partition(":")[0]


@dataclass(frozen=True)
class PolicyTrainingJob:
    """The training of one network under a reading; its result is the validation table."""

    policies: TrainedPolicies
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
        table = read_validation(self.policies.get_training_run(self.controller, self.seed).validation, self.seed)
        # Networks and the expert under the names that statements know, without the reading's options.
        return table.assign(controller=table.controller.str.partition(":")[0])


def build_policy_training_jobs(policies: TrainedPolicies, seeds: tuple[int, ...]) -> list[PolicyTrainingJob]:
    """The trainings of all networks with these seeds."""
    return [PolicyTrainingJob(policies, name, seed) for name, seed in product(PAPER_NETWORKS, seeds)]
