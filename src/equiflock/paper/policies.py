"""Trained networks of the experiments: bundled ones, or networks trained under another interpretation."""

from __future__ import annotations

import tempfile
import zlib
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from equiflock._runtime.checks import InputError
from equiflock._runtime.executors import fingerprint_program
from equiflock._runtime.files import lock_dir
from equiflock._runtime.specs import parse_spec
from equiflock.controllers import load
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.evaluation.curves import load_with_seed
from equiflock.learning.recipe import DAgger
from equiflock.learning.training_run import TrainingRun
from equiflock.paper.interpretation import Interpretation
from equiflock.paper.training_statements import read_validation
from equiflock.protocols import Controller
from equiflock.scenarios import Scenario, make_scenario
from equiflock.simulation.flight_jobs import FlightJob


@dataclass(frozen=True)
class TrainedPolicies:
    """Source of the weights of each controller and seed.

    Networks are trained in a directory on first use, by whichever process needs them first.
    """

    interpretation: Interpretation = field(default_factory=Interpretation)
    """Interpretation under which the networks are trained."""
    recipe: DAgger | None = None
    """Other settings of the trainings; None for bundled weights."""
    folder: Path = field(default=Path(), repr=False, compare=False)
    """Directory of the trainings; the weights do not depend on it."""

    def load(self, controller: str, seed: int | None) -> Controller:
        """Load a controller by name: a law, or a network with the weights of this training seed.

        If the weights are not the bundled ones, the network is trained first unless that is done already.
        """
        if self.recipe is None or controller not in PAPER_NETWORKS or seed is None:
            return load_with_seed(controller, seed)
        return load(self.get_training_run(controller, seed).weights)

    def get_training_run(self, controller: str, seed: int) -> TrainingRun:
        """Return the finished training of a network, after starting or completing it if necessary.

        It trains in this process, or waits while another process does. Raise InputError if the directory holds another
        recipe.
        """
        assert self.recipe is not None
        recipe = self.interpretation.build_recipe(self.recipe, controller, seed)
        # A worker on another machine may not have the directory; it trains in a temporary one, specific to the program.
        program = zlib.crc32(repr(fingerprint_program()).encode())
        temporary = Path(tempfile.gettempdir()) / f"equiflock-trainings-{program:08x}"
        home = self.folder if self.folder.parent.is_dir() else temporary
        # The hash in the name covers the whole recipe, including the interpretation's choices.
        folder = home / f"{controller}-{seed}-{zlib.crc32(repr(recipe).encode()):08x}"
        home.mkdir(parents=True, exist_ok=True)
        with lock_dir(home, wait=True):  # only one of several processes creates the training
            run = TrainingRun(folder) if folder.exists() else TrainingRun.create(folder, recipe)
        if run.recipe != recipe:
            raise InputError(f"{folder} contains another training: remove it to train again")
        run.train(wait=True)
        return run


class PolicyFlightJob(FlightJob):
    """Base class of jobs that fly a trained policy, or a law for comparison, in one of the paper's tests."""

    controller: str
    seed: int | None
    flocks: int
    agents: int
    policies: TrainedPolicies
    split: str | None
    """Set of initial conditions; None for those of the test."""

    def make_controller(self) -> Controller:
        """Load the controller, training it first if necessary."""
        return self.policies.load(self.controller, self.seed)

    def build_scenario(self, name: str, **options: Any) -> Scenario:
        """Return a scenario with this job's flocks, whose velocities are drawn as in the training."""
        options |= {"flocks": self.flocks, "agents": self.agents, "velocities": self.policies.interpretation.velocities}
        if self.split is not None:
            options["split"] = self.split
        return make_scenario(name, **options)

    @property
    def base_name(self) -> str:
        """Name of the controller without options, as in tables."""
        return parse_spec(self.controller).name


@dataclass(frozen=True)
class PolicyTrainingJob:
    """Training of one network under an interpretation; its result is the validation table."""

    policies: TrainedPolicies
    controller: str
    seed: int

    @property
    def key(self) -> str:
        """Name of the job."""
        return f"training-{self.controller}-{self.seed}"

    @property
    def labels(self) -> dict[str, Any]:
        """No further columns: the result already has all of them."""
        return {}

    def run(self) -> pd.DataFrame:
        """Train unless done; return epoch, controller, flock, ivv, iman and seed, with the expert's rows first."""
        table = read_validation(self.policies.get_training_run(self.controller, self.seed).validation, self.seed)
        # Statements use the names of networks and expert without the interpretation's options.
        return table.assign(controller=table.controller.str.partition(":")[0])


def build_policy_training_jobs(policies: TrainedPolicies, seeds: tuple[int, ...]) -> list[PolicyTrainingJob]:
    """Return the trainings of all networks with these seeds."""
    return [PolicyTrainingJob(policies, name, seed) for name, seed in product(PAPER_NETWORKS, seeds)]
