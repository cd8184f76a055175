"""Flights of one candidate in one task, as a job for any process or machine."""

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
"""Number of sets of initial flocks that a process caches: all candidates of a generation fly the same ones."""


@dataclass(frozen=True)
class CandidateJob:
    """Measurement of one candidate in one task. It is self-contained, so that a worker needs no files."""

    network: str
    """Registered name of the network."""
    options: str
    """Options that build the network, as JSON."""
    weights: bytes
    """Weights of the network, as safetensors."""
    orbit: Orbit | None
    """Orbit technique parameters of the candidate; None for the scenario's."""
    task: Task
    flocks: int
    seed: int
    split: str
    """Name of the set of flocks."""
    measurement_interval: float
    """Seconds between measurements."""
    candidate: str = field(default="", compare=False)
    """Name of the candidate in job names."""

    @property
    def job_checksum(self) -> str:
        """Checksum of everything that the result depends on."""
        settings = repr(
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
        return compute_checksum(settings.encode(), self.weights)

    @property
    def key(self) -> str:
        """Name of the job."""
        return f"tuning-{self.candidate}-{self.job_checksum}"

    @property
    def labels(self) -> dict[str, Any]:
        """Columns that identify the job's row."""
        return {"candidate": self.candidate, "task": self.task.scenario}

    def run(self) -> pd.DataFrame:
        """Fly the task; return one row, with a column for each measure of the task, as means over flocks."""
        scenario, start = _draw_start(self.task, self.flocks, self.seed, self.split)
        network = build_network(Weights(load(self.weights), self.network, json.loads(self.options), self.orbit))
        measures = measure_flight(
            scenario, start, network, choose_orbit(scenario, self), self.task, self.measurement_interval
        )
        return pd.DataFrame([measures])


def pack_weights(candidate: Candidate) -> bytes:
    """Serialize the weights of a candidate as safetensors."""
    return save({name: np.ascontiguousarray(tensor) for name, tensor in candidate.weights.items()})


@lru_cache(maxsize=START_CACHE_SIZE)
def _draw_start(task: Task, flocks: int, seed: int, split: str) -> tuple[Scenario, Flock]:
    """Return the scenario of a task and its flocks at t = 0; the last 32 results are cached."""
    scenario = task.build_scenario(flocks, seed, split)
    return scenario, scenario.draw()
