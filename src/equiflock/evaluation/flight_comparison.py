"""A flight log beside the simulation of the same start: frames, metrics and the distance between both."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64

from equiflock._runtime.checks import InputError, shorten_repr
from equiflock._runtime.files import atomic_write, check_absent
from equiflock.evaluation.summary import summarize
from equiflock.flock import Role
from equiflock.protocols import Controller
from equiflock.simulation import metrics
from equiflock.simulation.simulate import simulate
from equiflock.simulation.trajectory import Trajectory, write_checksums

if TYPE_CHECKING:  # slow to import
    import pandas as pd

SERIES = (metrics.velocity_variance, metrics.component_count, metrics.minimum_separation)
"""Series that `summarize` needs; it computes all others from the frames."""
FIXED_OPTIONS = ("time_step", "duration", "comm_radius", "keep_every")
"""Options of `simulate` that a log determines."""


@dataclass(frozen=True, eq=False)
class FlightComparison:
    """The result of `compare_with_simulation`."""

    log: Trajectory
    """The flight."""
    simulation: Trajectory
    """The simulated flight, with the same times."""
    drift: Float64[np.ndarray, " F"]
    """Root of the mean over agents of the squared distance between their positions in both flights, at each frame."""

    @property
    def table(self) -> pd.DataFrame:
        """Metrics of both flights: a row per metric, with the columns `log` and `simulation`."""
        import pandas as pd

        runs = {"log": self.log, "simulation": self.simulation}
        # Realised accelerations are compared with realised ones, not with commands.
        if self.log.config.get("accelerations") == "realised":
            runs = {name: _use_realised_accelerations(run) for name, run in runs.items()}
        return pd.DataFrame({name: _measure(run) for name, run in runs.items()}).rename_axis("metric")

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write log.zarr and simulation.zarr into a new folder, which `equiflock view` and `animate` show side by side.

        Return the folder. Raise InputError if it exists.
        """
        check_absent(folder)
        with atomic_write(folder) as scratch:
            self.log.save(scratch / "log.zarr")
            self.simulation.save(scratch / "simulation.zarr")
            write_checksums(scratch)
        return Path(folder)


def compare_with_simulation(log: Trajectory, controller: Controller, **simulate_options: Any) -> FlightComparison:
    """Simulate the start of a flight log with its time step and duration, and return both flights and their distance.

        log = ef.Trajectory.from_csv("flight.csv", comm_radius=3.0)
        comparison = ef.compare_with_simulation(log, ef.load("starling", comm_radius=3.0, time_scale=12.0))
        print(comparison.table, comparison.drift[-1])

    Raise InputError if the log has several flocks, or fewer frames than steps.

    Args:
        log: the flight, such as `Trajectory.from_csv` returns.
        controller: the controller of the robots, in their units, such as `load("starling", comm_radius=3.0, ..)`.
        simulate_options: `environment`, `body`, `radio` and other options of `simulate` without those of FIXED_OPTIONS.
    """
    if not isinstance(log, Trajectory):
        raise InputError(f"log must be a Trajectory, such as Trajectory.from_csv returns; got {shorten_repr(log)}")
    if len(log.steps) > 1:
        raise InputError(f"log must have one flock; got {len(log.steps)}: choose one, such as log[0]")
    if not log.has_every_step:
        raise InputError("log must have a frame for every step: simulate it with keep_every=1")
    for name in FIXED_OPTIONS:
        if name in simulate_options:
            raise InputError(f"{name} must not be given: it is that of the log")
    simulation = simulate(
        log.flock(0),
        controller,
        time_step=log.time_step,
        duration=(len(log.times) - 1) * log.time_step,
        **simulate_options,
    )
    flies = log.roles[0] != Role.OBSTACLE
    squares = np.square(log.positions - simulation.positions).sum(axis=3)[:, 0, flies]
    return FlightComparison(log, simulation, np.sqrt(squares.mean(axis=1)))


def _measure(run: Trajectory) -> Mapping[str, float]:
    """Return the metrics of a flight of one flock by their titles."""
    series = {measure.__name__: measure(run) for measure in SERIES}
    return {row.name: float(row.values[0]) for row in summarize(replace(run, series=series))}


def _use_realised_accelerations(run: Trajectory) -> Trajectory:
    """Return the flight with (v(t + dt) - v(t)) / dt as its accelerations."""
    return replace(run, accelerations=np.diff(run.velocities, axis=0) / run.time_step)
