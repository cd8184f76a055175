"""The flights of one candidate in one task, as a job for any process or machine."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from safetensors.numpy import load, save

from equiflock.controllers.loading import build_network
from equiflock.controllers.networks.weights import Weights
from equiflock.experiments.tuning.genome import Candidate
from equiflock.experiments.tuning.measures import measure_flight
from equiflock.experiments.tuning.tasks import Task
from equiflock.flock import Flock
from equiflock.orbit_technique import Orbit
from equiflock.runtime.checksums import compute_checksum
from equiflock.scenarios import Scenario
from equiflock.scenarios.registry import choose_orbit

START_CACHE_SIZE = 32
"""So many sets of flocks a process remembers: all candidates of a generation fly the same ones."""


@dataclass(frozen=True)
class CandidateJob:
    """Measures one candidate in one task. It brings all that it needs, so that a worker needs no files."""

    network: str
    """The network's name, with which it is registered."""
    options: str
    """The options that build it, as JSON."""
    weights: bytes
    """Its weights, as safetensors."""
    orbit: Orbit | None
    """The numbers of the technique that belong to them; None for those of the scenario."""
    task: Task
    flocks: int
    seed: int
    split: str
    """Names the set of flocks."""
    measurement_interval: float
    """Seconds from one look at the flocks to the next."""
    candidate: str = field(default="", compare=False)
    """What it is called in names of jobs."""

    @property
    def job_checksum(self) -> str:
        """The checksum of all that its result depends on."""
        told = repr(
            (
                self.network,
                self.options,
                self.orbit,
                self.task,
                self.flocks,
                self.seed,
                self.split,
                self.measurement_interval,
            )
        )
        return compute_checksum(told.encode(), self.weights)

    @property
    def key(self) -> str:
        """The job's name."""
        return f"tuning-{self.candidate}-{self.job_checksum}"

    @property
    def labels(self) -> dict[str, Any]:
        """The columns that mark its row."""
        return {"candidate": self.candidate, "task": self.task.scenario}

    def run(self) -> pd.DataFrame:
        """One row, with a column for each measure that the task has."""
        scenario, start = _draw_start(self.task, self.flocks, self.seed, self.split)
        network = build_network(Weights(load(self.weights), self.network, json.loads(self.options), self.orbit))
        found = measure_flight(
            scenario, start, network, choose_orbit(scenario, self), self.task, self.measurement_interval
        )
        return pd.DataFrame([found])


def pack_weights(candidate: Candidate) -> bytes:
    """The weights of a candidate as a job takes them."""
    return save({name: np.ascontiguousarray(tensor) for name, tensor in candidate.weights.items()})


@lru_cache(maxsize=START_CACHE_SIZE)
def _draw_start(task: Task, flocks: int, seed: int, split: str) -> tuple[Scenario, Flock]:
    """The scenario of a task and its flocks at t = 0."""
    scenario = task.build_scenario(flocks, seed, split)
    return scenario, scenario.draw()
