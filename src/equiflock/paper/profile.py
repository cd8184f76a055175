"""Profiles of a reproduction: its size and its interpretation of the paper."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from equiflock._runtime.checksums import SHORT_DIGITS, compute_checksum
from equiflock.controllers.trained import PAPER_NETWORKS, PAPER_SEEDS
from equiflock.learning.fast_forward import FastForward
from equiflock.learning.recipe import DAgger
from equiflock.paper.interpretation import Interpretation
from equiflock.paper.policies import TrainedPolicies


@dataclass(frozen=True)
class Profile:
    """Size of a reproduction (training seeds, flocks, flock sizes, obstacles, data), and the interpretation."""

    name: str
    seeds: tuple[int, ...] = tuple(PAPER_SEEDS)
    flocks: int = 50
    sizes: tuple[int, ...] = (50, 100, 200, 400)
    sides: tuple[int, ...] = (3, 6, 12, 24, 48, 96)
    fast_forward: FastForward = field(default_factory=FastForward)
    cloning_seeds: tuple[int, ...] = (0, 1, 2)
    recipe: DAgger = field(default_factory=DAgger)
    """Training settings, except those set by the interpretation."""
    split: str | None = None
    """Set of initial conditions of all flights; None for those of the tests."""
    interpretation: Interpretation = field(default_factory=Interpretation)

    @property
    def networks(self) -> list[tuple[str, int]]:
        """The paper's networks with each training seed."""
        return list(product(PAPER_NETWORKS, self.seeds))

    @property
    def uses_bundled_weights(self) -> bool:
        """Whether the bundled weights are those that the trainings of this profile would produce."""
        is_default = self.interpretation.restrict_to("training") == Interpretation() and self.recipe == DAgger()
        return is_default and set(self.seeds) <= set(PAPER_SEEDS)

    @property
    def settings(self) -> dict[str, Any]:
        """All fields, JSON-serializable; the recipe as in the run directory of a training."""
        return {**asdict(self), "recipe": self.recipe.settings}

    def has_networks(self, experiments: Container[str]) -> bool:
        """Return whether networks are available: bundled, or trained because "training" is among these experiments."""
        return self.uses_bundled_weights or "training" in experiments

    def build_policies(self, folder: Path, experiment: str = "training") -> TrainedPolicies:
        """Return the networks of an experiment; those not bundled are trained in `folder`/trainings when loaded.

        Choices of the interpretation that do not affect the experiment are reset, so that they do not affect its jobs.
        """
        recipe = None if self.uses_bundled_weights else self.recipe
        return TrainedPolicies(self.interpretation.restrict_to(experiment), recipe, (folder / "trainings").resolve())

    def build_flight_options(self, folder: Path, experiment: str) -> dict[str, Any]:
        """Return the fields of `PolicyFlightJob` that all jobs of an experiment share."""
        return {"flocks": self.flocks, "policies": self.build_policies(folder, experiment), "split": self.split}

    def build_datasets(self, folder: Path) -> dict[Path, FastForward]:
        """Return the settings of the datasets of behaviour cloning by subdirectory of `folder`; none is generated.

        There is one dataset per seed, which is also the seed of the trainings on it.
        """
        chosen = self.interpretation
        shared: dict[str, Any] = {
            "expert": chosen.expert,
            "velocities": chosen.velocities,
            "hop_mean": chosen.hop_mean,
        }
        datasets = [replace(self.fast_forward, seed=seed, **shared) for seed in self.cloning_seeds]
        # The name has a checksum of all settings, so that datasets of other interpretations have other directories.
        home = (folder / "fast-forward").resolve()
        checksums = [compute_checksum(repr(data).encode())[:SHORT_DIGITS] for data in datasets]
        return {home / f"{data.seed}-{each}": data for data, each in zip(datasets, checksums, strict=True)}


PROFILES = {
    "paper": Profile("paper"),
    "quick": Profile(
        "quick",
        seeds=(0,),
        flocks=10,
        sizes=(50, 100, 200),
        sides=(3, 12, 48, 96),
        fast_forward=FastForward(train_flocks=6, test_flocks=10),
        cloning_seeds=(0,),
    ),
}
