"""Evaluation of a controller beside those of the package, in any scenario."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
import pandas as pd

from equiflock.controllers.loading import has_seeds
from equiflock.controllers.registry import WEIGHTS, is_bundled, split_units, with_options
from equiflock.controllers.trained import TRAINED
from equiflock.experiments.curves import QUARTILES, controller_of, curve_table, weights_checksum
from equiflock.experiments.flights import FlightJob, ending_table, measures_of
from equiflock.experiments.summary import peak_acceleration
from equiflock.experiments.world import PAPERS_WORLD, World, make_world
from equiflock.flock import Flock
from equiflock.learning.recipe import EXPERT
from equiflock.outcomes import Outcome
from equiflock.protocols import Controller
from equiflock.runtime.checks import InputError, short
from equiflock.scenarios import registry
from equiflock.scenarios.registry import Scenario, failures, make_scenario, options_of
from equiflock.simulation import metrics
from equiflock.simulation.simulate import Measure
from equiflock.simulation.trajectory import Trajectory

IN_PIECES = "disconnected"
WHOLE_FLIGHT: dict[str, Callable[[Trajectory], Any]] = {
    "ivv": metrics.ivv,
    "iman": metrics.iman,
    "peak_acceleration": peak_acceleration,
    "smallest_separation": lambda run: run.series["minimum_separation"].min(axis=0),
    "component_count": lambda run: metrics.component_count(run.flock(), run.comm_radius),
    IN_PIECES: lambda run: (metrics.component_count(run.flock(), run.comm_radius) > 1).astype(float),
}
"""Metrics of a whole flight, one number for each flock; in a table their rows have the time of the last moment."""
RECORDED = (
    metrics.velocity_variance,
    metrics.mean_acceleration_norm,
    metrics.peak_acceleration_norm,
    metrics.minimum_separation,
)
"""The series that these metrics are computed from."""
HEADINGS = {
    "ivv": "IVV",
    "iman": "IMAN",
    "velocity_variance": "variance\nat end",
    "mean_leader_velocity_distance": "MLVD\nat end",
    "mean_acceleration_norm": "mean\n|a|\nat end",
    "peak_acceleration": "peak\n|a|",
    "smallest_separation": "smallest\nseparation",
    "component_count": "components\nat end",
    IN_PIECES: "in\npieces",
}
"""Columns of the printed table, in their order; further measures of a scenario come after these."""


@dataclass(frozen=True)
class EvaluationJob(FlightJob):
    """The flights of one controller in a scenario."""

    controller: str
    seed: int | None
    scenario_name: str
    options: tuple[tuple[str, Any], ...]
    """The options of the scenario, as `make_scenario` takes them."""
    time_step: float
    duration: float
    name: str
    """The controller's name in tables and figures."""
    checksum: str
    """The checksum of the file of weights that is to be flown; empty if there is none."""
    plugin: str = ""
    """The checksum of the plugin that controller, scenario or body come from; empty if all come with the package."""
    world: World = PAPERS_WORLD
    """The world that it flies in."""

    @property
    def key(self) -> str:
        """The job's name."""
        return self.name.replace("/", "_")

    @property
    def labels(self) -> dict[str, Any]:
        """The columns that mark its rows in the experiment's table."""
        return {"controller": self.name, "seed": self.seed}

    @property
    def scenario(self) -> Scenario:
        """The scenario that is flown."""
        return make_scenario(self.scenario_name, **dict(self.options))

    def flown(self) -> Controller:
        """The controller that flies."""
        return controller_of(self.controller, self.seed)

    def run(self) -> pd.DataFrame:
        """The table behind the scenario's figure: how each flight ended, or its measures over time and in the whole."""
        # A worker may find another file under the path, or one that was changed since the command was given.
        if self.checksum and weights_checksum(self.controller, self.seed) != self.checksum:
            raise InputError(f"{self.controller} is missing, or not the file that was to be evaluated")
        if self.scenario.figure == "endings":
            run = self.fly(self.start(), keep_every=None, record=_own_measures(self.scenario))
            return ending_table(run).assign(**{name: values[-1] for name, values in run.series.items()})
        # Curves of the scenario's measures; metrics of the whole flight stand in rows of the last moment.
        measures = measures_of(self.scenario)
        recorded = measures | {measure.__name__: measure for measure in RECORDED}
        run = self.fly(self.start(), keep_every=None, record=recorded)
        curves = curve_table({name: run.series[name] for name in measures}, self.time_step)
        numbers = {name: of(run) for name, of in WHOLE_FLIGHT.items() if name not in measures}
        return pd.concat([curves, _at_the_end(numbers, curves.time.max())], ignore_index=True)


def _at_the_end(numbers: dict[str, Any], time: float) -> pd.DataFrame:
    """Quartiles over flocks as rows of `curve_table`, all at one time."""
    rows = []
    for name, values in numbers.items():
        quartiles = {label: np.quantile(values, q) for label, q in QUARTILES.items()}
        rows.append({"time": time, "metric": name, **quartiles, "mean": values.mean()})
    return pd.DataFrame(rows)


def check_shown(scenario: Scenario) -> None:
    """Raise a clear error, before anything is flown, if an evaluation could not show the results of the scenario."""
    measures_of(scenario)
    if scenario.figure == "endings":
        failures(scenario, ())


def json_options(scenario: Scenario) -> dict[str, Any]:
    """The scenario's options as a job keeps them, fit for JSON; an error if any other has not its default."""
    usual = options_of(make_scenario(scenario.name))
    options = options_of(scenario)
    # Options such as an Orbit object cannot be kept; they are allowed if making the scenario by name gives the same.
    found = {name: value for name, value in options.items() if isinstance(value, (bool, int, float, str, NoneType))}
    for name in set(options) - set(found):
        if options[name] != usual[name]:
            raise InputError(f"an evaluation cannot keep the option {name} = {short(options[name])}")
    return found


def rivals_of(controller: str, start: Flock) -> tuple[str, ...]:
    """The controllers to compare with: the networks of the package and, for flocks of followers only, the expert.

    In the paper the expert flies flocks without leaders and obstacles; nothing in its law is about these. If the
    controller is scaled to the units of a robot, so are its rivals.
    """
    # Followers have role 0, so any other role makes this true.
    experts = () if start.roles.any() else (EXPERT,)
    asked = with_options(controller, {})
    units = "".join(f":{key}={value}" for key, value in split_units(asked[1])[0].items())
    names = (f"{name}{units}" for name in (*experts, *TRAINED))
    return tuple(name for name in names if with_options(name, {}) != asked)


def evaluation_jobs(
    controller: str,
    scenario: str,
    options: Mapping[str, Any],
    time_step: float,
    duration: float,
    rivals: Sequence[str],
    plugin: str = "",
    world: Mapping[str, Any] | None = None,
) -> Sequence[EvaluationJob]:
    """One job for the controller, and one for each of its rivals, networks of the package with training seed 0.

    `plugin` is the checksum of the plugin that was imported, if any; jobs that depend on it have it in their names.
    `world` has the settings of the world that all fly in, as `make_world` takes them; that of the paper if left out.
    """
    flown_in = make_world(**(world or {}))
    jobs = []
    for name in (controller, *rivals):
        # A job of the package's own parts does not depend on a plugin, so it is shared by all evaluations.
        seed = 0 if has_seeds(name) else None
        flown = weights_checksum(name, seed)
        bundled = is_bundled(name) and registry.is_bundled(scenario) and flown_in.is_bundled
        ours = scenario, tuple(sorted(options.items())), time_step, duration
        jobs.append(EvaluationJob(name, seed, *ours, label_of(name), flown, "" if bundled else plugin, flown_in))
    return jobs


def label_of(controller: str) -> str:
    """The name of a controller in tables and figures: that of a file of weights, with its folder if it is "weights"."""
    file, told = _file_and_options(controller)
    path = Path(file)
    if path.suffix != WEIGHTS:
        return controller
    return (f"{path.absolute().parent.name}/{path.name}" if path.stem == "weights" else path.name) + told


def folder_name(controller: str, scenario: str, world: World = PAPERS_WORLD) -> str:
    """The folder of an evaluation; a file of weights has its checksum in it, as many files have the same name."""
    file, told = _file_and_options(controller)
    path = Path(file)
    name = controller.replace("/", "_").replace(":", "-")
    if path.suffix == WEIGHTS:
        name = f"{path.absolute().parent.name}-{path.stem}-{weights_checksum(file)}{told.replace(':', '-')}"
    return f"{name}-{scenario}-{world.mark}".removesuffix("-")


def _file_and_options(controller: str) -> tuple[str, str]:
    """A controller's name without its options, and these as they follow it."""
    name, _ = with_options(controller, {})
    return name, controller[len(name) :]


def evaluation_rows(
    table: pd.DataFrame, scenario: Scenario, quartiles: bool = True
) -> tuple[list[str], list[list[str]]]:
    """The table that is printed: header, and a row for every controller, with quartiles over flocks or without."""
    if scenario.figure == "endings":
        return _ending_rows(table, scenario)
    # Values at the end, and those of whole flights, which have the same time.
    last = table[table.time == table.time.max()]
    shown = [metric for metric in dict.fromkeys((*HEADINGS, *last.metric)) if metric in set(last.metric)]
    rows = []
    for name in dict.fromkeys(table.controller):
        mine = last[last.controller == name].set_index("metric")
        rows.append([name, *(_text(metric, mine.loc[metric], quartiles) for metric in shown)])
    told = "median (quartiles)" if quartiles else "median"
    return [f"{told}\nover flocks", *map(_heading, shown)], rows


def _ending_rows(table: pd.DataFrame, scenario: Scenario) -> tuple[list[str], list[list[str]]]:
    """The shares of flights by how they ended, the median time, and medians of what the scenario itself measures."""
    # Only outcomes that occurred have a column.
    endings = [outcome for outcome in Outcome.all() if outcome.name in set(table.outcome)]
    failed = [outcome.name for outcome in endings if outcome not in scenario.succeeded]
    own = _own_measures(scenario)
    rows = []
    for name in dict.fromkeys(table.controller):
        mine = table[table.controller == name]
        shares = [f"{(mine.outcome == ending.name).mean():.0%}" for ending in endings]
        medians = [f"{mine[measure].median():.3g}" for measure in own]
        rows.append(
            [name, f"{mine.outcome.isin(failed).mean():.0%}", *shares, f"{mine.seconds.median():.2f} s", *medians]
        )
    names = (ending.name.replace("_", "\n").lower() for ending in endings)
    return ["", "failed", *names, "median\ntime", *map(_heading, own)], rows


def _own_measures(scenario: Scenario) -> dict[str, Measure]:
    """The measures that are a scenario's own; variance and effort of flights of different lengths tell little."""
    return {name: found for name, found in measures_of(scenario).items() if name not in registry.DEFAULTS["measures"]}


def _heading(metric: str) -> str:
    return HEADINGS.get(metric, metric.replace("_", "\n") + "\nat end")


def _text(metric: str, found: Any, quartiles: bool) -> str:
    if metric == IN_PIECES:
        return f"{found['mean']:.0%}"
    # Three figures, and whole numbers from 1,000 on; equal quartiles are left out.
    low, middle, high = (
        f"{found[label]:,.0f}" if found[label] >= 1000 else f"{found[label]:.3g}" for label in QUARTILES
    )
    return f"{middle} ({low}, {high})" if quartiles and low != high else middle
