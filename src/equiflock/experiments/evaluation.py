"""A controller of one's own beside those of the package, by the same jobs as the reproduction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from equiflock.controllers.registry import is_bundled
from equiflock.controllers.trained import TRAINED
from equiflock.experiments.curves import QUARTILES, weights_checksum
from equiflock.experiments.paper.flocking import FlockingJob
from equiflock.experiments.paper.leader_following import LeaderJob
from equiflock.experiments.paper.obstacle_avoidance import ObstacleJob
from equiflock.experiments.summary import peak_acceleration
from equiflock.learning.recipe import EXPERT
from equiflock.outcomes import Outcome
from equiflock.runtime.checks import InputError
from equiflock.simulation import metrics
from equiflock.simulation.trajectory import Trajectory

Scenario = Literal["flocking", "leaders", "obstacles"]
IN_PIECES = "disconnected"
WHOLE_FLIGHT: dict[str, Callable[[Trajectory], Any]] = {
    "ivv": metrics.ivv,
    "iman": metrics.iman,
    "peak_acceleration": peak_acceleration,
    "smallest_separation": lambda run: run.series["minimum_separation"].min(axis=0),
    "components": lambda run: metrics.component_count(run.flock(), run.comm_radius),
    IN_PIECES: lambda run: (metrics.component_count(run.flock(), run.comm_radius) > 1).astype(float),
}
"""Numbers of a whole flight, one for each flock; a table has them in rows of its last moment."""
RECORDED = (
    metrics.velocity_variance,
    metrics.mean_acceleration_norm,
    metrics.peak_acceleration_norm,
    metrics.minimum_separation,
)
"""What they are computed from."""
HEADINGS = {
    "ivv": "IVV",
    "iman": "IMAN",
    "velocity_variance": "variance\nat end",
    "mean_leader_velocity_distance": "MLVD\nat end",
    "mean_acceleration_norm": "mean\n|a|\nat end",
    "peak_acceleration": "peak\n|a|",
    "smallest_separation": "smallest\nseparation",
    "components": "components\nat end",
    IN_PIECES: "in\npieces",
}
"""What a reader wants first, in this order."""


@dataclass(frozen=True)
class Evaluated:
    """A job under a name of its own."""

    job: Any
    name: str
    checksum: str
    """Of the file of weights that is to be flown; empty if there is none."""
    plugin: str = ""
    """The checksum of the plugin that the controller comes from; empty if it comes with the package."""

    @property
    def key(self) -> str:
        """The job's name."""
        return self.name.replace("/", "_")

    @property
    def labels(self) -> dict[str, Any]:
        """Of its rows."""
        return {**self.job.labels, "controller": self.name}

    def run(self) -> pd.DataFrame:
        """The job's table and, of flights of a fixed duration, the numbers of `WHOLE_FLIGHT`."""
        if self.checksum and weights_checksum(self.job.controller, self.job.seed) != self.checksum:
            raise InputError(f"{self.job.controller} is missing, or not the file that was to be evaluated")
        if isinstance(self.job, ObstacleJob):
            return self.job.run()
        recorded = dict.fromkeys((*self.job.recorded, *RECORDED))  # each once
        run = self.job.fly(self.job.start(), keep_every=None, record=tuple(recorded))
        table: pd.DataFrame = self.job.table(run)
        there = {name for name in table.metric if name in WHOLE_FLIGHT}
        numbers = {name: of(run) for name, of in WHOLE_FLIGHT.items() if name not in there}
        return pd.concat([table, _at_the_end(numbers, table.time.max())], ignore_index=True)


def _at_the_end(numbers: dict[str, Any], time: float) -> pd.DataFrame:
    """Rows as `curve_table` has them."""
    rows = []
    for name, values in numbers.items():
        quartiles = {label: np.quantile(values, q) for label, q in QUARTILES.items()}
        rows.append({"time": time, "metric": name, **quartiles, "mean": values.mean()})
    return pd.DataFrame(rows)


def evaluation_jobs(
    controller: str, scenario: Scenario, agents: int, flocks: int, sides: int, time_step: float, plugin: str = ""
) -> Sequence[Evaluated]:
    """One job for the controller, and one for each of the package (seed 0) and, where it can fly, the expert.

    `plugin` is the checksum of the plugin that was imported, if any: of another one, results are others.
    """
    some: Any = {
        "flocking": FlockingJob("", None, agents, flocks, time_step),
        "leaders": LeaderJob("", None, flocks, agents, time_step=time_step),
        "obstacles": ObstacleJob("", None, sides, True, flocks, agents, time_step),
    }[scenario]
    rivals = [*([EXPERT] if scenario == "flocking" else []), *TRAINED]
    jobs = []
    for name in dict.fromkeys([controller, *rivals]):
        seed = 0 if name in TRAINED else None
        job = replace(some, controller=name, seed=seed)
        jobs.append(Evaluated(job, label_of(name), weights_checksum(name, seed), "" if is_bundled(name) else plugin))
    return jobs


def label_of(controller: str) -> str:
    """What tables and figures call a controller: a file by its name, and its folder's where that says more."""
    path = Path(controller)
    if path.suffix != ".safetensors":
        return controller
    return f"{path.absolute().parent.name}/{path.name}" if path.stem == "weights" else path.name


def folder_name(controller: str, scenario: Scenario) -> str:
    """Of an evaluation: that of another file of weights is another, whatever the files are called."""
    path = Path(controller)
    if path.suffix != ".safetensors":
        return f"{controller.replace('/', '_').replace(':', '-')}-{scenario}"
    return f"{path.absolute().parent.name}-{path.stem}-{weights_checksum(controller)}-{scenario}"


def evaluation_rows(
    table: pd.DataFrame, scenario: Scenario, quartiles: bool = True
) -> tuple[list[str], list[list[str]]]:
    """What a reader wants first: header, and a row for every controller; with quartiles over flocks, or without."""
    names = list(dict.fromkeys(table.controller))
    if scenario == "obstacles":
        endings = [outcome.name for outcome in Outcome.all() if outcome.name in set(table.outcome)]
        rows = []
        for name in names:
            mine = table[table.controller == name]
            shares = [f"{(mine.outcome == ending).mean():.0%}" for ending in endings]
            rows.append([name, *shares, f"{mine.seconds.median():.2f} s"])
        return ["", *(ending.replace("_", "\n").lower() for ending in endings), "median\ntime"], rows
    last = table[table.time == table.time.max()]
    shown = [metric for metric in HEADINGS if metric in set(last.metric)]
    rows = []
    for name in names:
        mine = last[last.controller == name].set_index("metric")
        rows.append([name, *(_text(metric, mine.loc[metric], quartiles) for metric in shown)])
    told = "median (quartiles)" if quartiles else "median"
    return [f"{told}\nover flocks", *(HEADINGS[metric] for metric in shown)], rows


def _text(metric: str, found: Any, quartiles: bool) -> str:
    if metric == IN_PIECES:
        return f"{found['mean']:.0%}"
    low, middle, high = (
        f"{found[label]:,.0f}" if found[label] >= 1000 else f"{found[label]:.3g}" for label in QUARTILES
    )
    return f"{middle} ({low}, {high})" if quartiles and low != high else middle
