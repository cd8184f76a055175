"""Sweep over a grid of controllers, flock sizes, radii, hops and environments; each point is a job that may train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import product
from typing import Any, cast

import numpy as np
import pandas as pd

from equiflock.controllers.loading import has_open_seed
from equiflock.controllers.registry import is_bundled
from equiflock.experiments.curves import compute_weights_checksum, load_with_seed
from equiflock.experiments.world import DEFAULT_WORLD, World
from equiflock.learning.recipe import DAgger
from equiflock.protocols import Controller
from equiflock.runtime.checks import InputError, check_count, check_positive
from equiflock.scenarios import RandomDisk
from equiflock.senses.graph import components
from equiflock.simulation import metrics
from equiflock.simulation.simulate import simulate

METRICS = {
    "ivv": "integral of the velocity variance",
    "iman": "integral of the mean acceleration norm",
    "final_velocity_variance": "velocity variance at the end",
    "disconnected": "share of flocks disconnected at the end",
}
AXES = {"agents": "agents", "comm_radius": "communication radius", "hops": "hops"}
"""Axes of every sweep; environment options with several values are further axes."""
NON_AXIS_COLUMNS = {"controller", "seed", "flock", "remark", *METRICS}
"""Columns of a sweep's table that are not axes."""


@dataclass(frozen=True)
class SweepJob:
    """One point of the grid: test flocks under one controller, which may be trained for that point first."""

    controller: str
    seed: int
    agents: int
    comm_radius: float
    hops: int | None
    """K of a network that is trained for this point; None for controllers that are not trained here."""
    epochs: int = 0
    """Epochs of a training with these agents, radius and hops; 0 for no training."""
    flocks: int = 20
    time_step: float = 0.01
    duration: float = 2.0
    checksum: str = ""
    """Checksum of the weights file; not verified if empty."""
    plugin: str = ""
    """Checksum of the plugin that defines controller or body; empty if the package defines both."""
    world: World = DEFAULT_WORLD
    """Radio, body and failures of the test flights; trainings use the paper's."""
    axes: tuple[tuple[str, Any], ...] = field(default=(), repr=False)
    """Environment options that the sweep varies: columns of the table, not part of the stored result."""

    def __post_init__(self) -> None:
        # Checked when jobs are built, before any of them runs.
        for name in ("agents", "flocks"):
            check_count(name, getattr(self, name))
        for name in ("comm_radius", "time_step", "duration"):
            check_positive(name, getattr(self, name))
        check_count("epochs", self.epochs, least=0)
        self.world.check_duration(self.duration)
        self.world.check_followers(self.agents)

    @property
    def key(self) -> str:
        """Name of the job."""
        name = self.controller.replace("/", "_")
        point = f"sweep-{name}-{self.seed}-{self.agents}-{self.comm_radius:g}-{self.hops}"
        return f"{point}-{self.world.file_suffix}".removesuffix("-")

    @property
    def labels(self) -> dict[str, Any]:
        """Columns that identify the job's rows in the experiment's table."""
        names = "controller", "seed", "agents", "comm_radius", "hops"
        return {name: getattr(self, name) for name in names} | dict(self.axes)

    @property
    def settings(self) -> dict[str, Any]:
        """All settings, JSON-serializable."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("world", "axes")}
        return {**values, "world": self.world.settings}

    def run(self) -> pd.DataFrame:
        """Return a row per flock with its metrics; `remark` is empty.

        If no initial conditions exist for this point, return one row of NaN with the reason as `remark`.
        """
        # With a small radius no connected flock may exist: a result of the sweep, not a failure of the job.
        try:
            start = RandomDisk(self.flocks, self.agents, split="test", comm_radius=self.comm_radius).draw()
        except InputError as error:
            return pd.DataFrame([{"flock": 0, **dict.fromkeys(METRICS, np.nan), "remark": str(error).split(":")[0]}])
        controller = self.make_controller()
        run = simulate(
            start,
            controller,
            time_step=self.time_step,
            duration=self.duration,
            **self.world.flight_options,
            keep_every=None,
            record=(metrics.velocity_variance, metrics.mean_acceleration_norm),
        )
        return pd.DataFrame(
            {
                "flock": np.arange(self.flocks),
                "ivv": metrics.ivv(run),
                "iman": metrics.iman(run),
                "final_velocity_variance": run.series["velocity_variance"][-1],
                "disconnected": (components(run.flock()).max(axis=1) > 0).astype(float),
                "remark": "",
            }
        )

    def make_controller(self) -> Controller:
        """Load the controller or, if the job has epochs, train it in this process, without a run directory.

        Raise InputError if a weights file differs from `checksum`.
        """
        if self.epochs == 0:
            if self.checksum and compute_weights_checksum(self.controller, self.seed) != self.checksum:
                raise InputError(f"{self.controller} is missing, or differs from the file that the sweep started with")
            return load_with_seed(self.controller, self.seed)
        from equiflock.learning.dagger import train

        # Only the final weights are used, so validate as little as possible.
        recipe = DAgger(
            controller=self.controller,
            epochs=self.epochs,
            seed=self.seed,
            agents=self.agents,
            hops=self.hops or DAgger.hops,
            comm_radius=self.comm_radius,
            validation_flocks=1,
            validate_every=self.epochs,
        )
        return cast(Controller, train(recipe))


def build_sweep_jobs(
    controllers: Sequence[str],
    seeds: Sequence[int],
    agents: Sequence[int],
    radii: Sequence[float],
    hops: Sequence[int | None],
    plugin: str = "",
    worlds: Sequence[tuple[Mapping[str, Any], World]] = (({}, DEFAULT_WORLD),),
    **options: Any,
) -> list[SweepJob]:
    """Return the jobs of all combinations, the largest flocks first, so that workers finish at similar times.

    Controllers without training seeds have jobs for the first seed only, unless they are trained. `options` are further
    fields of `SweepJob`, such as `epochs`.

    `plugin` is the checksum of the imported plugin, if any; jobs that depend on it have it in their names.
    `worlds` are the environments, each with the options that identify it in the table.
    """
    grid = product(sorted(agents, reverse=True), controllers, radii, hops, worlds)

    # Read each weights file once; networks that the jobs train have no file.
    @cache
    def get_checksum(name: str, seed: int) -> str:
        return "" if options.get("epochs") else compute_weights_checksum(name, seed)

    return [
        SweepJob(
            name,
            seed,
            n,
            comm_radius,
            K,
            checksum=get_checksum(name, seed),
            plugin="" if is_bundled(name) and world.is_bundled else plugin,
            world=world,
            axes=tuple(axes.items()),
            **options,
        )
        for n, name, comm_radius, K, (axes, world) in grid
        # Seeds belong to trained weights or to trainings; all other controllers have one job.
        for seed in (seeds if has_open_seed(name) or options.get("epochs") else seeds[:1])
    ]


def list_axes(table: pd.DataFrame) -> list[str]:
    """Return the axes of a sweep's table: agents, comm_radius and hops, then the environment options that vary."""
    return [*AXES, *(column for column in table.columns if column not in NON_AXIS_COLUMNS and column not in AXES)]


def summarize_sweep(table: pd.DataFrame, axes: Sequence[str] | None = None) -> pd.DataFrame:
    """Return a row per point of `axes` (default: all), with medians over flocks, seeds and the remaining axes.

    `disconnected`, a share, is the mean.
    """
    by = ["controller", *(list_axes(table) if axes is None else axes)]
    # Controllers that are not trained here have NaN hops, which form a group.
    groups = table.groupby(by, dropna=False, sort=True)
    result = groups[list(METRICS)].median()
    result["disconnected"] = groups["disconnected"].mean()
    return result.reset_index()
