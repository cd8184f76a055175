"""Controllers of the experiments, bundled or trained under an interpretation, and the base class of their flights."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import SHORT_DIGITS, compute_checksum
from equiflock._runtime.executors import fingerprint_program
from equiflock._runtime.files import lock_dir
from equiflock._runtime.specs import parse_spec
from equiflock._runtime.user_cache import KEY_DIGITS, open_cache_dir
from equiflock.controllers import load
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.evaluation.job_weights import load_with_seed
from equiflock.learning.recipe import DAgger
from equiflock.paper.interpretation import Interpretation
from equiflock.protocols import Controller
from equiflock.scenarios import Scenario, make_scenario
from equiflock.simulation.flight_jobs import FlightJob

if TYPE_CHECKING:  # needs torch, which flights of bundled weights do without
    from equiflock.learning.training_run import TrainingRun


@dataclass(frozen=True)
class TrainedPolicies:
    """Source of the networks of an experiment, under the experiment's interpretation.

    Networks that are not bundled are trained in a directory on first use, by whichever process needs them first.
    """

    interpretation: Interpretation = field(default_factory=Interpretation)
    recipe: DAgger | None = None
    """Other settings of the trainings; None for bundled weights."""
    folder: Path = field(default=Path(), repr=False, compare=False)
    """Directory of the trainings; the weights do not depend on it."""

    def load(self, controller: str, seed: int | None) -> Controller:
        """Load a law, or a network with the weights of this training seed, which may train it first."""
        if self.recipe is None or controller not in PAPER_NETWORKS or seed is None:
            return load_with_seed(controller, seed)
        return load(self.get_training_run(controller, seed).weights)

    def get_training_run(self, controller: str, seed: int) -> TrainingRun:
        """Return the finished training of a network, after starting or completing it if necessary.

        It trains in this process, or waits while another process does. Raise InputError if the directory holds another
        recipe.
        """
        from equiflock.learning.training_run import TrainingRun

        assert self.recipe is not None
        recipe = self.interpretation.build_recipe(self.recipe, controller, seed)
        home = self.folder
        if home.parent.is_dir():
            home.mkdir(exist_ok=True)
        else:
            # A worker on another machine may not have the directory; it trains in its cache, once for each program.
            program = compute_checksum(repr(fingerprint_program()).encode())
            home = open_cache_dir("trainings", program[:KEY_DIGITS])
        # The checksum in the name covers the whole recipe, including the interpretation's choices.
        folder = home / f"{controller}-{seed}-{compute_checksum(repr(recipe).encode())[:SHORT_DIGITS]}"
        with lock_dir(home, wait=True):  # only one of several processes creates the training
            run = TrainingRun(folder) if folder.exists() else TrainingRun.create(folder, recipe)
        if run.recipe != recipe:
            raise InputError(f"{folder} contains another training: remove it to train again")
        run.train(wait=True)
        # Training does not repair tables that were changed after the checkpoints were removed.
        if not run.is_finished:
            raise InputError(f"{folder} is damaged: remove it to train again")
        return run


@dataclass(frozen=True)
class PolicyFlightJob(FlightJob):
    """Base class of jobs that fly a trained policy, or a law for comparison, in one of the paper's tests."""

    controller: str
    seed: int | None
    _: KW_ONLY
    flocks: int = 50
    agents: int = 100
    time_step: float = 0.01
    duration: float = 2.0
    policies: TrainedPolicies = field(default_factory=TrainedPolicies)
    split: str | None = None
    """Set of initial conditions; None for those of the test."""

    experiment: ClassVar[str]
    scenario_name: ClassVar[str] = "flocking"
    label_names: ClassVar[tuple[str, ...]] = ()
    """Attributes that identify a job of the experiment, beside controller and seed."""

    @property
    def key(self) -> str:
        """Name of the job."""
        return "-".join([self.experiment, *map(str, self.labels.values())])

    @property
    def labels(self) -> dict[str, Any]:
        """Columns that identify the job's rows in the experiment's table; the controller is named without options."""
        others = {name: getattr(self, name) for name in self.label_names}
        return {"controller": parse_spec(self.controller).name, "seed": self.seed, **others}

    @property
    def scenario(self) -> Scenario:
        """Scenario with this job's flocks and the options of its interpretation."""
        return self.build_scenario()

    def make_controller(self) -> Controller:
        """Load the controller, training it first if necessary."""
        return self.policies.load(self.controller, self.seed)

    def build_scenario(self, **options: Any) -> Scenario:
        """Return the scenario with further options."""
        options |= self.policies.interpretation.get_scenario_options(self.scenario_name)
        if self.split is not None:
            options["split"] = self.split
        return make_scenario(self.scenario_name, flocks=self.flocks, agents=self.agents, **options)
